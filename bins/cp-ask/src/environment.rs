//! The environment of the programs that this command starts: variables of other names, and `config/cp.env` for variables without a value.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use cp_common::home::Home;
use cp_common::{Error, Result};

/// The variables that `config/cp.env` can set.
const NAMES: &str = "CP_AGENT CP_ASK_KEEP CP_BACKEND CP_LEDGER CP_MODEL CP_SESSION CP_STUB_SCRIPT CP_TIER CP_TOOL_BACKEND CP_TOOLS_DIR \
    LOG_FILE ANTHROPIC_API_KEY ANTHROPIC_API_KEY_FILE ANTHROPIC_API_KEY_COMMAND ANTHROPIC_BASE_URL OPENAI_API_KEY OPENAI_API_KEY_FILE \
    OPENAI_API_KEY_COMMAND OPENAI_BASE_URL GEMINI_API_KEY GEMINI_API_KEY_FILE GEMINI_API_KEY_COMMAND GEMINI_BASE_URL";

/// Other names of these variables; of two names for one variable the first has precedence.
const ALIASES: [(&str, &str); 7] = [
    ("SHELLCLAW_MODEL", "CP_MODEL"),
    ("SHELLCLAW_LLM_BACKEND", "CP_BACKEND"),
    ("SHELLCLAW_TOOL_BACKEND", "CP_TOOL_BACKEND"),
    ("SHELLCLAW_AGENT_ID", "CP_AGENT"),
    ("SHELLCLAW_DEFAULT_AGENT", "CP_AGENT"),
    ("SHELLCLAW_SKILLS_DIR", "CP_TOOLS_DIR"),
    ("SHELLCLAW_TOOLS_DIR", "CP_TOOLS_DIR"),
];

/// Returns a variable that is not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Completes the environment. If a variable changes, this process executes itself again with the new environment, so that every program
/// it starts has the same one.
pub(crate) fn settle() -> Result<()> {
    let other = ["CP_HOME", "SHELLCLAW_HOME", "CP_CONFIGURED", "CP_CONFIGURED_HOME"];
    let names = NAMES.split(' ').chain(ALIASES.map(|(alias, _)| alias)).chain(other);
    let original: BTreeMap<&str, String> = names.filter_map(|name| Some((name, variable(name)?))).collect();
    let mut settled = original.clone();
    remove_configured(&mut settled)?;
    let is_configured = settled.get("CP_HOME").is_none_or(|home| Some(home) == settled.get("CP_CONFIGURED_HOME"));
    if let Some(home) = settled.get("SHELLCLAW_HOME").filter(|_| is_configured).cloned() {
        settled.insert("CP_HOME", home);
    }
    if let Some(agent) = settled.get("SHELLCLAW_AGENT_ID").cloned() {
        settled.insert("CP_AGENT", agent);
    }
    for (alias, name) in ALIASES {
        if let Some(value) = settled.get(alias).cloned() {
            settled.entry(name).or_insert(value);
        }
    }
    let home = Home::find(settled.get("CP_HOME").map(Path::new))?;
    let files = ["config/cp.env", "config/shellclaw.env"].map(|file| assignments(&home.path(file)));
    let mut given = Vec::new();
    for assigned in files {
        given.extend(assigned?);
    }
    for (name, value) in &given {
        settled.entry(name).or_insert_with(|| value.clone());
    }
    if settled == original {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| Error::io("finding cp-ask", e))?;
    let mut command = Command::new(program);
    for name in original.keys() {
        command.env_remove(name);
    }
    Err(Error::io("starting cp-ask", command.args(std::env::args_os().skip(1)).envs(settled).exec()))
}

/// Removes the variables that `config_init` of cp.sh set and that have not changed since, because they belong to the home of that time.
fn remove_configured(settled: &mut BTreeMap<&str, String>) -> Result<()> {
    for (name, mark) in
        settled.remove("CP_CONFIGURED").iter().flat_map(|text| text.lines()).filter_map(|l| l.split_once('='))
    {
        let value = settled.get(name).cloned().unwrap_or_default();
        if mark == if name.ends_with("_KEY") { checksum(&value)? } else { value } {
            settled.remove(name);
        }
    }
    Ok(())
}

/// Returns the checksum of a key as cksum(1) prints it, because `config_init` does not repeat keys.
fn checksum(key: &str) -> Result<String> {
    let failed = |e| Error::io("starting cksum", e);
    let mut child = Command::new("cksum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    child.stdin.take().map_or(Ok(()), |mut input| input.write_all(key.as_bytes())).map_err(failed)?;
    Ok(String::from_utf8_lossy(&child.wait_with_output().map_err(failed)?.stdout).trim().to_owned())
}

fn is_known(name: &str) -> bool {
    NAMES.split(' ').chain(ALIASES.map(|(alias, _)| alias)).any(|known| known == name)
}

/// Reads the assignments of a file, each name once with its last value, and a name before its aliases. The file is never executed.
fn assignments(file: &Path) -> Result<Vec<(String, String)>> {
    if !file.is_file() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(file).map_err(|e| Error::config(format!("cannot read: {e}")).in_file(file))?;
    let mut newest = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let assigned = assignment(line);
        newest.extend(assigned.map_err(|(wrong, hint)| Error::config(wrong).hint(hint).at_line(number).in_file(file))?);
    }
    newest.retain(|_, value| !value.is_empty());
    let alias = |(alias, name): (&str, &str)| Some((name.to_owned(), newest.remove(alias)?));
    let aliased: Vec<_> = ALIASES.into_iter().filter_map(alias).collect();
    Ok(newest.into_iter().chain(aliased).collect())
}

/// Parses a line; `None` if it assigns nothing that matters here. The error is a message with a hint.
fn assignment(line: &str) -> Result<Option<(String, String)>, (String, &'static str)> {
    let line = line.trim_start();
    let line = line.strip_prefix("export ").unwrap_or(line);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let Some((name, rest)) =
        line.split_once('=').filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_uppercase()))
    else {
        return Err(("expected NAME=VALUE".to_owned(), "this file is read and never executed"));
    };
    let quoted = |mark: char| rest.strip_prefix(mark).and_then(|rest| rest.split_once(mark));
    let (value, after, expands) = match (quoted('\''), quoted('"')) {
        (Some((value, after)), _) => (value, after, &[][..]),
        (_, Some((value, after))) => (value, after, &['$', '`', '\\'][..]),
        _ => {
            let end = rest.find([' ', '\t']).unwrap_or(rest.len());
            (&rest[..end], &rest[end..], &['$', '`', '\\', '\'', '"'][..])
        }
    };
    if value.contains(expands) {
        return Err(("nothing is expanded in a value".to_owned(), "write '…' around a literal value"));
    }
    let after = after.trim();
    if !after.is_empty() && !after.starts_with('#') {
        return Err((format!("unexpected '{after}' after the value"), "quote a value with blanks"));
    }
    match name {
        "CP_HOME" | "CP_FORMAT" => Ok(None),
        name if is_known(name) => Ok(Some((name.to_owned(), value.to_owned()))),
        // Names of the older file that have no meaning here are ignored.
        name if name.starts_with("SHELLCLAW_") => Ok(None),
        name => Err((
            format!("{name} is not read from this file"),
            "cp.sh(7) lists the names; set others in the environment",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignment_parses_quotes_and_comments() {
        let value = |line: &str| assignment(line).unwrap().map(|(_, value)| value);
        for (line, expected) in [
            ("CP_MODEL=m # c", "m"),
            ("export CP_MODEL='a $b' ", "a $b"),
            ("  CP_MODEL=\"a b\"\t# c", "a b"),
            ("SHELLCLAW_MODEL=m\r", "m"),
            ("CP_MODEL=", ""),
        ] {
            assert_eq!(value(line.trim_end_matches('\r')).as_deref(), Some(expected), "{line}");
        }
        for line in ["", "# x", "SHELLCLAW_OTHER=1", "CP_HOME=/x", "CP_FORMAT=json"] {
            assert_eq!(value(line), None, "{line}");
        }
        for line in ["PATH=/x", "CP_MODEL=$x", "CP_MODEL=a b", "CP_MODEL=\"`x`\"", "cp_model=x", "CP_MODEL='a'b"] {
            assert!(assignment(line).is_err(), "{line}");
        }
    }
}
