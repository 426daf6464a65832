//! Executable tools: the files that `--tools` names, their descriptions, and scripts for links.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cp_common::context::given::unreadable;
use cp_common::coprocess::ask_each;
use cp_common::home::config::variable;
use cp_common::home::{make_directory, write_whole};
use cp_common::wire::record::Record;
use cp_common::{Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_mcp_wire::Offers;
use cp_servers::is_name;
use memchr::memmem;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::tools::catalogue::{Broken, Catalogue};
use crate::tools::tool::{Allowed, Candidate, Executable, Origin, Tool};
use crate::tools::{builtin, description};

/// The text that a file must contain to be started with `--describe`.
const MARK: &[u8] = b"--describe";
/// The reason to leave out a file without a description.
const NO_DESCRIPTION: &str = "it neither answers --describe nor has a sidecar";
/// The largest file that is read, in bytes.
const LARGEST: u64 = 64 << 20;

impl Catalogue {
    /// Resolves all tools: of directories, executables and JSON catalogues, of servers, and the built-in ones. A file
    /// without a sidecar runs once with `--describe`, in the tightest sandbox.
    pub(crate) fn of(places: &[PathBuf], allowed: &Allowed, offers: Offers, context: &Context) -> Result<Self> {
        let mut found = Self { allowed: allowed.clone(), ..Self::default() };
        let mut candidates = Vec::new();
        for place in places {
            candidates.extend(candidates_in(place, &mut found)?);
        }
        refuse_same_files(&candidates)?;
        // If a name is in several directories, the first directory is used.
        for link in candidates.iter().filter_map(|candidate| candidate.file.link.as_ref()) {
            found.directories.insert(0, write_link_script(link, context)?);
        }
        for Candidate { file, .. } in &candidates {
            let files = file.link.iter().chain([&file.path]);
            files.filter_map(|file| file.parent()).for_each(|directory| found.add_directory(directory));
        }
        found.add_executables(&candidates, context);
        found.add_offers(offers)?;
        builtin::all(allowed.read_only)?.into_iter().for_each(|tool| found.add(tool));
        Ok(found)
    }

    /// Adds the candidates that have a valid description.
    fn add_executables(&mut self, candidates: &[Candidate], context: &Context) {
        let asked =
            candidates.iter().filter(|candidate| candidate.described.is_none()).map(|candidate| candidate.file.name());
        let mut answers = describe_files(&asked.collect::<Vec<_>>(), &self.directories, context).into_iter();
        for Candidate { file, described } in candidates {
            let described = described.clone().map(Ok).or_else(|| answers.next());
            let tool = described.map(|text| text.and_then(|text| description::of_file(&text, file)));
            match tool {
                Some(Ok(tool)) => {
                    let is_silent = tool.description.trim().is_empty();
                    let notice = || format!("{}: `description` is missing: a model chooses by it", tool.name);
                    self.notices.extend(is_silent.then(notice));
                    self.add(tool);
                }
                Some(Err(why)) => self.leave_out(file.path.display().to_string(), why),
                None => {}
            }
        }
    }
}

/// The candidates in a directory or JSON catalogue, or of one file.
fn candidates_in(place: &Path, found: &mut Catalogue) -> Result<Vec<Candidate>> {
    let absent = |e| unreadable(e, "directory or tool", place);
    let place = place.canonicalize().map_err(absent)?;
    if place.is_dir() {
        let catalogue = place.join("functions.json");
        if catalogue.is_file() {
            return listed(&catalogue, found);
        }
        let listing = std::fs::read_dir(&place).map_err(absent)?;
        let mut files: Vec<PathBuf> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        let executables = files.iter().filter(|file| is_executable(file));
        return Ok(executables.filter_map(|file| candidate(file, false, found)).collect());
    }
    if place.extension().is_some_and(|extension| extension == "json") {
        return listed(&place, found);
    }
    if !is_executable(&place) {
        return Err(Error::validation("not an executable").in_file(&place).hint("chmod +x makes it one"));
    }
    Ok(candidate(&place, true, found).into_iter().collect())
}

/// One file as a candidate. If `named`, the command line names the file itself, so it must be a tool.
fn candidate(file: &Path, named: bool, found: &mut Catalogue) -> Option<Candidate> {
    if !is_allowed(file, &found.allowed) {
        return None;
    }
    let (why, is_tool) = match examined(file, None) {
        Ok(Some(candidate)) => return Some(candidate),
        Ok(None) => (NO_DESCRIPTION.to_owned(), named),
        Err(e) => (e.message().to_owned(), true),
    };
    found.broken.push(Broken { left_out: file.display().to_string(), why, is_tool });
    None
}

/// A file with its hash and its description, else its sidecar; `None` if it has neither that nor `--describe`.
fn examined(file: &Path, described: Option<String>) -> Result<Option<Candidate>> {
    // The link is resolved once, so that the same file is described, hashed and run.
    let path = file.canonicalize()?;
    let bytes = read_small(&path)?;
    let described = described.map_or_else(|| sidecar_of(file).transpose(), |described| Ok(Some(described)))?;
    if described.is_none() && memmem::find(&bytes, MARK).is_none() {
        return Ok(None);
    }
    let link = (file.file_name() != path.file_name()).then(|| file.to_owned());
    let sha256 = Hash::of(&bytes).to_string();
    Ok(Some(Candidate { file: Executable { path, link, sha256 }, described }))
}

/// True if the name of the file, with or without its extension, is allowed.
fn is_allowed(file: &Path, allowed: &Allowed) -> bool {
    let names = [file.file_name(), file.file_stem()];
    names.into_iter().flatten().filter_map(|name| name.to_str()).any(|name| allowed.allows(name))
}

/// Reads a JSON catalogue: a list of descriptions, whose executables are in `CP_TOOLS_DIR`, in the same directory or in
/// its `bin/`.
fn listed(file: &Path, found: &mut Catalogue) -> Result<Vec<Candidate>> {
    let bytes = read_small(file)?;
    let list: Vec<Box<RawValue>> = serde_json::from_slice(&bytes).map_err(|e| {
        Error::validation(format!("not a catalogue of tools: {e}"))
            .in_file(file)
            .hint("a catalogue is a JSON list of {name, description, parameters}")
    })?;
    let mut candidates = Vec::new();
    let beside = file.parent().unwrap_or(Path::new("/"));
    let named = variable("CP_TOOLS_DIR").map(PathBuf::from);
    for described in list {
        let name = description::name_of(described.get()).unwrap_or_default();
        if !is_name(&name) {
            found.leave_out(file.display().to_string(), format!("`{name}` is not a valid name for a tool"));
            continue;
        }
        if !found.allowed.allows(&name) {
            continue;
        }
        let own = named.iter().flat_map(|named| [named.join(&name), named.join(format!("{name}.sh"))]);
        let mut places = own.chain([beside.join("bin").join(&name), beside.join(&name)]);
        match places.find(|path| is_executable(path)) {
            Some(file) => candidates.extend(examined(&file, Some(described.get().to_owned()))?),
            None => found.leave_out(name, "the catalogue's executable is missing"),
        }
    }
    // The executables may use other files of that directory.
    found.add_directory(beside);
    Ok(candidates)
}

/// The sidecar of a file: `NAME.json`, with or without the extension of the file.
fn sidecar_of(file: &Path) -> Option<Result<String>> {
    let mut whole = file.as_os_str().to_owned();
    whole.push(".json");
    let sidecar = [PathBuf::from(whole), file.with_extension("json")].into_iter().find(|path| path.is_file())?;
    let utf8 = |bytes| String::from_utf8(bytes).map_err(|_| Error::validation("its sidecar is not UTF-8"));
    Some(read_small(&sidecar).and_then(utf8))
}

fn read_small(path: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::io("reading", e).in_file(path);
    if path.metadata().map_err(failed)?.len() > LARGEST {
        return Err(Error::validation("too large for a tool").in_file(path));
    }
    std::fs::read(path).map_err(failed)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The output of each file for `--describe`, in order, or the error.
fn describe_files(names: &[String], directories: &[PathBuf], context: &Context) -> Vec<Result<String, String>> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut words = vec![OsString::from("--rows")];
    words.extend(directories.iter().flat_map(|directory| ["--tools".into(), directory.into()]));
    let row = |name: &String| json!({"tool": name, "operation": "describe"}).to_string() + "\n";
    let rows: String = names.iter().map(row).collect();
    let mut answers = Vec::new();
    let outcome = ask_each::<Value>("cp-exec", &words, rows.as_bytes(), context.handed_on(), &mut |line| {
        if let Some(Ok(record)) = line.map(Record::parse) {
            let stdout = |data: &Value| data["stdout"].as_str().unwrap_or_default().to_owned();
            let answer = if record.ok { record.read().map(|data| stdout(&data)) } else { Err(record.failure()) };
            answers.push(answer.map_err(|error| error.message().to_owned()));
        }
        Ok(())
    });
    // If cp-exec reads no more input, its last answer has the reason.
    let why = outcome.err().map_or("cp-exec did not answer".to_owned(), |error| error.message().to_owned());
    answers.resize(names.len(), Err(why));
    answers
}

/// Writes the script of a link, and returns its directory, which is the same for every run. cp-exec starts a file by
/// its own name, so a script replaces each link that has another name than its file.
pub(crate) fn write_link_script(link: &Path, context: &Context) -> Result<PathBuf> {
    let script = script_of(link, context)?;
    let word = link.to_str().ok_or_else(|| Error::validation("the link's path is not UTF-8").in_file(link))?;
    let directory = script.parent().unwrap_or(&script).to_owned();
    let text = format!("#!/bin/sh\nexec '{}' \"$@\"\n", word.replace('\'', r"'\''"));
    if std::fs::read(&script).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(directory);
    }
    make_directory(&directory)?;
    write_whole(&script, text.as_bytes())?;
    let executable = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&script, executable)
        .map_err(|e| Error::io("making the script for a link", e).in_file(&script))?;
    Ok(directory)
}

/// The output of a tool, with the path of the link in place of the path of its script.
pub(crate) fn restore_link_path(answer: String, tool: &Tool, context: &Context) -> String {
    let Origin::Executable(Executable { link: Some(link), .. }) = &tool.origin else { return answer };
    let Ok(script) = script_of(link, context) else { return answer };
    answer.replace(&*script.to_string_lossy(), &link.to_string_lossy())
}

fn script_of(link: &Path, context: &Context) -> Result<PathBuf> {
    let name = link.file_name().ok_or_else(|| Error::validation("the link has no name").in_file(link))?;
    let hash = Hash::of(link.as_os_str().as_encoded_bytes());
    Ok(context.home.path("links").join(&hash.hex()[..16]).join(name))
}

/// Refuses two files of one name, because cp-exec finds a tool by the name of its file.
fn refuse_same_files(candidates: &[Candidate]) -> Result<()> {
    let mut seen: BTreeMap<String, &Path> = BTreeMap::new();
    for Candidate { file, .. } in candidates {
        if let Some(other) = seen.insert(file.name(), &file.path).filter(|path| *path != file.path) {
            return Err(Error::validation(format!("two tools are called {}", file.name()))
                .with("files", vec![other.display().to_string(), file.path.display().to_string()])
                .hint("give --tools only one of the files, or rename one"));
        }
    }
    Ok(())
}
