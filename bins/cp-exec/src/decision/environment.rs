//! Builds the environment of a command. Nothing is inherited.

use std::collections::BTreeMap;

use cp_common::Result;

use crate::glob::name_matches;
use crate::refusal::{owner_hint, refuse};

/// Variables that a request may set under any policy.
const ALLOWED_VARIABLES: [&str; 6] = ["CI", "LANG", "LC_*", "TZ", "RUST_BACKTRACE", "RUST_LOG"];

/// Variables that change which code a program loads or runs. No policy allows a request to set them.
const DENIED_VARIABLES: [&str; 30] = [
    "LD_*",
    "DYLD_*",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "BASH_ENV",
    "ENV",
    "BASH_FUNC_*",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "IFS",
    "PATH",
    "HOME",
    "TMPDIR",
    "GIT_*",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "PYTHON*",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5*",
    "RUBY*",
    "LESSOPEN",
    "JAVA_TOOL_OPTIONS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "MAKEFLAGS",
    "npm_config_*",
];

/// Variables of every command: no terminal, no colour, no pager, no prompts, and no git configuration of the user.
const FIXED_VARIABLES: [(&str, &str); 13] = [
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_CONFIG_COUNT", "4"),
    ("GIT_EDITOR", "true"),
    ("npm_config_update_notifier", "false"),
];

/// Git settings of every command: no file system monitor, and no writes to read-only parts of a repository by
/// ordinary commands.
const GIT_CONFIG: [(&str, &str); 8] = [
    ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_0", "false"),
    ("GIT_CONFIG_KEY_1", "branch.autoSetupMerge"),
    ("GIT_CONFIG_VALUE_1", "false"),
    ("GIT_CONFIG_KEY_2", "push.autoSetupRemote"),
    ("GIT_CONFIG_VALUE_2", "false"),
    ("GIT_CONFIG_KEY_3", "repack.updateServerInfo"),
    ("GIT_CONFIG_VALUE_3", "false"),
];

/// Builds the environment except HOME and TMPDIR, sorted by name. The variables of the request were checked.
pub(crate) fn build(
    path: &str,
    user: &str,
    set_by_policy: &BTreeMap<String, String>,
    asked: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |name: &str, value: &str| drop(env.insert(name.to_owned(), value.to_owned()));
    for (name, value) in FIXED_VARIABLES.into_iter().chain(GIT_CONFIG) {
        put(name, value);
    }
    for (name, value) in [("PATH", path), ("USER", user), ("LOGNAME", user)] {
        put(name, value);
    }
    for (name, value) in set_by_policy {
        put(name, value);
    }
    for (name, value) in asked {
        put(name, value);
    }
    env.into_iter().collect()
}

/// Checks the variables that a request sets.
pub(crate) fn check_all(allowed_by_policy: &[String], asked: &BTreeMap<String, String>) -> Result<()> {
    asked.iter().try_for_each(|(name, value)| check(name, value, allowed_by_policy))
}

/// Checks one variable. A variable that is not allowed is an error, because the command could behave differently
/// without it.
fn check(name: &str, value: &str, allowed: &[String]) -> Result<()> {
    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        return Err(cp_common::Error::validation(format!("`{name}` is not a valid environment variable"))
            .with("rule", "env_name"));
    }
    if let Some(pattern) = DENIED_VARIABLES.iter().find(|pattern| name_matches(pattern, name)) {
        return Err(refuse("env_never", format!("`{name}` changes what programs load or run (`{pattern}`)"))
            .hint("remove it; no policy lets a request set it"));
    }
    let mut known = ALLOWED_VARIABLES.iter().copied().chain(allowed.iter().map(String::as_str));
    if known.any(|pattern| name_matches(pattern, name)) {
        return Ok(());
    }
    Err(refuse("env_not_allowed", format!("`{name}` is not on the list of variables a request may set"))
        .hint(format!("remove it; {}", owner_hint("exec.env_allow"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, allowed: &[&str]) -> Result<Vec<(String, String)>> {
        let asked = [(name.to_owned(), "x".to_owned())].into();
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        check_all(&allowed, &asked)?;
        Ok(build("/usr/bin", "me", &BTreeMap::new(), &asked))
    }

    #[test]
    fn variable_is_set_if_listed_and_refused_otherwise() {
        assert!(with("RUST_LOG", &[]).unwrap().contains(&("RUST_LOG".to_owned(), "x".to_owned())));
        assert!(with("LC_ALL", &[]).is_ok());
        assert!(with("MINE", &["MINE"]).is_ok());
        assert_eq!(with("MINE", &[]).unwrap_err().details()["rule"], "env_not_allowed");
    }

    #[test]
    fn loader_variable_is_refused_by_any_policy() {
        for name in ["LD_PRELOAD", "BASH_ENV", "GIT_SSH_COMMAND", "PYTHONPATH", "npm_config_prefix", "PATH"] {
            assert_eq!(with(name, &["*"]).unwrap_err().details()["rule"], "env_never", "{name}");
        }
    }
}
