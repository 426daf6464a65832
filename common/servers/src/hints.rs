//! Hints for a server that did not start in the sandbox: a line of policy, or another command.

use std::path::Path;

use cp_common::{Code, Error};

use crate::policy::{Sandbox, Table};
use crate::spec::Spec;

/// Programs that fetch and start other programs, which the sandbox does not allow.
const RUNNERS: [&str; 6] = ["npx", "bunx", "pnpx", "uvx", "uv", "pipx"];
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
    if RUNNERS.contains(&&*called) {
        let outside = format!("or sandbox = \"none\" in [mcp.{name}] of the policy starts it with your rights");
        return Some(format!(
            "{called} fetches programs, and the sandbox starts none of these: {}; {outside}",
            installed(&called, name, &spec.argv[1..])
        ));
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

/// The command to install a server instead of fetching it at each start.
fn installed(runner: &str, name: &str, arguments: &[String]) -> String {
    const NAMES: [&str; 4] = ["--from", "--package", "-p", "--spec"];
    let named = arguments.iter().zip(arguments.iter().skip(1)).find(|(word, _)| NAMES.contains(&word.as_str()));
    let named = named.map(|(_, package)| package);
    let is_operand = |word: &&String| !word.starts_with('-') && !["tool", "run"].contains(&word.as_str());
    let operand = arguments.iter().filter(is_operand).find(|word| Some(*word) != named);
    let package = named.or(operand).map_or("PACKAGE", String::as_str);
    let program = operand.and_then(|word| word.split('@').next()).filter(|word| !word.is_empty()).unwrap_or("PROGRAM");
    match runner {
        "uvx" | "uv" => format!("`uv tool install {package}`, then {name}=\"$(uv tool dir --bin)/{program}\""),
        "pipx" => {
            format!("`pipx install {package}`, then {name}=\"$(pipx environment --value PIPX_BIN_DIR)/{program}\"")
        }
        _ => format!(
            "`npm install -g {package}`, then {name}=\"$(npm prefix -g)/bin/PROGRAM\" with the program that this put there"
        ),
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
        assert!(hinted("/usr/bin/npx", "").contains("sandbox = \"none\" in [mcp.s]"));
        let install = |runner: &str, words: &str| {
            installed(runner, "s", &words.split(' ').map(str::to_owned).collect::<Vec<_>>())
        };
        assert!(install("npx", "-y @a/b@1 x").starts_with("`npm install -g @a/b@1`, then s=\"$(npm prefix -g)/bin/"));
        assert_eq!(install("uvx", "srv@1"), "`uv tool install srv@1`, then s=\"$(uv tool dir --bin)/srv\"");
        assert_eq!(install("uvx", "--from pkg srv x"), "`uv tool install pkg`, then s=\"$(uv tool dir --bin)/srv\"");
        assert!(hinted("/bin/x", "npm error code EAI_AGAIN").contains("network = [\"NAME\"] in [mcp.s]"));
        let hidden = hinted("/bin/x", "open '/etc/passwd': Permission denied");
        assert!(hidden.contains("read = [\"/etc/passwd\"] in [mcp.s]"), "{hidden}");
        assert!(hinted("/bin/x", "/etc/passwd is strange").contains("[mcp.s]"));
        let outside = Table { sandbox: Sandbox::None, ..Table::default() };
        assert_eq!(hint(&Spec { argv: vec!["/usr/bin/npx".into()], ..Spec::default() }, &outside, ""), None);
    }
}
