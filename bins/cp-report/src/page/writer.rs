//! Writes the page: what stands above the lines, the lines as they come, the lines of an agent inside those of the run that began it.

use std::fs::File;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Error, Result, signals};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use sha2::{Digest as _, Sha256};

use super::head::Heading;
use super::text;
use crate::bundle::{Blob, Chunk, Ledger, Reader};
use crate::model::{Entry, Shown, shown};

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");
const TEMPLATES: [(&str, &str); 6] = [
    ("head", include_str!("../../assets/head.html")),
    ("ledger", include_str!("../../assets/ledger.html")),
    ("turn", include_str!("../../assets/turn.html")),
    ("entry", include_str!("../../assets/entry.html")),
    ("blob", include_str!("../../assets/blob.html")),
    ("tail", include_str!("../../assets/tail.html")),
];

/// How deep agents of agents are shown inside each other.
const DEPTH: usize = 8;
/// How many turns a browser lays out together: one by one it would look at each again while the page comes.
const TOGETHER: u64 = 50;
/// How much of a large value is shown as text.
const SHOWN: usize = 64 << 10;

/// A ledger, and where it is in the copy.
pub(crate) struct Placed {
    pub(crate) at: u64,
    pub(crate) ledger: Ledger,
    /// The run whose ledger it is.
    pub(crate) run: Option<String>,
    /// Whether somebody speaks in it.
    pub(crate) is_spoken: bool,
}

/// What the page is made of.
pub(crate) struct Input<'a> {
    pub(crate) file: &'a File,
    pub(crate) size: u64,
    pub(crate) ledgers: &'a [Placed],
    /// Runs that others have begun.
    pub(crate) children: &'a [String],
    pub(crate) keys: &'a [String],
    pub(crate) is_overview: bool,
}

struct Writer<'a> {
    input: &'a Input<'a>,
    templates: Environment<'static>,
    is_written: Vec<bool>,
    bytes: Vec<u8>,
    out: &'a mut dyn FnMut(&[u8]) -> Result<()>,
}

fn wrong(e: minijinja::Error) -> Error {
    Error::io("cannot fill the page", std::io::Error::other(e)).fatal()
}

/// Writes the whole page.
pub(crate) fn write(heading: &Heading, input: &Input<'_>, out: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut templates = Environment::new();
    templates.set_formatter(|out, _, value| {
        if value.is_undefined() || value.is_none() {
            return Ok(());
        }
        match value.as_str() {
            Some(safe) if value.is_safe() => out.write_str(safe)?,
            Some(text) => text::escape(text, out)?,
            None => text::escape(&value.to_string(), out)?,
        }
        Ok(())
    });
    for (name, source) in TEMPLATES {
        templates.add_template(name, source).map_err(wrong)?;
    }
    let is_written = vec![false; input.ledgers.len()];
    let mut writer = Writer { input, templates, is_written, bytes: Vec::new(), out };
    let hash = |text: &str| format!("sha256-{}", BASE64.encode(Sha256::digest(text)));
    let safe = |text: &str| Value::from_safe_string(text.to_owned());
    let picture = |text: &Option<String>| text.as_deref().map(safe);
    let tables = heading.tables.iter().map(|table| {
        context! { name => table.name, columns => table.columns.clone(), rows => table.rows.clone(), picture => picture(&table.picture) }
    });
    writer.fill(
        "head",
        context! {
            script_hash => hash(SCRIPT), style_hash => hash(STYLE), style => safe(STYLE),
            tables => tables.collect::<Vec<_>>(),
            timeline => picture(&heading.timeline), tokens => picture(&heading.tokens),
            is_overview => input.is_overview,
            ..Value::from(Serde(heading))
        },
    )?;
    let is_child = |run: &Option<String>| run.as_ref().is_some_and(|run| input.children.contains(run));
    let (children, others): (Vec<usize>, Vec<usize>) =
        (0..input.ledgers.len()).partition(|index| is_child(&input.ledgers[*index].run));
    // What was said is read first, what programs noted of it after that.
    let (first, rest): (Vec<usize>, Vec<usize>) = others.into_iter().partition(|index| input.ledgers[*index].is_spoken);
    for index in first.into_iter().chain(rest).chain(children) {
        writer.ledger(index, 0)?;
    }
    writer.fill(
        "tail",
        context! { keys => input.keys.to_vec(), script => safe(SCRIPT), is_overview => input.is_overview },
    )
}

impl Writer<'_> {
    fn fill(&mut self, name: &str, values: Value) -> Result<()> {
        let text = self.templates.get_template(name).and_then(|template| template.render(values)).map_err(wrong)?;
        (self.out)(text.as_bytes())
    }

    /// Writes a block of bytes that the script reads.
    fn block(&mut self, start: &str, bytes: &[u8]) -> Result<()> {
        self.bytes.clear();
        self.bytes.extend_from_slice(start.as_bytes());
        text::data(bytes, &mut self.bytes);
        self.bytes.extend_from_slice(b"</script>");
        (self.out)(&self.bytes)?;
        self.bytes.shrink_to(1 << 20);
        Ok(())
    }

    fn ledger(&mut self, index: usize, depth: usize) -> Result<()> {
        if std::mem::replace(&mut self.is_written[index], true) {
            return Ok(());
        }
        let placed = &self.input.ledgers[index];
        self.fill("ledger", context! { index, depth, run => placed.run.as_deref(), ledger => Serde(&placed.ledger) })?;
        let said = serde_json::to_vec(&placed.ledger).unwrap_or_default();
        self.block(
            &format!(
                "<details class=\"line\"><summary>what proves it</summary><script type=\"text/plain\" data-ledger=\"{index}\">"
            ),
            &said,
        )?;
        (self.out)(b"</details>\n")?;
        let mut reader = Reader::new(self.input.file, placed.at, self.input.size);
        reader.next()?;
        let (mut proof, mut turns) = (String::new(), None::<u64>);
        while let Some((chunk, bytes)) = reader.next()? {
            signals::check()?;
            match chunk {
                Chunk::Ledger => break,
                Chunk::Proof => proof = String::from_utf8_lossy(bytes).into_owned(),
                Chunk::Line => {
                    let raw = std::str::from_utf8(bytes).unwrap_or_default();
                    let entry = Entry::read(raw);
                    if let Some(entry) = &entry {
                        self.turn(index, entry, &mut turns)?;
                    }
                    self.line(index, entry.as_ref(), raw, &std::mem::take(&mut proof))?;
                    let agent = entry.filter(|entry| entry.event == "agent_start" && depth < DEPTH);
                    if let Some(run) = agent.and_then(|entry| Some(entry.text("run_id")?.into_owned())) {
                        let found = self.input.ledgers.iter().position(|placed| placed.run.as_ref() == Some(&run));
                        found.map_or(Ok(()), |child| self.ledger(child, depth + 1))?;
                    }
                }
                Chunk::Blob => self.blob(index, bytes)?,
            }
        }
        (self.out)(if turns.is_some() { b"</section>\n</div>\n</section>\n" } else { b"</section>\n" })
    }

    /// Ends a turn and begins the next where the line says so. `turns` is how many there were, while one is open.
    fn turn(&mut self, index: usize, entry: &Entry<'_>, turns: &mut Option<u64>) -> Result<()> {
        let begins = entry.event == "iteration";
        if !begins && entry.event != "run_end" {
            return Ok(());
        }
        let is_new = turns.is_none_or(|count| count.is_multiple_of(TOGETHER));
        if turns.is_some() {
            (self.out)(if is_new || !begins { b"</section>\n</div>\n" } else { b"</section>\n" })?;
        }
        *turns = begins.then(|| turns.map_or(1, |count| count + 1));
        if begins && is_new {
            (self.out)(b"<div class=\"turns\">\n")?;
        }
        if begins { self.fill("turn", context! { index, level => 4, turn => entry.turn }) } else { Ok(()) }
    }

    fn line(&mut self, index: usize, entry: Option<&Entry<'_>>, raw: &str, proof: &str) -> Result<()> {
        let said = entry.map_or_else(Shown::of_nothing, shown);
        let seq = entry.map_or_else(|| "unknown".to_owned(), |entry| entry.seq.to_string());
        self.fill(
            "entry",
            context! {
                index, seq => &*seq, shown => Serde(&said),
                ts => entry.map(|entry| entry.ts), clock => entry.map(|entry| entry.ts.get(11..23)),
                role => entry.and_then(|entry| entry.role.as_deref()).filter(|role| *role == "user"),
                is_minor => said.is_minor(entry),
            },
        )?;
        let proof =
            if proof.is_empty() { String::new() } else { format!(" data-proof=\"{}\"", proof.replace('"', "&quot;")) };
        self.block(
            &format!("<script type=\"text/plain\" data-of=\"{index}\" data-seq=\"{seq}\"{proof}>"),
            raw.as_bytes(),
        )?;
        (self.out)(b"</details></article>\n")
    }

    fn blob(&mut self, index: usize, json: &[u8]) -> Result<()> {
        let blob: Blob<'_> = serde_json::from_slice(json).map_err(|e| Error::validation(e.to_string()).fatal())?;
        let start = &blob.base64[..blob.base64.len().min(SHOWN)];
        let bytes = if blob.media_type == "application/octet-stream" { None } else { BASE64.decode(start).ok() };
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let is_cut = start.len() < blob.base64.len();
        let about = context! { hash => &*blob.hash, media_type => &*blob.media_type, size => blob.size, offset => blob.offset, missing => blob.missing };
        self.fill("blob", context! { index, text, is_cut, blob => about })?;
        let hash = blob.hash.replace(['"', '<', '&'], "");
        let start = format!(
            "<details class=\"line\"><summary>its bytes in base 64</summary><script type=\"text/plain\" data-of=\"{index}\" data-blob=\"{hash}\" data-size=\"{}\" data-offset=\"{}\" data-missing=\"{}\">",
            blob.size, blob.offset, blob.missing
        );
        self.block(&start, blob.base64.as_bytes())?;
        (self.out)(b"</details></section>\n")
    }
}
