//! The files of `-f`: a file, the text files below a directory, those that match a glob, or a text at a URL; and the
//! tools of `--tools`: a directory as it is, or a JSON list, whose tools are the only ones that the model may call.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cp_common::context::given;
use cp_common::coprocess::{cmd, on_path};
use cp_common::home::config::variable;
use cp_common::output::to_stderr;
use cp_common::{Code, Error, Result};
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use serde_json::{Value, json};

/// The most files that one argument may stand for.
const MOST: usize = 500;
/// The longest text, or list of tools, in bytes.
const LONGEST: u64 = 4 << 20;

/// Finds the files. What is fetched is put into a directory.
pub(crate) fn of<'a>(arguments: impl Iterator<Item = &'a str>, scratch: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for name in arguments {
        let file = Path::new(name);
        if ["http://", "https://"].iter().any(|scheme| name.starts_with(scheme)) {
            files.push(fetched(name, &scratch.join(files.len().to_string()))?);
        } else if file.is_dir() {
            files.extend(below(name, name, "**")?);
        } else if let Some(at) = name.find(['*', '?', '[']).filter(|_| !file.exists()) {
            let end = name[..at].rfind('/').map_or(0, |slash| slash + 1);
            let directory = if end == 0 { "./" } else { &name[..end] };
            files.extend(below(name, directory, &name[end..])?);
        } else {
            files.push(name.to_owned());
        }
    }
    Ok(files)
}

/// Fetches a text with curl into a file in a directory, with the beginning of its URL as its name.
fn fetched(url: &str, directory: &Path) -> Result<String> {
    let absent = || Error::not_found("curl fetches the text at a URL, and is not installed").in_file(Path::new(url));
    let curl = on_path("curl").ok_or_else(absent)?;
    let file = directory.join(url.replace('/', "_").chars().take(60).collect::<String>());
    let words = ["-fsSL", "--proto", "=http,https", "--max-time", "60", "--create-dirs", "-o"].map(OsStr::new);
    let words = words.into_iter().chain([file.as_os_str(), "--".as_ref(), url.as_ref()]);
    let curl = cmd(curl, words).stdin_null().stdout_null().stderr_capture();
    let ran = curl.unchecked().run().map_err(|e| Error::io("starting curl", e))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(Error::new(Code::Network, said.trim()).in_file(Path::new(url)));
    }
    Ok(file.display().to_string())
}

/// Lists the text files below a directory that match a pattern. What git ignores and what is hidden is left out.
fn below(name: &str, directory: &str, pattern: &str) -> Result<Vec<String>> {
    let wrong = |e: ignore::Error| Error::usage(format!("not a glob: {e}")).in_file(Path::new(name));
    let mut globs = OverrideBuilder::new(directory);
    globs.add(&format!("/{pattern}")).map_err(wrong)?;
    let globs = globs.build().map_err(wrong)?;
    let mut walk = WalkBuilder::new(directory);
    let (mut names, mut others) = (Vec::new(), 0);
    for entry in walk.require_git(false).sort_by_file_name(Ord::cmp).build() {
        let entry = entry.map_err(|e| Error::io("listing", std::io::Error::other(e)).in_file(Path::new(name)))?;
        let file = entry.path();
        if !entry.file_type().is_some_and(|kind| kind.is_file()) || !globs.matched(file, false).is_whitelist() {
            continue;
        }
        if is_text(file)? {
            names.push(file.strip_prefix("./").unwrap_or(file).display().to_string());
        } else {
            others += 1;
        }
    }
    if others > 0 {
        to_stderr(&format!("cp-ask: {name}: files that are not text and are not sent: {others}\n"));
    }
    match names.len() {
        0 => Err(Error::not_found("no text files").in_file(Path::new(name))),
        1..=MOST => Ok(names),
        found => Err(Error::validation(format!("{found} files, the limit is {MOST}")).in_file(Path::new(name))),
    }
}

/// True if a file begins like a text. One that is longer than what is read is refused where it is put into the prompt.
fn is_text(file: &Path) -> Result<bool> {
    let mut head = Vec::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST).read_to_end(&mut head));
    read.map_err(|e| Error::io("reading", e).in_file(file))?;
    let valid = std::str::from_utf8(&head).map_or_else(|e| e.valid_up_to(), str::len);
    Ok((valid == head.len() || valid as u64 + 4 > LONGEST) && !head.contains(&0))
}

/// Returns the options of the loop. A list is rewritten to a directory, beside links to the executables of its tools.
pub(crate) fn tool_words(path: &Path, scratch: &Path) -> Result<Vec<String>> {
    if path.extension().is_none_or(|end| end != "json") {
        return Ok(vec![format!("--tools={}", path.display())]);
    }
    let wrong = |what: String| {
        let error = Error::usage(format!("not a list of tools: {what}")).in_file(path);
        error.hint(r#"each is {"name", "description", "parameters"}"#)
    };
    let listed: Value = serde_json::from_slice(&given::bytes(path, LONGEST)?).map_err(|e| wrong(e.to_string()))?;
    let listed = listed.get("tools").unwrap_or(&listed).as_array().ok_or_else(|| wrong("no array".to_owned()))?;
    let tools: Vec<&Value> = listed.iter().map(|tool| tool.get("function").unwrap_or(tool)).collect();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let list = scratch.join("tools.json");
    let write = || -> std::io::Result<()> {
        std::fs::create_dir(scratch.join("bin"))?;
        for name in &names {
            if let Some(file) = executable(name, path.parent().unwrap_or(Path::new(""))) {
                symlink(file.canonicalize()?, scratch.join("bin").join(name))?;
            }
        }
        std::fs::write(&list, json!(tools).to_string())
    };
    write().map_err(|e| Error::io("writing the list of tools", e))?;
    // An empty name allows no tool.
    Ok(vec![format!("--tools={}", list.display()), format!("--allow={}", names.join(","))])
}

/// Returns the executable of a tool: in `CP_TOOLS_DIR`, else in `bin` beside the list, else beside the list.
fn executable(name: &str, beside: &Path) -> Option<PathBuf> {
    let directory = variable("CP_TOOLS_DIR").map_or_else(|| beside.join("bin"), PathBuf::from);
    let places =
        [directory.join(name), directory.join(format!("{name}.sh")), beside.join("bin").join(name), beside.join(name)];
    let is_executable =
        |file: &PathBuf| file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    places.into_iter().find(is_executable)
}
