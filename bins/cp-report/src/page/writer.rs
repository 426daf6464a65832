//! Writes the page: the summary, the bundle, the audit, and the script that renders and proves the lines.

use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::{Error, Result, signals};
use cp_ledger::format::line::Hash;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use sha2::{Digest as _, Sha256};

use super::head::{Heading, Table};
use super::text::{content, data, escape};
use crate::audit::Audit;
use crate::bundle::Bundle;
use crate::model::ROWS;

const STYLE: &str = include_str!("../../assets/page.css");
/// The script: the table of events, and the parts that prove, render and judge lines.
static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let events = serde_json::to_string(ROWS).unwrap_or_default();
    let parts = [
        include_str!("../../assets/prove.js"),
        include_str!("../../assets/lines.js"),
        include_str!("../../assets/verdicts.js"),
        include_str!("../../assets/page.js"),
    ];
    let start = "\"use strict\";\n(() => {\n  const page = document, find = (id) => page.getElementById(id), utf8 = new TextEncoder();\n";
    format!("{start}  const EVENTS = {events};\n{}}})();", parts.concat())
});
const TEMPLATES: [(&str, &str); 5] = [
    ("head", include_str!("../../assets/head.html")),
    ("header", include_str!("../../assets/header.html")),
    ("sums", include_str!("../../assets/sums.html")),
    ("table", include_str!("../../assets/table.html")),
    ("body", include_str!("../../assets/body.html")),
];

/// How much of the bundle one block of the page has, because a text in a browser has a limit.
const BLOCK: usize = 1 << 20;

/// The input of the page.
pub(crate) struct Input<'a> {
    pub(crate) bundle: &'a Bundle,
    pub(crate) audit: &'a Audit,
    pub(crate) keys: &'a [String],
    pub(crate) is_overview: bool,
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
    let render = |name: &str, values: Value| {
        templates.get_template(name).and_then(|template| template.render(values)).map_err(wrong)
    };
    let safe = |text: &str| Value::from_safe_string(text.to_owned());
    let picture = |text: &Option<String>| text.as_deref().map(safe);
    let grid = |table: &Table| {
        let Table { name, columns, rows, links, .. } = table.clone();
        let words = ["task", "outcome"];
        render("table", context! { name, columns, rows, links, words }).map(Value::from_safe_string)
    };
    let turns = heading.turns.as_ref().map(grid).transpose()?;
    let table =
        |table: &Table| Ok(context! { name => table.name, grid => grid(table)?, picture => picture(&table.picture) });
    let tables = heading.tables.iter().map(table).collect::<Result<Vec<_>>>()?;
    let values = || Value::from(Serde(heading));
    let header = render("header", values())?;
    let sums = render(
        "sums",
        context! {
            tables, grid => turns,
            timeline => picture(&heading.timeline), tokens => picture(&heading.tokens), costs => picture(&heading.costs),
            ..values()
        },
    )?;
    let mut audit = Vec::new();
    data(&serde_json::to_vec(input.audit).unwrap_or_default(), &mut audit);
    let audit = String::from_utf8_lossy(&audit).into_owned();
    let words = Hash::of([content(&header).as_str(), &content(&sums), &audit].concat().as_bytes());
    let hash = |text: &str| format!("sha256-{}", BASE64.encode(Sha256::digest(text)));
    let head = context! {
        script_hash => hash(&SCRIPT), style_hash => hash(STYLE), style => safe(STYLE), script => safe(&SCRIPT), ..values()
    };
    out(render("head", head)?.as_bytes())?;
    let body = context! {
        header => safe(&header), sums => safe(&sums), audit => safe(&audit), words => words.hex(), keys => input.keys.to_vec(),
        is_overview => input.is_overview, ..values()
    };
    out(b"\n")?;
    out(render("body", body)?.as_bytes())?;
    bundle(input.bundle, out)?;
    out(b"\n</section>\n</body>\n</html>\n")
}

/// Writes the lines of the bundle, in blocks.
fn bundle(bundle: &Bundle, out: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    const START: &[u8] = b"\n<script type=\"text/plain\" class=\"bundle\">\n";
    let (mut lines, mut block) = (bundle.lines()?, START.to_vec());
    while let Some(line) = lines.next()? {
        signals::check()?;
        data(line.bytes, &mut block);
        block.push(b'\n');
        if block.len() >= BLOCK {
            block.extend_from_slice(b"</script>");
            out(&block)?;
            block = START.to_vec();
        }
    }
    block.extend_from_slice(b"</script>");
    out(&block)
}
