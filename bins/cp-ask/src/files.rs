//! The files of `-f`: a file, the text files below a directory, those that match a glob, or a text at a URL; and the
//! tools of `--tools`: a directory as it is, or a JSON list, whose tools are the only ones that the model may call.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cp_common::context::given;
use cp_common::coprocess::{cmd, on_path};
use cp_common::output::to_stderr;
use cp_common::{Code, Error, Result};
use cp_redact::Redactor;
use ignore::overrides::OverrideBuilder;
use ignore::{DirEntry, WalkBuilder};
use serde_json::Value;

/// The most files that one argument may stand for.
const MOST: usize = 500;
/// The longest text, or list of tools, in bytes.
const LONGEST: u64 = 4 << 20;

/// The files of `-f`.
#[derive(Default)]
pub(crate) struct Files {
    paths: Vec<PathBuf>,
    /// The files that a text was fetched into, each with its URL.
    urls: Vec<(String, String)>,
}

impl Files {
    /// Finds the files. What is fetched is put into a directory.
    pub(crate) fn of<'a>(arguments: impl Iterator<Item = &'a OsString>, scratch: &Path) -> Result<Self> {
        let mut files = Self::default();
        for file in arguments.map(Path::new) {
            let name = &*file.to_string_lossy();
            if ["http://", "https://"].iter().any(|scheme| name.starts_with(scheme)) {
                let file = format!("{}/{}.url", scratch.display(), files.urls.len());
                fetch(name, &file)?;
                files.paths.push(file.clone().into());
                files.urls.push((file, Redactor::from_environment().redact_text(name).0));
            } else if file.is_dir() {
                files.paths.extend(below(name, file, "**")?);
            } else if let Some(at) = name.find(['*', '?', '[']).filter(|_| !file.exists()) {
                let end = name[..at].rfind('/').map_or(0, |slash| slash + 1);
                let directory = if end == 0 { "./" } else { &name[..end] };
                files.paths.extend(below(name, directory.as_ref(), &name[end..])?);
            } else {
                files.paths.push(file.to_owned());
            }
        }
        Ok(files)
    }

    /// Returns the options of `cp-compose`. The paths are any bytes.
    pub(crate) fn options(&self) -> impl Iterator<Item = OsString> {
        self.paths.iter().flat_map(|file| ["--context".into(), file.into()])
    }

    /// Names the URLs in a prompt instead of the files that they were fetched into.
    pub(crate) fn with_urls(&self, prompt: &str) -> String {
        let quoted = |url: &str| Value::from(url).to_string().trim_matches('"').to_owned();
        self.urls.iter().fold(prompt.to_owned(), |text, (file, url)| text.replace(file, &quoted(url)))
    }
}

/// Fetches a text with curl into a file.
fn fetch(url: &str, file: &str) -> Result<()> {
    let absent = || Error::not_found("curl fetches the text at a URL, and is not installed").in_file(Path::new(url));
    let curl = on_path("curl").ok_or_else(absent)?;
    let words = ["-fsSL", "--proto", "=http,https", "--max-time", "60", "-o", file, "--", url];
    let curl = cmd(curl, words).stdin_null().stdout_null().stderr_capture();
    let ran = curl.unchecked().run().map_err(|e| Error::io("starting curl", e))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(Error::new(Code::Network, said.trim()).in_file(Path::new(url)));
    }
    Ok(())
}

/// Lists the text files below a directory that match a pattern. What git ignores and what is hidden is left out, and what
/// cannot be read is counted.
fn below(name: &str, directory: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let wrong = |e: ignore::Error| Error::usage(format!("not a glob: {e}")).in_file(Path::new(name));
    let mut globs = OverrideBuilder::new(directory);
    globs.add(&format!("/{pattern}")).map_err(wrong)?;
    let globs = globs.build().map_err(wrong)?;
    let mut walk = WalkBuilder::new(directory);
    let (mut names, mut others) = (Vec::new(), 0);
    let short = |file: &Path| file.strip_prefix("./").unwrap_or(file).to_owned();
    let is_file = |entry: &DirEntry| entry.file_type().is_some_and(|kind| kind.is_file());
    for entry in walk.require_git(false).sort_by_file_name(Ord::cmp).build() {
        match entry.as_ref().map(DirEntry::path) {
            Ok(file) if !entry.as_ref().is_ok_and(is_file) || !globs.matched(file, false).is_whitelist() => {}
            Ok(file) if is_text(file).unwrap_or(false) => names.push(short(file)),
            _ => others += 1,
        }
    }
    if others > 0 {
        to_stderr(&format!("cp-ask: {name}: files that are not readable text and are not sent: {others}\n"));
    }
    match names.len() {
        0 => Err(Error::not_found("no text files, apart from those that git ignores").in_file(Path::new(name))),
        1..=MOST => Ok(names),
        found => Err(Error::validation(format!("{found} files, the limit is {MOST}")).in_file(Path::new(name))),
    }
}

/// True if a file begins like a text. One that is longer than what is read is refused where it is put into the prompt.
fn is_text(file: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    File::open(file)?.take(LONGEST).read_to_end(&mut head)?;
    let valid = std::str::from_utf8(&head).map_or_else(|e| e.valid_up_to(), str::len);
    Ok((valid == head.len() || valid as u64 + 4 > LONGEST) && !head.contains(&0))
}

/// Returns the options of the loop. Of a list, the names are the tools that the model may call.
pub(crate) fn tool_words(path: &Path) -> Result<Vec<String>> {
    let mut words = vec![format!("--tools={}", path.display())];
    if path.extension().is_some_and(|end| end == "json") {
        // The loop refuses what is no list. An empty name allows no tool.
        let tools: Vec<Value> = serde_json::from_slice(&given::bytes(path, LONGEST)?).unwrap_or_default();
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        words.push(format!("--allow={}", names.join(",")));
    }
    Ok(words)
}
