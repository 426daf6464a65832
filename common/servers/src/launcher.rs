//! Programs that start a server, such as interpreters and fetchers of packages: what they start names the server. Also
//! the errors of servers that do not start in the sandbox, with a line of policy or another command.

use std::path::Path;
use std::sync::LazyLock;

use cp_common::{Code, Error, Result, coprocess};
use serde::Deserialize;

use crate::policy::{LONGEST_NAME, Sandbox, Spec, is_in_names};

#[derive(Deserialize)]
struct Starters {
    launcher: Vec<Starter>,
}

/// Programs that start another one, as `launchers.toml` describes them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Starter {
    names: Vec<String>,
    verbs: Vec<String>,
    named_by: Vec<String>,
    with_value: Vec<String>,
    of_project: Vec<String>,
    /// If they fetch packages, how to have one without a network.
    install: Option<String>,
}

static STARTERS: LazyLock<Starters> = LazyLock::new(|| {
    toml::from_str(include_str!("launchers.toml")).unwrap_or_else(|error| unreachable!("data of this program: {error}"))
});

/// What a command starts.
struct Started<'a> {
    /// The file, module, package or image.
    named: &'a str,
    /// The program of a package, if the command names both.
    program: Option<&'a str>,
    /// If the package would be fetched, how to have it without a network.
    install: Option<&'static str>,
}

/// What a command starts through another program, if it does.
fn started(argv: &[String]) -> Option<Started<'_>> {
    let (program, arguments) = argv.split_first()?;
    let called = Path::new(program).file_name()?.to_str()?;
    let bare = called.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
    let is_named = |starter: &&Starter| starter.names.iter().any(|name| [called, bare].contains(&name.as_str()));
    let starter = STARTERS.launcher.iter().find(is_named)?;
    let is_in = |list: &[String], word: &str| list.iter().any(|listed| listed == word);
    let (mut words, mut named, mut operand) = (arguments.iter().map(String::as_str), None, None);
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        if is_in(&starter.named_by, option) {
            named = named.or(value.or_else(|| words.next()));
            // What follows a module are its arguments.
            if starter.named_by == ["-m"] {
                break;
            }
        } else if is_in(&starter.with_value, word) {
            words.next();
        } else if !word.starts_with('-') && !is_in(&starter.verbs, word) {
            operand = Some(word);
            break;
        }
    }
    let program = named.and(operand);
    let is_of_project = arguments.first().is_some_and(|verb| is_in(&starter.of_project, verb))
        && !arguments.iter().any(|word| word == "--with");
    let install = starter.install.as_deref().filter(|_| !is_of_project);
    Some(Started { named: named.or(operand)?, program, install })
}

/// The name of a server that no option names: that of the file, module or package that its command starts, without a
/// version or an ending.
pub fn name_of(argv: &[String]) -> Option<String> {
    let named = started(argv).map_or_else(|| argv.first().map(String::as_str), |started| Some(started.named))?;
    let at = named.rfind('/').map_or(0, |slash| slash + 1);
    let last = named[at..].split(['@', ':']).find(|part| !part.is_empty())?;
    let stem = Path::new(last).file_stem()?.to_str()?;
    // Many servers have their program in a file of a common name.
    let above = || Path::new(named).parent()?.file_name()?.to_str().filter(|above| *above != "dist");
    let common = ["index", "main", "server", "cli", "__main__"].contains(&stem);
    let whole = above().filter(|_| common).map_or_else(|| stem.to_owned(), |above| format!("{above}-{stem}"));
    let name: String =
        whole.chars().map(|sign| if sign.is_ascii() && is_in_names(sign as u8) { sign } else { '-' }).collect();
    let name: String = name.trim_matches('-').chars().take(LONGEST_NAME).collect();
    (!name.is_empty()).then_some(name)
}

/// The error of a server whose package would have to be fetched, if it has no network and the package is not installed.
pub(crate) fn check_fetch(spec: &Spec, base: &Path) -> Result<()> {
    let fetched = started(&spec.argv).filter(|_| spec.table.network.is_closed());
    let Some(Started { named, program, install: Some(install) }) = fetched else { return Ok(()) };
    // The package without its version.
    let version = named.char_indices().skip(1).find(|(_, sign)| *sign == '@');
    let package = version.map_or(named, |(at, _)| &named[..at]);
    let installed = Path::new("node_modules").join(package);
    if base.ancestors().any(|directory| directory.join(&installed).is_dir()) {
        return Ok(());
    }
    let called = Path::new(&spec.argv[0]).file_name().unwrap_or_default().to_string_lossy();
    let advice = install.replace("{package}", named).replace("{program}", program.unwrap_or(package));
    let message = format!("{called} cannot fetch {named}, because the server has no network; {advice}");
    Err(Error::new(Code::Forbidden, message))
}

/// The hint for a server that failed with this message: it may name a file that the sandbox hides.
fn hint(spec: &Spec, message: &str) -> Option<String> {
    let place = format!("in [mcp.{}] of the policy", spec.name);
    let refusals = ["Permission denied", "No such file", "not found", "EACCES", "ENOENT"];
    let is_refused = refusals.iter().any(|refusal| message.contains(refusal));
    let words = message.split(|sign: char| sign.is_whitespace() || "'\"`:,;()[]".contains(sign));
    let mut paths =
        words.filter(|word| word.starts_with('/') && spec.argv.first().is_none_or(|program| program != word));
    let hidden = paths.find(|path| is_refused && Path::new(path).exists());
    let needed = match hidden.map(|path| (path, path.rsplit_once('/').unwrap_or_default().0)) {
        None => format!("what it needs in the sandbox is read, write, env or network {place}"),
        // A program seldom comes alone.
        Some((path, beside)) if coprocess::find(path).is_ok() => {
            format!("the sandbox hides that program: add \"{beside}/**\" to execute in [paths] of the policy")
        }
        Some((path, _)) => format!("the sandbox hides that file: read = [\"{path}\"] {place}"),
    };
    (spec.table.sandbox == Sandbox::Tool).then_some(needed)
}

/// The error of a required server, with a hint. It is not fatal, because the failure of a server does not end the run.
pub fn unavailable(error: &Error, spec: &Spec) -> Error {
    let code = if error.code() == Code::Io { Code::Server } else { error.code() };
    let failed = Error::new(code, error.message()).with("server", &*spec.name).with("command", spec.argv.clone());
    let hint = error.hint_text().map(ToOwned::to_owned).or_else(|| hint(spec, error.message()));
    hint.into_iter().fold(failed, Error::hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Table;

    #[test]
    fn server_is_named_by_what_its_command_starts() {
        for (line, name) in [
            ("/opt/x/files", "files"),
            ("./srv.py", "srv"),
            ("/w/my server.v2.py", "my-server-v2"),
            ("node one.js", "one"),
            ("node --env-file .env dist/two.mjs --port 1", "two"),
            ("/usr/bin/node dist/index.js", "index"),
            ("node /w/notes/index.js", "notes-index"),
            ("python3 -m pkg.server", "pkg"),
            ("python3.12 -u srv.py", "srv"),
            ("npx -y @scope/name@1", "name"),
            ("npx --package=@scope/all name", "all"),
            ("npm exec -- @scope/name", "name"),
            ("uvx name@1.2", "name"),
            ("uvx --from git-pkg name", "git-pkg"),
            ("uv tool run name", "name"),
            ("docker run -i --rm -e KEY ghcr.example/org/image:1", "image"),
        ] {
            let argv: Vec<String> = if line.contains("my server") {
                vec![line.to_owned()]
            } else {
                line.split(' ').map(str::to_owned).collect()
            };
            assert_eq!(name_of(&argv).as_deref(), Some(name), "{line}");
        }
        assert_eq!(name_of(&["../".to_owned()]), None);
    }

    #[test]
    fn failure_has_hint_with_policy_line_or_command() {
        let hint_of = |line: &str, policy: &str, place: &Path| {
            let argv = line.split(' ').map(str::to_owned).collect();
            let spec = Spec { argv, table: toml::from_str(policy).unwrap(), ..Spec::default() };
            let refused = check_fetch(&spec, place).err();
            refused.map(|e| e.message().to_owned())
        };
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("node_modules/@a/b")).unwrap();
        for (line, ending) in [
            ("/usr/bin/npx -y @a/b@1 x", Some("`npm install @a/b@1`; then the same command starts it")),
            ("uvx srv@1", Some("`uv tool install srv@1`; then start \"$(uv tool dir --bin)/srv\" instead")),
            ("uvx --from pkg srv x", Some("`uv tool install pkg`; then start \"$(uv tool dir --bin)/srv\" instead")),
            ("uv run srv.py", None),
            ("node srv.js", None),
            ("npm run srv", None),
        ] {
            let hint = hint_of(line, "", Path::new("/nowhere"));
            assert_eq!(hint.is_some(), ending.is_some(), "{line}");
            assert!(hint.is_none_or(|hint| hint.ends_with(ending.unwrap())), "{line}");
        }
        assert_eq!(hint_of("npx -y @a/b@1", "", &place.path().join("below")), None);
        assert_eq!(hint_of("npx -y @a/b@1", "network = [\"r.example\"]", Path::new("/nowhere")), None);
        let hinted = |message: &str, sandbox| {
            let table = Table { sandbox, ..Table::default() };
            let spec = Spec { name: "s".into(), table, ..Spec::default() };
            unavailable(&Error::new(Code::Server, message), &spec).hint_text().map(ToOwned::to_owned)
        };
        let hidden = hinted("open '/etc/passwd': Permission denied", Sandbox::Tool).unwrap();
        assert!(hidden.contains("read = [\"/etc/passwd\"] in [mcp.s]"), "{hidden}");
        let program = hinted("/x/sh: line 1: /bin/cat: Permission denied", Sandbox::Tool).unwrap();
        assert!(program.contains("add \"/bin/**\" to execute in [paths]"), "{program}");
        assert!(hinted("/etc/passwd is strange", Sandbox::Tool).unwrap().contains("network in [mcp.s]"));
        assert_eq!(hinted("it ended", Sandbox::None), None);
    }
}
