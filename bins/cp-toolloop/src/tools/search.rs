//! Where `--tools` points: the files there that may be tools.

use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use cp_ledger::format::line::Hash;
use memchr::memmem;
use serde_json::value::RawValue;

use crate::mcp::is_name;
use crate::tools::allowed::Allowed;
use crate::tools::candidate::Candidate;
use crate::tools::catalogue::Catalogue;
use crate::tools::description;

/// What a file must hold to be asked for its description.
const MARK: &[u8] = b"--describe";
/// Why a file without it is no tool.
const NO_DESCRIPTION: &str = "it neither answers --describe nor has a sidecar";
/// A larger file is not read: it is not a script.
const LARGEST: u64 = 64 << 20;

/// What may be a tool in a directory, in a JSON catalogue, or in one file.
pub(super) fn candidates(place: &Path, found: &mut Catalogue) -> Result<Vec<Candidate>> {
    let absent = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such directory or tool").in_file(place),
        _ => Error::io("looking for tools", e).in_file(place),
    };
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

/// One file as a candidate. `named`: the operator named the file itself, so it must be a tool.
fn candidate(file: &Path, named: bool, found: &mut Catalogue) -> Option<Candidate> {
    if !is_allowed(file, &found.allowed) {
        return None;
    }
    match examined(file) {
        Ok(Some(candidate)) => return Some(candidate),
        Ok(None) if !named => found.pass_over(file.display().to_string(), NO_DESCRIPTION),
        Ok(None) => found.leave_out(file.display().to_string(), NO_DESCRIPTION),
        Err(e) => found.leave_out(file.display().to_string(), e.message()),
    }
    None
}

/// A file with its hash and its sidecar; none if it neither answers --describe nor has a sidecar.
fn examined(file: &Path) -> Result<Option<Candidate>> {
    // A link is followed once: what is described, hashed and run is one file.
    let path = file.canonicalize()?;
    let bytes = read_small(&path)?;
    let described = sidecar_of(file).transpose()?;
    if described.is_none() && memmem::find(&bytes, MARK).is_none() {
        return Ok(None);
    }
    Ok(Some(Candidate { link: link_of(file, &path), path, sha256: Hash::of(&bytes).to_string(), described }))
}

/// Whether the file's name, or its name without extension, is one that may be called.
fn is_allowed(file: &Path, allowed: &Allowed) -> bool {
    let names = [file.file_name(), file.file_stem()];
    names.into_iter().flatten().filter_map(|name| name.to_str()).any(|name| allowed.allows(name))
}

/// Reads a JSON catalogue: a list of descriptions, whose executables are in `bin/` beside it, or beside it.
fn listed(file: &Path, found: &mut Catalogue) -> Result<Vec<Candidate>> {
    let bytes = read_small(file)?;
    let list: Vec<Box<RawValue>> = serde_json::from_slice(&bytes).map_err(|e| {
        Error::validation(format!("not a catalogue of tools: {e}"))
            .in_file(file)
            .hint("a catalogue is a JSON list of {name, description, parameters}")
    })?;
    let mut candidates = Vec::new();
    let beside = file.parent().unwrap_or(Path::new("/"));
    for described in list {
        let name = description::name_of(described.get()).unwrap_or_default();
        if !is_name(&name) {
            found.leave_out(file.display().to_string(), format!("`{name}` is not a valid name for a tool"));
            continue;
        }
        if !found.allowed.allows(&name) {
            continue;
        }
        let places = [beside.join("bin").join(&name), beside.join(&name)];
        let there = places.iter().find(|path| is_executable(path));
        let Some((file, path)) = there.and_then(|file| Some((file, file.canonicalize().ok()?))) else {
            found.leave_out(name, "the catalogue's executable is missing");
            continue;
        };
        let sha256 = Hash::of(&read_small(&path)?).to_string();
        let link = link_of(file, &path);
        candidates.push(Candidate { path, link, sha256, described: Some(described.get().to_owned()) });
    }
    // Its executables may use what is beside it.
    found.look_in(beside);
    Ok(candidates)
}

/// A file as it was found, if it is a link to one that has another name.
fn link_of(file: &Path, path: &Path) -> Option<PathBuf> {
    (file.file_name() != path.file_name()).then(|| file.to_owned())
}

/// The description beside a file: `NAME.json`, with or without the file's own extension.
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
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
