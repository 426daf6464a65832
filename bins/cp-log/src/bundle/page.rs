//! A page of cp-report: its bundle, and everything else, which cp-report makes again from the same bundle to compare it.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::process::Command;

use cp_common::coprocess::{self, Child, Grace};
use cp_common::{Context, Error, Result};
use cp_ledger::read::Lines;
use tempfile::TempDir;

/// A page without its bundle: the number and the text of each line.
#[derive(Default)]
struct Frame {
    lines: Vec<(u64, String)>,
    is_in_bundle: bool,
}

/// The parts of a frame, and their names in faults.
const PARTS: [&str; 5] = ["audit", "words", "script", "style", "security policy"];

impl Frame {
    /// Adds a line. Returns true if it is one of the bundle.
    fn add(&mut self, number: u64, line: &[u8]) -> bool {
        match (self.is_in_bundle, line) {
            (false, b"<script type=\"text/plain\" class=\"bundle\">") => self.is_in_bundle = true,
            (true, b"</script>") => self.is_in_bundle = false,
            (true, _) => return true,
            // Blank lines are not records, so they do not come from a child.
            (false, b"") => {}
            (false, _) => self.lines.push((number, String::from_utf8_lossy(line).into_owned())),
        }
        false
    }

    /// The lines of each part.
    fn parts(&self) -> [Vec<(u64, String)>; PARTS.len()] {
        let mut parts = [const { Vec::new() }; PARTS.len()];
        let mut open = None;
        for (number, line) in &self.lines {
            open = open.or(match line {
                _ if line.starts_with("<script>") => Some((2, "</script>")),
                _ if line.starts_with("<style>") => Some((3, "</style>")),
                _ => None,
            });
            let part = match open {
                Some((part, _)) => part,
                None if line.starts_with("<meta http-equiv=") => 4,
                None if line.contains(" id=\"audit-result\" ") => 0,
                None => 1,
            };
            parts[part].push((*number, line.clone()));
            open = open.filter(|(_, end)| !line.ends_with(end));
        }
        parts
    }

    /// The program and the version that made the page.
    fn generator(&self) -> Option<&str> {
        self.lines
            .iter()
            .find_map(|(_, line)| line.strip_prefix("<meta name=\"generator\" content=\"")?.strip_suffix("\">"))
    }
}

/// The content of a page.
pub(super) struct Page {
    frame: Frame,
    directory: TempDir,
    /// The line of the page that comes before each block of the bundle, and the lines of the bundle before it.
    blocks: Vec<(u64, u64)>,
}

/// True if a file whose first line is this one is a page.
pub(crate) fn begins_page(line: &[u8]) -> bool {
    line == b"<!doctype html>"
}

fn failed(e: std::io::Error) -> Error {
    Error::io("cannot keep the bundle of the page in a temporary file", e).fatal()
}

impl Page {
    pub(super) fn read(mut lines: Lines) -> Result<Self> {
        let directory = tempfile::tempdir().map_err(failed)?;
        let mut page = Self { frame: Frame::default(), directory, blocks: Vec::new() };
        let mut bundle = BufWriter::new(File::create(page.bundle()).map_err(failed)?);
        let mut count = 0;
        while let Some(raw) = lines.next()? {
            let was_in_bundle = page.frame.is_in_bundle;
            if page.frame.add(raw.number, raw.bytes) {
                count += 1;
                bundle.write_all(&unescaped(raw.bytes)).and_then(|()| bundle.write_all(b"\n")).map_err(failed)?;
            } else if page.frame.is_in_bundle && !was_in_bundle {
                page.blocks.push((raw.number, count));
            }
        }
        bundle.flush().map_err(failed)?;
        Ok(page)
    }

    /// The file with the bundle of the page.
    pub(super) fn bundle(&self) -> std::path::PathBuf {
        self.directory.path().join("bundle")
    }

    /// The line of the page that has this line of its bundle.
    pub(super) fn line_of(&self, line: u64) -> u64 {
        let block = self.blocks.iter().rev().find(|(_, before)| *before < line);
        block.map_or(1, |(start, before)| start + line - before)
    }

    /// The differences from the page that cp-report makes of the same bundle, as lines and messages; else the reason why they are
    /// not compared.
    pub(super) fn differences(&self, context: &Context) -> Result<Result<Vec<(u64, String)>, String>> {
        let mut command = Command::new(match coprocess::find("cp-report") {
            Ok(program) => program,
            Err(error) => return Ok(Err(error.message().to_owned())),
        });
        command.arg("--home").arg(context.home.root()).arg(self.bundle());
        for (number, line) in &self.frame.lines {
            let key = line.strip_prefix("<script type=\"text/plain\" class=\"key\">");
            if let Some(key) = key.and_then(|key| key.strip_suffix("</script>")) {
                let file = self.directory.path().join(format!("{number}.pub"));
                std::fs::write(&file, key).map_err(failed)?;
                command.arg("--trust").arg(file);
            }
        }
        if self.frame.lines.iter().any(|(_, line)| line == "<details id=\"lines-all\">") {
            command.arg("--overview");
        }
        let (mut child, mut made, mut number) = (Child::start(&mut command, Grace::default())?, Frame::default(), 0);
        while let Some(line) = child.next_line()? {
            number += 1;
            made.add(number, line);
        }
        if !child.wait()?.success() {
            return Ok(Err("cp-report makes no page of this bundle".to_owned()));
        }
        match (self.frame.generator(), made.generator()) {
            (page, own) if page != own => Ok(Err(format!(
                "{} made the page, and this is {}",
                page.unwrap_or("another program"),
                own.unwrap_or("cp-report")
            ))),
            _ => Ok(Ok(compare(&self.frame, &made))),
        }
    }
}

/// The first difference of each part.
fn compare(page: &Frame, made: &Frame) -> Vec<(u64, String)> {
    let mut differences = Vec::new();
    for ((name, page), made) in PARTS.into_iter().zip(page.parts()).zip(made.parts()) {
        let same = page.iter().zip(&made).take_while(|((_, one), (_, other))| one == other).count();
        let (found, expected) = (page.get(same), made.get(same));
        if found.is_none() && expected.is_none() {
            continue;
        }
        let number = found.or(page.last()).map_or(1, |(number, _)| *number);
        let text = |line: Option<&(u64, String)>| line.map(|(_, line)| words(line)).unwrap_or_default();
        differences.push((
            number,
            match name {
                "words" => {
                    format!("the words were edited: `{}` where cp-report writes `{}`", text(found), text(expected))
                }
                "audit" => "the audit is not the one that cp-log makes of this bundle".to_owned(),
                _ => format!("the {name} is not the one of cp-report"),
            },
        ));
    }
    differences
}

/// The words of a line of HTML, or the whole line if it has none, cut to a readable length.
fn words(line: &str) -> String {
    let text: Vec<_> = line.split('<').filter_map(|piece| piece.split_once('>').map(|(_, text)| text.trim())).collect();
    let text = text.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    (if text.is_empty() { line.to_owned() } else { text }).chars().take(160).collect()
}

/// The bytes that a page had to escape.
fn unescaped(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memchr::memchr(b'&', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let end = memchr::memchr(b';', &rest[..rest.len().min(8)]).unwrap_or(0);
        let byte = match &rest[..end] {
            b"&amp" => Some(b'&'),
            b"&lt" => Some(b'<'),
            [b'&', b'#', digits @ ..] => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
            _ => None,
        };
        out.push(byte.unwrap_or(b'&'));
        rest = &rest[if byte.is_some() { end + 1 } else { 1 }..];
    }
    out.extend_from_slice(rest);
    out
}
