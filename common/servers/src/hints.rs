//! Errors of servers that do not start in the sandbox, with a line of policy or another command.

use std::path::Path;

use cp_common::{Code, Error, Result};

use crate::launcher::{Started, started};
use crate::policy::Sandbox;
use crate::spec::Spec;

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
    Err(Error::new(
        Code::Forbidden,
        format!("{called} cannot fetch {named}, because the server has no network; {advice}"),
    ))
}

/// The hint for a server that failed with this message: it may name a file that the sandbox hides.
fn hint(spec: &Spec, message: &str) -> Option<String> {
    let place = format!("in [mcp.{}] of the policy", spec.name);
    let is_refused =
        ["Permission denied", "No such file", "EACCES", "ENOENT"].iter().any(|what| message.contains(what));
    let words = message.split(|sign: char| sign.is_whitespace() || "'\"`:,;()[]".contains(sign));
    let mut paths =
        words.filter(|word| word.starts_with('/') && spec.argv.first().is_none_or(|program| program != word));
    let hidden = paths.find(|path| is_refused && Path::new(path).exists());
    let needed = hidden.map_or_else(
        || format!("what it needs in the sandbox is read, write, env or network {place}"),
        |path| format!("the sandbox hides that file: read = [\"{path}\"] {place}"),
    );
    (spec.table.sandbox == Sandbox::Tool).then_some(needed)
}

/// The error of a required server, with a hint. It is not fatal, because the failure of a server does not end the run.
pub fn unavailable(error: &Error, spec: &Spec) -> Error {
    let code = if error.code() == Code::Io { Code::Server } else { error.code() };
    let failed =
        Error::new(code, error.message()).with("server", spec.name.as_str()).with("command", spec.argv.clone());
    let hint = error.hint_text().map(ToOwned::to_owned).or_else(|| hint(spec, error.message()));
    hint.into_iter().fold(failed, Error::hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Table;

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
        assert!(hinted("/etc/passwd is strange", Sandbox::Tool).unwrap().contains("network in [mcp.s]"));
        assert_eq!(hinted("it ended", Sandbox::None), None);
    }
}
