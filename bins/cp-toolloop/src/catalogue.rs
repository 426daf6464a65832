//! Which tools there are: what `--tools` names, resolved, described, and narrowed by `--allow`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::{Context, Error, Result, json};
use cp_ledger::format::line::Hash;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::describe;
use crate::mcp::{Ground, Offer, Servers, Spec};
use crate::tool::{Hints, Origin, Tool, is_name};
use crate::{arguments, builtin, links};

/// What a file must hold to be asked for its description.
const MARK: &[u8] = b"--describe";
/// The schema of a tool that names none.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;
/// A larger file is no tool of this kind.
const LARGEST: u64 = 64 << 20;

/// Where tools come from, as the command line says it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Directories, executables and JSON catalogues.
    pub(crate) places: Vec<PathBuf>,
    /// MCP servers.
    pub(crate) mcp: Vec<Spec>,
    /// Whether agents may be started.
    pub(crate) agents: bool,
    /// The names that may be called; empty: all.
    pub(crate) allow: Vec<String>,
}

/// The tools that resolved, and what is wrong with the others.
#[derive(Default)]
pub(crate) struct Catalogue {
    /// The tools, executables first, in the order of their places and names.
    pub(crate) tools: Vec<Tool>,
    /// What was left out, and why.
    pub(crate) broken: Vec<Broken>,
    /// The directories that cp-exec finds them in.
    pub(crate) directories: Vec<PathBuf>,
    /// The servers that were started to ask them.
    pub(crate) servers: Servers,
}

/// A tool that was left out.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// The file or name.
    pub(crate) what: String,
    /// Why.
    pub(crate) why: String,
}

/// A description, as a tool, a sidecar or a JSON catalogue gives it.
#[derive(Clone, Debug, Deserialize)]
struct Description {
    name: Option<String>,
    #[serde(default, rename = "description")]
    words: String,
    #[serde(alias = "input_schema")]
    parameters: Option<Box<RawValue>>,
    #[serde(default)]
    idempotent: bool,
    #[serde(default)]
    approve: bool,
    #[serde(default)]
    timeout: Option<f64>,
}

/// A file that may be a tool, and what is known of it before it is asked.
struct Candidate {
    path: PathBuf,
    /// The link that it was found as, where that has another name.
    link: Option<PathBuf>,
    sha256: String,
    described: Option<String>,
}

impl Sources {
    /// Whether a name may be called.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|allowed| allowed == name)
    }

    /// Resolves everything. Each file that has to be asked runs once, in the tightest sandbox.
    pub(crate) fn resolve(&self, context: &Context) -> Result<Catalogue> {
        let mut found = Catalogue::default();
        let mut candidates = Vec::new();
        for place in &self.places {
            self.look_at(place, &mut candidates, &mut found)?;
        }
        refuse_same_files(&candidates)?;
        // Where a name is in several directories, the first has it.
        for link in candidates.iter().filter_map(|candidate| candidate.link.as_ref()) {
            found.directories.insert(0, links::stand_in(link, context)?);
        }
        for candidate in &candidates {
            if let Some(link) = &candidate.link {
                found.look_in(link.parent().unwrap_or(link));
            }
            found.look_in(candidate.path.parent().unwrap_or(&candidate.path));
        }
        let asked: Vec<String> =
            candidates.iter().filter(|candidate| candidate.described.is_none()).map(Candidate::file_name).collect();
        let mut answers = describe::ask(&asked, &found.directories, context)?.into_iter();
        for candidate in candidates {
            let described = match &candidate.described {
                Some(described) => Ok(described.clone()),
                None => answers.next().unwrap_or_else(|| Err("was not asked".to_owned())),
            };
            match described.and_then(|text| tool_of(&text, &candidate)) {
                Ok(tool) => found.add(tool, self),
                Err(why) => found.broken.push(Broken { what: candidate.path.display().to_string(), why }),
            }
        }
        if !self.mcp.is_empty() {
            let ground = Ground::of(context)?;
            self.mcp.iter().for_each(|spec| found.ask(spec, &ground, self));
        }
        for tool in builtin::all()?.into_iter().filter(|tool| self.agents || tool.name != builtin::AGENT_NAME) {
            found.add(tool, self);
        }
        Ok(found)
    }

    fn look_at(&self, place: &Path, candidates: &mut Vec<Candidate>, found: &mut Catalogue) -> Result<()> {
        let absent = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("no such directory or tool").in_file(place),
            _ => Error::io("looking for tools", e).in_file(place),
        };
        let place = place.canonicalize().map_err(absent)?;
        if place.is_dir() {
            let catalogue = place.join("functions.json");
            if catalogue.is_file() {
                return self.read_catalogue(&catalogue, candidates, found);
            }
            let listing = std::fs::read_dir(&place).map_err(absent)?;
            let mut files: Vec<PathBuf> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
            files.sort();
            for file in files.into_iter().filter(|file| is_executable(file)) {
                self.consider(&file, false, candidates, found);
            }
            return Ok(());
        }
        if place.extension().is_some_and(|extension| extension == "json") {
            return self.read_catalogue(&place, candidates, found);
        }
        if !is_executable(&place) {
            return Err(Error::validation("not an executable").in_file(&place).hint("chmod +x makes it one"));
        }
        self.consider(&place, true, candidates, found);
        Ok(())
    }

    /// Looks at one file. `named`: the operator named the file itself, so it must be a tool.
    fn consider(&self, file: &Path, named: bool, candidates: &mut Vec<Candidate>, found: &mut Catalogue) {
        if !self.names(file) {
            return;
        }
        let mut broken = |why: String| found.broken.push(Broken { what: file.display().to_string(), why });
        // A link is followed once: what is described, hashed and run is one file.
        let path = match file.canonicalize() {
            Ok(path) => path,
            Err(e) => return broken(Error::from(e).message().to_owned()),
        };
        let bytes = match read_small(&path) {
            Ok(bytes) => bytes,
            Err(e) => return broken(e.message().to_owned()),
        };
        let described = match sidecar_of(file) {
            None => None,
            Some(Ok(text)) => Some(text),
            Some(Err(why)) => return broken(why),
        };
        if described.is_none() && memmem::find(&bytes, MARK).is_none() {
            if named {
                broken("it neither knows --describe nor has a sidecar".to_owned());
            }
            return;
        }
        let link = link_of(file, &path);
        candidates.push(Candidate { path, link, sha256: Hash::of(&bytes).to_string(), described });
    }

    /// Whether the file's name, or its name without extension, is one that may be called.
    fn names(&self, file: &Path) -> bool {
        let is_allowed =
            |name: Option<&std::ffi::OsStr>| name.and_then(|name| name.to_str()).is_some_and(|n| self.allows(n));
        is_allowed(file.file_name()) || is_allowed(file.file_stem())
    }

    /// Reads a JSON catalogue: a list of descriptions, whose executables lie in `bin/` beside it, or beside it.
    fn read_catalogue(&self, file: &Path, candidates: &mut Vec<Candidate>, found: &mut Catalogue) -> Result<()> {
        let bytes = read_small(file)?;
        let list: Vec<Box<RawValue>> = serde_json::from_slice(&bytes).map_err(|e| {
            Error::validation(format!("not a catalogue of tools: {e}"))
                .in_file(file)
                .hint("a catalogue is a JSON list of {name, description, parameters}")
        })?;
        let beside = file.parent().unwrap_or(Path::new("/"));
        for described in list {
            let name =
                serde_json::from_str::<Description>(described.get()).ok().and_then(|d| d.name).unwrap_or_default();
            if !is_name(&name) {
                let why = format!("`{name}` is no name for a tool");
                found.broken.push(Broken { what: file.display().to_string(), why });
                continue;
            }
            if !self.allows(&name) {
                continue;
            }
            let places = [beside.join("bin").join(&name), beside.join(&name)];
            let there = places.iter().find(|path| is_executable(path));
            let Some((file, path)) = there.and_then(|file| Some((file, file.canonicalize().ok()?))) else {
                found.broken.push(Broken { what: name, why: "the catalogue's executable is missing".to_owned() });
                continue;
            };
            let sha256 = Hash::of(&read_small(&path)?).to_string();
            let link = link_of(file, &path);
            candidates.push(Candidate { path, link, sha256, described: Some(described.get().to_owned()) });
        }
        // What its executables are made of lies around it.
        found.look_in(beside);
        Ok(())
    }
}

impl Catalogue {
    /// Lets cp-exec look in a directory.
    fn look_in(&mut self, directory: &Path) {
        if !self.directories.iter().any(|known| known == directory) {
            self.directories.push(directory.to_owned());
        }
    }

    /// Adds a tool if its name may be called and is free.
    fn add(&mut self, tool: Tool, sources: &Sources) {
        if !sources.allows(&tool.name) {
            return;
        }
        if self.tools.iter().any(|there| there.name == tool.name) {
            let why = "the name is taken by another tool".to_owned();
            self.broken.push(Broken { what: tool.name, why });
            return;
        }
        self.tools.push(tool);
    }

    /// Adds the tools of a server. A name that is taken is told apart by the server's.
    fn ask(&mut self, spec: &Spec, ground: &Ground, sources: &Sources) {
        let offers = match self.servers.offers(spec, ground) {
            Ok(offers) => offers,
            Err(e) => {
                return self.broken.push(Broken { what: format!("server {}", spec.name), why: e.message().to_owned() });
            }
        };
        for offer in offers {
            let is_taken =
                |name: &str| builtin::NAMES.contains(&name) || self.tools.iter().any(|there| there.name == name);
            let told_apart = format!("{}_{}", spec.name, offer.name);
            // Who names it with the server's name means it even where the other one is not there.
            let is_meant = !sources.allows(&offer.name) && sources.allows(&told_apart);
            let name = if is_meant || is_taken(&offer.name) { told_apart } else { offer.name.clone() };
            if !sources.allows(&name) {
                continue;
            }
            match tool_of_server(name, offer, &spec.name) {
                Ok(tool) => self.add(tool, sources),
                Err((what, why)) => self.broken.push(Broken { what, why }),
            }
        }
    }

    /// Says what was left out.
    pub(crate) fn report(&self, context: &Context) {
        for broken in &self.broken {
            context.warn(&format!("{} is left out: {}", broken.what, broken.why));
        }
    }
}

impl Candidate {
    fn file_name(&self) -> String {
        let called = self.link.as_ref().unwrap_or(&self.path);
        called.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

/// A file as it was found, if it is a link to one that has another name.
fn link_of(file: &Path, path: &Path) -> Option<PathBuf> {
    (file.file_name() != path.file_name()).then(|| file.to_owned())
}

/// cp-exec finds a tool by its file's name: two files of one name would be one tool.
fn refuse_same_files(candidates: &[Candidate]) -> Result<()> {
    let mut seen: BTreeMap<String, &Path> = BTreeMap::new();
    for candidate in candidates {
        if let Some(other) = seen.insert(candidate.file_name(), &candidate.path).filter(|path| *path != candidate.path)
        {
            let name = candidate.file_name();
            return Err(Error::validation(format!("two tools are called {name}"))
                .with("files", vec![other.display().to_string(), candidate.path.display().to_string()])
                .hint("name the one that is meant, or rename one"));
        }
    }
    Ok(())
}

fn tool_of(text: &str, candidate: &Candidate) -> Result<Tool, String> {
    json::check(text.as_bytes()).map_err(|fault| format!("its description is not JSON: {fault}"))?;
    let described: Description = serde_json::from_str(text)
        .map_err(|e| format!("its description is not {{name, description, parameters}}: {e}"))?;
    let stem =
        candidate.link.as_ref().unwrap_or(&candidate.path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = described.name.or(stem).unwrap_or_default();
    if !is_name(&name) {
        return Err(format!("`{name}` is no name for a tool: 1 to 64 letters, digits, _ and -"));
    }
    if builtin::NAMES.contains(&name.as_str()) || builtin::NAMES.contains(&candidate.file_name().as_str()) {
        return Err("its name is that of a built-in tool".to_owned());
    }
    let schema = described.parameters.as_deref().map_or(NO_ARGUMENTS, RawValue::get);
    let input_schema = on_one_line(schema)?;
    arguments::compile(&input_schema).map_err(|e| e.message().to_owned())?;
    let Candidate { path, link, sha256, .. } = candidate;
    let origin = Origin::Executable { path: path.clone(), link: link.clone(), sha256: sha256.clone() };
    let timeout =
        described.timeout.filter(|seconds| seconds.is_finite() && *seconds > 0.0).map(|seconds| seconds.min(86_400.0));
    let hints = Hints { idempotent: described.idempotent, approve: described.approve, timeout };
    Ok(Tool { name, description: described.words, input_schema, origin, hints })
}

fn tool_of_server(name: String, offer: Offer, server: &str) -> Result<Tool, (String, String)> {
    let what = format!("{server}: {name}");
    if !is_name(&name) {
        return Err((what, "no name for a tool: 1 to 64 letters, digits, _ and -".to_owned()));
    }
    let schema = offer.input_schema.as_deref().map_or(NO_ARGUMENTS, RawValue::get);
    let checked = on_one_line(schema).and_then(|schema| match arguments::compile(&schema) {
        Ok(_) => Ok(schema),
        Err(e) => Err(e.message().to_owned()),
    });
    let origin = Origin::Mcp { server: server.to_owned(), tool: offer.name };
    match checked {
        Ok(input_schema) => {
            Ok(Tool { name, description: offer.description, input_schema, origin, hints: Hints::default() })
        }
        Err(why) => Err((what, why)),
    }
}

/// A schema in normal form: people write theirs over several lines, and a record is one.
fn on_one_line(schema: &str) -> Result<Box<RawValue>, String> {
    let mut text = Vec::with_capacity(schema.len());
    json::normalize(schema.as_bytes(), &mut text).map_err(|fault| format!("its schema is not JSON: {fault}"))?;
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    RawValue::from_string(text).map_err(|e| e.to_string())
}

/// The description that lies beside a file: `NAME.json`, with or without the file's own extension.
fn sidecar_of(file: &Path) -> Option<Result<String, String>> {
    let mut whole = file.as_os_str().to_owned();
    whole.push(".json");
    let sidecar = [PathBuf::from(whole), file.with_extension("json")].into_iter().find(|path| path.is_file())?;
    let text = read_small(&sidecar).map_err(|e| e.message().to_owned());
    Some(text.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "its sidecar is not UTF-8".to_owned())))
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
