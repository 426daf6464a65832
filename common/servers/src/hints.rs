//! Hints for a server that did not start in the sandbox: a line of policy, or another command.

use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result};

use crate::launcher::{Started, started};
use crate::policy::{Sandbox, Table};
use crate::spec::Spec;

/// Messages of programs if a file is hidden.
const HIDDEN: [&str; 4] = ["Permission denied", "No such file", "EACCES", "ENOENT"];
/// Messages of programs without a network.
const OFFLINE: [&str; 5] = ["EAI_AGAIN", "ENETUNREACH", "unreachable", "name resolution", "dns error"];

/// The hint for a server that failed with this message.
fn hint(spec: &Spec, table: &Table, message: &str) -> Option<String> {
    let program = Path::new(spec.argv.first()?);
    let (name, called) = (&spec.name, program.file_name()?.to_string_lossy());
    let late = message.contains("in time");
    let more_time = late.then(|| format!("start_timeout = 120 in [mcp.{name}] of the policy gives it more time"));
    if table.sandbox == Sandbox::None {
        return more_time;
    }
    if program.parent().is_some_and(|directory| directory.ends_with("shims")) {
        return Some(format!(
            "{called} only looks for another program: name that one, as `pyenv which {called}` prints it"
        ));
    }
    if let Some(started) = started(&spec.argv).filter(|started| started.is_fetched) {
        return Some(install(&called, &started));
    }
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if table.network.is_closed() && says(&OFFLINE) {
        return Some(format!(
            "if it needs a network: network = [\"NAME\"] in [mcp.{name}] of the policy, with each name that it connects to"
        ));
    }
    let words = message.split(|sign: char| sign.is_whitespace() || "'\"`:,;()[]".contains(sign));
    let hidden =
        words.filter(|word| word.starts_with('/')).find(|word| *word != spec.argv[0] && Path::new(word).exists());
    if let Some(path) = hidden.filter(|_| says(&HIDDEN)) {
        return Some(format!("the sandbox hides that file: read = [\"{path}\"] in [mcp.{name}] of the policy"));
    }
    Some(more_time.unwrap_or_else(|| {
        format!(
            "it ran in the sandbox; what it needs there is read, write, env or network in [mcp.{name}] of the policy"
        )
    }))
}

/// The error of a server whose package would have to be fetched, if it has no network and the package is not installed.
pub(crate) fn check_fetch(spec: &Spec, table: &Table, base: &Path) -> Result<()> {
    let Some(started) = started(&spec.argv).filter(|started| started.is_fetched && table.network.is_closed()) else {
        return Ok(());
    };
    let installed = PathBuf::from("node_modules").join(package_of(started.named));
    if base.ancestors().any(|directory| directory.join(&installed).is_dir()) {
        return Ok(());
    }
    let called = Path::new(&spec.argv[0]).file_name().unwrap_or_default().to_string_lossy();
    let why = "because the server has no network";
    let message = format!("{called} cannot fetch {}, {why}; {}", started.named, install(&called, &started));
    Err(Error::new(Code::Forbidden, message))
}

/// A package without its version.
fn package_of(named: &str) -> &str {
    let at = named[1..].find('@').map_or(named.len(), |at| at + 1);
    &named[..at]
}

/// How to install a server instead of fetching it at each start.
fn install(runner: &str, started: &Started<'_>) -> String {
    let (named, program) = (started.named, started.program.unwrap_or_else(|| package_of(started.named)));
    match runner {
        "uvx" | "uv" => {
            format!(
                "install the package: `uv tool install {named}`; then start \"$(uv tool dir --bin)/{program}\" instead"
            )
        }
        "pipx" => format!(
            "install the package: `pipx install {named}`; then start \"$(pipx environment --value PIPX_BIN_DIR)/{program}\" instead"
        ),
        _ => format!("install the package in the project: `npm install {named}`; then the same command starts it"),
    }
}

/// The error of a required server, with a hint.
pub fn unavailable(error: &Error, spec: &Spec, table: &Table) -> Error {
    let code = if error.code() == Code::Io { Code::Server } else { error.code() };
    let failed =
        Error::new(code, error.message()).with("server", spec.name.as_str()).with("command", spec.argv.clone());
    let own = error.hint_text().map(ToOwned::to_owned);
    match own.or_else(|| hint(spec, table, error.message())) {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_has_hint_with_policy_line() {
        let table = Table::default();
        let hinted = |program: &str, message: &str| {
            let spec = Spec { name: "s".into(), argv: vec![program.into()], ..Spec::default() };
            hint(&spec, &table, message).unwrap()
        };
        assert!(hinted("/root/.pyenv/shims/python3", "").contains("`pyenv which python3`"));
        let hint_of = |line: &str| {
            let argv = line.split(' ').map(str::to_owned).collect();
            let spec = Spec { name: "s".into(), argv, ..Spec::default() };
            check_fetch(&spec, &table, Path::new("/nowhere")).err().map(|e| e.message().to_owned())
        };
        assert!(hint_of("/usr/bin/npx -y @a/b@1 x").unwrap().contains("`npm install @a/b@1`"));
        assert!(hint_of("uvx srv@1").unwrap().ends_with("start \"$(uv tool dir --bin)/srv\" instead"));
        assert!(
            hint_of("uvx --from pkg srv x")
                .unwrap()
                .contains("`uv tool install pkg`; then start \"$(uv tool dir --bin)/srv\"")
        );
        assert_eq!((hint_of("uv run srv.py"), hint_of("node srv.js"), hint_of("npm run srv")), (None, None, None));
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("node_modules/@a/b")).unwrap();
        let npx = Spec { argv: ["npx", "-y", "@a/b@1"].map(str::to_owned).into(), ..Spec::default() };
        assert!(check_fetch(&npx, &table, &place.path().join("below")).is_ok());
        let networked: Table = toml::from_str("network = [\"r.example\"]").unwrap();
        assert!(check_fetch(&npx, &networked, Path::new("/nowhere")).is_ok());
        assert!(hinted("/bin/x", "npm error code EAI_AGAIN").contains("network = [\"NAME\"] in [mcp.s]"));
        let hidden = hinted("/bin/x", "open '/etc/passwd': Permission denied");
        assert!(hidden.contains("read = [\"/etc/passwd\"] in [mcp.s]"), "{hidden}");
        assert!(hinted("/bin/x", "/etc/passwd is strange").contains("[mcp.s]"));
        let outside = Table { sandbox: Sandbox::None, ..Table::default() };
        assert_eq!(hint(&Spec { argv: vec!["/usr/bin/npx".into()], ..Spec::default() }, &outside, ""), None);
    }
}
