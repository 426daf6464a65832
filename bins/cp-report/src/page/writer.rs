//! Writes the page: what stands above the lines, the lines as they come, the lines of an agent inside those of the run that began it.

use std::collections::HashSet;
use std::fs::File;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Error, Result, signals};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use sha2::{Digest as _, Sha256};

use super::head::{Heading, Table};
use super::{Placed, id_of};
use crate::bundle::{Blob, Chunk, Reader};
use crate::model::{Entry, Overview, Pairs, Place, Shown, shown};

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");
const TEMPLATES: [(&str, &str); 7] = [
    ("head", include_str!("../../assets/head.html")),
    ("table", include_str!("../../assets/table.html")),
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

/// The input of the page.
pub(crate) struct Input<'a> {
    pub(crate) file: &'a File,
    pub(crate) size: u64,
    pub(crate) ledgers: &'a [Placed],
    pub(crate) overview: &'a Overview,
    pub(crate) keys: &'a [String],
    pub(crate) is_overview: bool,
}

struct Writer<'a> {
    input: &'a Input<'a>,
    templates: Environment<'static>,
    is_written: Vec<bool>,
    /// Lines that the timeline shows.
    drawn: HashSet<Place>,
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
            Some(text) => escape(text, out)?,
            None => escape(&value.to_string(), out)?,
        }
        Ok(())
    });
    for (name, source) in TEMPLATES {
        templates.add_template(name, source).map_err(wrong)?;
    }
    let is_written = vec![false; input.ledgers.len()];
    let drawn = input.overview.lanes.iter().flatten().map(|span| span.place);
    let drawn = if input.is_overview { HashSet::new() } else { drawn.collect() };
    let mut writer = Writer { input, templates, is_written, drawn, bytes: Vec::new(), out };
    let hash = |text: &str| format!("sha256-{}", BASE64.encode(Sha256::digest(text)));
    let safe = |text: &str| Value::from_safe_string(text.to_owned());
    let picture = |text: &Option<String>| text.as_deref().map(safe);
    let grid = |table: &Table| {
        let words = ["task", "outcome"];
        let Table { name, columns, rows, links, .. } = table.clone();
        writer.render("table", context! { name, columns, rows, links, words }).map(Value::from_safe_string)
    };
    let turns = heading.turns.as_ref().map(grid).transpose()?;
    let table =
        |table: &Table| Ok(context! { name => table.name, grid => grid(table)?, picture => picture(&table.picture) });
    let tables = heading.tables.iter().map(table).collect::<Result<Vec<_>>>()?;
    writer.fill(
        "head",
        context! {
            script_hash => hash(SCRIPT), style_hash => hash(STYLE), style => safe(STYLE),
            tables, grid => turns,
            timeline => picture(&heading.timeline), tokens => picture(&heading.tokens), costs => picture(&heading.costs),
            is_overview => input.is_overview,
            ..Value::from(Serde(heading))
        },
    )?;
    let is_child = |run: &Option<String>| run.as_ref().is_some_and(|run| input.overview.children.contains(run));
    let (children, others): (Vec<usize>, Vec<usize>) =
        (0..input.ledgers.len()).partition(|index| is_child(&input.ledgers[*index].run));
    // Ledgers of conversations come first, those of programs after them.
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
        let text = self.render(name, values)?;
        (self.out)(text.as_bytes())
    }

    fn render(&self, name: &str, values: Value) -> Result<String> {
        self.templates.get_template(name).and_then(|template| template.render(values)).map_err(wrong)
    }

    /// Writes a block of bytes that the script reads.
    fn block(&mut self, start: &str, bytes: &[u8]) -> Result<()> {
        self.bytes.clear();
        self.bytes.extend_from_slice(start.as_bytes());
        data(bytes, &mut self.bytes);
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
        let name = &*placed.id;
        self.fill(
            "ledger",
            context! { index => name, depth, run => placed.run.as_deref(), ledger => Serde(&placed.ledger) },
        )?;
        let said = serde_json::to_vec(&placed.ledger).unwrap_or_default();
        self.block(
            &format!(
                "<details class=\"line\"><summary>what proves it</summary><script type=\"text/plain\" data-ledger=\"{name}\">"
            ),
            &said,
        )?;
        (self.out)(b"</details>\n")?;
        let mut reader = Reader::new(self.input.file, placed.at, self.input.size);
        reader.next()?;
        let (mut proof, mut turns, mut pairs) = (String::new(), None::<u64>, Pairs::default());
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
                    let pair = entry.as_ref().map_or((None, false), |entry| pairs.see(entry));
                    self.line(index, entry.as_ref(), raw, &std::mem::take(&mut proof), pair)?;
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
            let is_long = self.input.overview.totals.turns > TOGETHER;
            (self.out)(if is_long { b"<div class=\"turns\">\n" } else { b"<div>\n" })?;
        }
        if !begins {
            return Ok(());
        }
        let (steps, ledgers) = (&self.input.overview.turns, self.input.ledgers);
        let at = steps.partition_point(|step| step.place <= (index, entry.seq)).checked_sub(1);
        let bar = at.filter(|_| !self.input.is_overview).map(|at| id_of(ledgers, steps[at].place));
        self.fill("turn", context! { index => &*ledgers[index].id, level => 4, turn => entry.turn, bar })
    }

    fn line(
        &mut self,
        index: usize,
        entry: Option<&Entry<'_>>,
        raw: &str,
        proof: &str,
        pair: (Option<u64>, bool),
    ) -> Result<()> {
        let said = entry.map_or_else(Shown::of_nothing, shown);
        let seq = entry.map_or_else(|| "unknown".to_owned(), |entry| entry.seq.to_string());
        let Placed { id, unanswered, .. } = &self.input.ledgers[index];
        let of = |seq| (index, seq);
        let is_drawn = entry.is_some_and(|entry| self.drawn.contains(&of(entry.seq)));
        let is_begun = pair.1 && entry.is_some_and(|entry| !unanswered.contains(&entry.seq));
        let totals = &self.input.overview.totals;
        let sum = match said.tone {
            "refused" if totals.refusals > 0 => Some("refusals"),
            "failed" if totals.failures > 0 => Some("failures"),
            _ => None,
        };
        self.fill(
            "entry",
            context! {
                answers => pair.0, is_begun, is_drawn, sum,
                index => &**id, seq => &*seq, shown => Serde(&said),
                ts => entry.map(|entry| entry.ts), clock => entry.map(|entry| entry.ts.get(11..23)),
                role => entry.and_then(|entry| entry.role.as_deref()).filter(|role| *role == "user"),
                is_minor => said.is_minor(entry),
            },
        )?;
        let proof =
            if proof.is_empty() { String::new() } else { format!(" data-proof=\"{}\"", proof.replace('"', "&quot;")) };
        self.block(
            &format!("<script type=\"text/plain\" data-of=\"{id}\" data-seq=\"{seq}\"{proof}>"),
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
        let id = &*self.input.ledgers[index].id;
        self.fill("blob", context! { index => id, text, is_cut, blob => about })?;
        let hash = blob.hash.replace(['"', '<', '&'], "");
        let start = format!(
            "<details class=\"line\"><summary>its bytes in base 64</summary><script type=\"text/plain\" data-of=\"{id}\" data-blob=\"{hash}\" data-size=\"{}\" data-offset=\"{}\" data-missing=\"{}\">",
            blob.size, blob.offset, blob.missing
        );
        self.block(&start, blob.base64.as_bytes())?;
        (self.out)(b"</details></section>\n")
    }
}

/// Writes a text for any place of a template, attributes included. Controls and characters that cannot be seen become visible.
fn escape(text: &str, out: &mut impl std::fmt::Write) -> std::fmt::Result {
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if at < from || !IS_SPECIAL[usize::from(byte)] {
            continue;
        }
        let Some(c) = text[at..].chars().next() else { break };
        let entity = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&quot;",
            '\'' => "&#39;",
            _ => "",
        };
        let is_hidden = matches!(c, '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
        let is_control = c.is_ascii_control();
        if entity.is_empty() && !is_hidden && !is_control {
            continue;
        }
        out.write_str(&text[from..at])?;
        from = at + c.len_utf8();
        match c {
            '\u{7f}' => out.write_char('\u{2421}')?,
            _ if is_control => out.write_char(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'))?,
            _ if is_hidden => write!(out, "[U+{:04X}]", u32::from(c))?,
            _ => out.write_str(entity)?,
        }
    }
    out.write_str(&text[from..])
}

/// True if a character that begins with this byte may need an escape. A table, because every byte is looked up.
static IS_SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = byte != b'\n' as usize && byte != b'\t' as usize;
        byte += 1;
    }
    let (others, mut at) = (b"&<>\"'\x7f\xc2\xd8\xe1\xe2\xef\xf3", 0);
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// Adds bytes as the text of a data block, from which the script has them back exactly: nothing in it ends the block or is changed
/// when the page is read.
fn data(bytes: &[u8], out: &mut Vec<u8>) {
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'&' && *byte != b'<' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            _ => out.extend_from_slice(format!("&#{byte};").as_bytes()),
        }
    }
    out.extend_from_slice(&bytes[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        escape(text, &mut out).unwrap();
        out
    }

    #[test]
    fn markup_controls_and_directions_become_visible_text() {
        assert_eq!(escaped("<b a='\"'>&amp;"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;amp;");
        assert_eq!(escaped("a\0\u{1b}\r\n\t\u{7f}"), "a\u{2400}\u{241b}\u{240d}\n\t\u{2421}");
        assert_eq!(
            escaped("\u{202e}x\u{2066}\u{200f}\u{feff}\u{85}\u{e0041}"),
            "[U+202E]x[U+2066][U+200F][U+FEFF][U+0085][U+E0041]"
        );
        assert_eq!(escaped("Grüße, 日本, \u{1f469}\u{200d}\u{1f680} …"), "Grüße, 日本, \u{1f469}\u{200d}\u{1f680} …");
    }

    #[test]
    fn data_ends_no_block_and_loses_no_byte() {
        let mut out = Vec::new();
        data(b"</script><!--&lt;\0\r\n\xc3\xa9", &mut out);
        assert_eq!(out, b"&lt;/script>&lt;!--&amp;lt;&#0;&#13;&#10;\xc3\xa9");
    }
}
