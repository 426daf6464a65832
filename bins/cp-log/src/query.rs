//! `cp-log query`: the lines that match, as the bytes they were written as.

use std::path::{Path, PathBuf};

use cp_common::context::options::QueryOptions;
use cp_common::output::Format;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::fields;
use cp_common::{Code, Context, Error, Result, json};
use cp_ledger::format::line::{Line, inside, members};
use cp_ledger::read::{Backward, End, Lines, Raw, backward, lines};

use crate::jq::Program;
use crate::select::{Filters, Select};
use crate::target::{Target, to_read};

/// The members that a line can have.
const MEMBERS: [&str; 13] =
    ["seq", "ts", "event", "agent", "session", "run", "turn", "role", "content", "message", "data", "prev", "hash"];

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "query",
    class: Class::Query,
    output: "entry",
    examples: &["{} query --event deploy --limit 1", "{} query --fields seq,event"],
    dangerous: false,
};

/// Print the lines that match
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,
    /// Newest first
    #[arg(long)]
    reverse: bool,
    /// In the order of time over all files, then of files
    #[arg(long, conflicts_with_all = ["reverse", "cursor"])]
    merge: bool,
    /// Run this jq program on each line and print bare values
    #[arg(long, value_name = "FILTER", conflicts_with = "fields")]
    jq: Option<String>,
    #[command(flatten)]
    query: QueryOptions,
    /// Ledgers, or directories of them (default: the session's, else all of home's)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut targets = to_read(&args.files, context)?;
    if args.reverse {
        targets.reverse();
    }
    let cursor = args.query.cursor.as_deref().map(Cursor::parse).transpose()?;
    if let Some(cursor) = &cursor {
        let at = targets.iter().position(|target| target.path == cursor.path);
        let at =
            at.ok_or_else(|| Error::usage(format!("--cursor: {} is not among the files", cursor.path.display())))?;
        targets.drain(..at);
    }
    // Without operands the session chose the files; with them it chooses lines.
    let session = context.options.session.as_deref().filter(|_| !args.files.is_empty());
    let run = context.options.run.clone();
    let select = Select::new(&args.filters, session, run.as_deref())?;
    let mut printer = Printer::new(&args.query.fields, args.query.limit)?;
    printer.jq = args.jq.as_deref().map(Program::new).transpose()?;
    if printer.jq.is_none() {
        context.out.streaming()?;
    }
    if args.merge {
        merge(&targets, &select, &mut printer, context)?;
        return printer.finish(context);
    }
    for target in &targets {
        let after = cursor.as_ref().filter(|cursor| cursor.path == target.path).map(|cursor| cursor.seq);
        let outcome = read(target, &select, args.reverse, after, &mut printer, context);
        match outcome {
            Ok(()) => {}
            Err(e)
                if e.is_fatal()
                    || !matches!(e.code(), Code::NotFound | Code::Forbidden | Code::Io | Code::Validation) =>
            {
                return Err(e);
            }
            Err(e) => context.out.item_failed(e)?,
        }
        if printer.has_more {
            break;
        }
    }
    printer.finish(context)
}

/// Prints the lines of all files in the order of their times; of equal times the earlier file's comes first.
fn merge(targets: &[Target], select: &Select, printer: &mut Printer<'_>, context: &mut Context) -> Result<()> {
    let mut heads = Vec::new();
    for target in targets {
        let opened = lines(&target.path).and_then(|reader| Head::new(target, reader).next(select));
        match opened {
            Ok(head) => heads.extend(head),
            Err(e) => context.out.item_failed(e)?,
        }
    }
    while let Some(first) = (0..heads.len()).min_by(|a, b| heads[*a].ts().cmp(heads[*b].ts())) {
        let mut head = heads.remove(first);
        if let Some(line) = Line::parse(&head.line)
            && !printer.print(&head.target.path, &line, context)?
        {
            return Ok(());
        }
        head.line.clear();
        if let Some(head) = head.next(select)? {
            heads.insert(first, head);
        }
    }
    Ok(())
}

/// The next line of one of the files that are merged.
struct Head<'a> {
    target: &'a Target,
    reader: Lines,
    line: Vec<u8>,
}

impl<'a> Head<'a> {
    fn new(target: &'a Target, reader: Lines) -> Self {
        Self { target, reader, line: Vec::new() }
    }

    fn ts(&self) -> &str {
        Line::parse(&self.line).map_or("", |line| line.ts())
    }

    /// The same file, at its next wanted line; `None` at its end.
    fn next(mut self, select: &Select) -> Result<Option<Self>> {
        loop {
            let raw = match select.needle() {
                Some(needle) => self.reader.next_with(needle)?,
                None => self.reader.next()?,
            };
            let Some(raw) = raw else { return Ok(None) };
            let wanted = raw.stored().filter(|line| select.wants(line) && json::check(line.bytes()).is_ok());
            if let Some(line) = wanted {
                self.line.extend_from_slice(line.bytes());
                return Ok(Some(self));
            }
        }
    }
}

fn read(
    target: &Target,
    select: &Select,
    reverse: bool,
    after: Option<u64>,
    printer: &mut Printer<'_>,
    context: &mut Context,
) -> Result<()> {
    let path = &target.path;
    let mut reader = if reverse { Reader::Backward(backward(path)?) } else { Reader::Forward(lines(path)?) };
    while let Some(raw) = reader.next(select)? {
        if raw.end == End::File {
            // Being written, or torn: not a line yet.
            continue;
        }
        let Some(line) = raw.stored() else {
            if target.named || raw.offset > 0 {
                damaged(path, &raw, "is no line of a ledger", context)?;
                continue;
            }
            // A stranger among the files of a directory.
            return Ok(());
        };
        let passed = after.is_some_and(|after| if reverse { line.seq() >= after } else { line.seq() <= after });
        if passed || !select.wants(&line) {
            continue;
        }
        if !json::is_normal(line.bytes()) && json::check(line.bytes()).is_err() {
            damaged(path, &raw, "is not JSON", context)?;
            continue;
        }
        if !printer.print(path, &line, context)? {
            break;
        }
    }
    Ok(())
}

fn damaged(path: &Path, raw: &Raw<'_>, what: &str, context: &mut Context) -> Result<()> {
    let error = Error::new(Code::Integrity, format!("byte {}: {what}", raw.offset));
    context.out.item_failed(error.with("offset", raw.offset).in_file(path).hint("cp-log verify tells more"))
}

enum Reader {
    Forward(Lines),
    Backward(Backward),
}

impl Reader {
    fn next(&mut self, select: &Select) -> Result<Option<Raw<'_>>> {
        match (self, select.needle()) {
            (Self::Forward(lines), Some(needle)) => lines.next_with(needle),
            (Self::Forward(lines), None) => lines.next(),
            (Self::Backward(lines), _) => lines.next(),
        }
    }
}

/// Where a page ended: `file:seq` of the last line printed.
struct Cursor {
    path: PathBuf,
    seq: u64,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self> {
        let parts = text.rsplit_once(':').and_then(|(path, seq)| Some((path, seq.parse().ok()?)));
        let (path, seq) = parts.ok_or_else(|| Error::usage("--cursor must be a next_cursor of an earlier query"))?;
        Ok(Self { path: PathBuf::from(path), seq })
    }
}

/// Prints lines until there are enough.
pub(crate) struct Printer<'a> {
    fields: Vec<Vec<&'a str>>,
    jq: Option<Program>,
    jq_failures: u64,
    limit: u64,
    count: u64,
    last: Option<(PathBuf, u64)>,
    has_more: bool,
    /// The record being written; kept for its memory.
    line: Vec<u8>,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(fields: &'a [String], limit: Option<u64>) -> Result<Self> {
        fields::check(fields, &MEMBERS)?;
        let fields = fields.iter().map(|field| field.split('.').collect()).collect();
        let limit = limit.unwrap_or(u64::MAX);
        Ok(Self { fields, jq: None, jq_failures: 0, limit, count: 0, last: None, has_more: false, line: Vec::new() })
    }
}

impl Printer<'_> {
    /// Whether as many were printed as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.limit
    }

    /// Prints a line; false when there are enough.
    pub(crate) fn print(&mut self, path: &Path, line: &Line<'_>, context: &mut Context) -> Result<bool> {
        if self.is_full() {
            self.has_more = true;
            return Ok(false);
        }
        self.count += 1;
        match &mut self.last {
            Some((last, seq)) if last == path => *seq = line.seq(),
            last => *last = Some((path.to_owned(), line.seq())),
        }
        self.line.clear();
        let format = context.out.format();
        if let Some(program) = &self.jq {
            if let Err(e) = program.run(line.bytes(), format != Format::Json, &mut self.line) {
                self.jq_failures += 1;
                context.warn(&format!("{}: seq {}: {e}", path.display(), line.seq()));
            }
            context.out.raw(&self.line)?;
            return Ok(true);
        }
        if format == Format::Json {
            self.line.extend_from_slice(b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"entry\",\"data\":");
        }
        if format == Format::Text && self.fields.is_empty() {
            self.line.extend_from_slice(words(line).as_bytes());
        } else if self.fields.is_empty() {
            self.line.extend_from_slice(line.bytes());
        } else {
            project(line.bytes(), &self.fields, &mut self.line);
        }
        if format == Format::Json {
            self.line.push(b'}');
        }
        context.out.item_succeeded();
        context.out.pass(&self.line)?;
        Ok(true)
    }

    /// Leaves the closing line; bare values have none.
    fn finish(&self, context: &mut Context) -> Result<()> {
        if self.jq.is_none() {
            self.close(context);
            return Ok(());
        }
        if self.jq_failures > 0 {
            return Err(Error::validation(format!("--jq failed on {} lines", self.jq_failures)));
        }
        context.out.ended_with(0);
        Ok(())
    }

    pub(crate) fn close(&self, context: &mut Context) {
        let next = self.last.as_ref().filter(|_| self.has_more).map(|(path, seq)| format!("{}:{seq}", path.display()));
        context.out.extra("count", self.count);
        context.out.extra("next_cursor", next);
        context.out.extra("has_more", self.has_more);
        context.out.extra("truncated", self.has_more);
    }
}

/// A line for people.
fn words(line: &Line<'_>) -> String {
    let text = |name: &str| {
        line.member(name).map(|value| json::unquote(value).unwrap_or_else(|| String::from_utf8_lossy(value).into()))
    };
    let mut words = format!("{} {:>6} {}", line.ts(), line.seq(), text("event").unwrap_or_else(|| "-".to_owned()));
    for part in
        [text("agent"), text("role").map(|role| role + ":"), text("content"), text("message")].into_iter().flatten()
    {
        words.push(' ');
        words.push_str(&part);
    }
    words
}

/// Appends the object with only the members that the paths lead to, their values as they were written.
fn project(object: &[u8], paths: &[Vec<&str>], out: &mut Vec<u8>) {
    out.push(b'{');
    let start = out.len();
    for (at, path) in paths.iter().enumerate() {
        let Some((name, _)) = path.split_first() else { continue };
        if paths[..at].iter().any(|before| before.first() == Some(name)) {
            continue;
        }
        let Some(value) = member(object, name) else { continue };
        let below: Vec<Vec<&str>> =
            paths.iter().filter(|path| path.first() == Some(name)).map(|path| path[1..].to_vec()).collect();
        let whole = below.iter().any(Vec::is_empty);
        if !whole && !value.starts_with(b"{") {
            continue;
        }
        if out.len() > start {
            out.push(b',');
        }
        json::string(name, out);
        out.push(b':');
        if whole {
            out.extend_from_slice(value);
        } else {
            project(value, &below, out);
        }
    }
    out.push(b'}');
}

fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut spelt = Vec::with_capacity(name.len() + 2);
    json::string(name, &mut spelt);
    let spelt = &spelt[1..spelt.len() - 1];
    members(inside(object)?).find(|(found, _)| *found == spelt).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projections_keep_the_text_of_values_and_the_order_asked_for() {
        let object = br#"{"seq":1,"data":{"n":1e400,"m":{"a":1,"b":2},"s":"x"}}"#;
        let project = |fields: &[&str]| {
            let mut out = Vec::new();
            project(object, &fields.iter().map(|field| field.split('.').collect()).collect::<Vec<_>>(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(project(&["data.n", "seq", "data.m.b"]), r#"{"data":{"n":1e400,"m":{"b":2}},"seq":1}"#);
        assert_eq!(project(&["data.m", "data.m.a"]), r#"{"data":{"m":{"a":1,"b":2}}}"#);
        assert_eq!(project(&["event", "seq.x"]), "{}");
    }
}
