//! The text of a starter policy, with the programs of this machine.

use std::path::Path;

use super::toolchains::{self, Program};

/// Commands worth allowing where they exist: they build, test, show history, look, search, filter text, and make, copy and move files.
/// What one tool serves alone, programs and models are sent to it for.
#[rustfmt::skip]
const WANTED: [&str; 72] = [
    "ls", "cat", "head", "tail", "find", "pwd", "git", "cargo", "rustc", "npm", "node", "python3", "make", "go",
    "mkdir", "cp", "mv", "grep", "rg", "sed", "diff", "sort", "uniq", "cut", "tr", "wc", "comm", "paste", "jq",
    "echo", "printf", "true", "false", "test", "[", "expr", "seq", "date", "sleep", "xargs", "tee", "touch", "ln",
    "basename", "dirname", "realpath", "readlink", "stat", "file", "which", "tree", "du", "df", "env", "id",
    "uname", "whoami", "hostname", "nproc", "sha256sum", "md5sum", "cmp", "column", "fold", "fmt", "rev", "tac",
    "nl", "od", "strings", "join", "awk",
];

/// The text of a starter policy for this machine, which gives commands so many seconds.
pub(super) fn starter(home: &Path, timeout: u32) -> String {
    let found: Vec<(&str, Program)> =
        WANTED.iter().filter_map(|name| Some((*name, toolchains::find(name, home)?))).collect();
    let list = |items: Vec<String>| items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(", ");
    let more = |of: fn(&Program) -> &[String]| {
        let mut items: Vec<String> = found.iter().flat_map(|(_, program)| of(program)).cloned().collect();
        items.sort();
        items.dedup();
        items.iter().fold(String::new(), |text, item| text + ", \"" + item + "\"")
    };
    let pins = found.iter().filter_map(|(name, program)| Some(format!("{name} = \"{}\"\n", program.pin.as_ref()?)));
    let mut set: Vec<_> = found.iter().flat_map(|(_, program)| &program.set).collect();
    set.sort();
    set.dedup();
    let set = set.iter().map(|(variable, value)| format!("{variable} = \"{value}\"\n"));
    format!(
        r#"# What commands, tools and models may do. See cp-policy(5); `cp-exec check -- COMMAND` explains a decision.

[exec]
# The names that may run. Deny wins: what is restricted stays so, whatever else allows it.
allowed_commands = [{allowed}]
restricted_commands = ["rm", "sudo", "chmod", "chown", "mkfs", "fdisk", "dd", "mount", "umount"]
# Where a name is looked for, never in the working directory.
path = ["/usr/local/bin", "/usr/bin", "/bin"]
# Variables that a request may set.
env_allow = ["CI", "RUST_LOG"]
# A command line is the input of a shell in the sandbox (shell) or the words of one command (single).
strings = "shell"
# A read-only command of a program or a model is refused with the tool that serves it: enforce, warn or off.
intent = "enforce"
# Arguments by which a harmless command runs something else: default or off.
argument_rules = "default"
# Seconds; a request may ask for up to 600.
timeout = {timeout}
# none, loopback or host.
network = "none"
# strict: one program and its libraries. build: system programs and the execute paths below.
profile = "build"
# Who confirms what destroys or publishes: agent (a token from --dry-run) or owner (a person, with cp-exec approve).
confirm = "agent"
# Without these layers nothing runs.
require = ["no_new_privs", "seccomp"]

# Names with one fixed file.
[exec.pin]
{pins}
# Variables that every command gets.
[exec.env_set]
{set}
[[exec.rule]]
command = "git"
subcommands = ["push"]
decision = "confirm"
reason = "others see what is pushed"
match = ["git push origin main"]
not_match = ["git status"]

[paths]
# `.` is the directory in which the outermost program was started, `~` the home of this file's owner.
read = ["."{read}]
write = ["."]
execute = ["scripts/**", "tests/**", "target/**", "node_modules/**"{execute}]
pristine = []
forbidden = ["**/.env", "~/.ssh/**"]

[tools]
allow = ["*"]
approve = []
"#,
        allowed = list(found.iter().map(|(name, _)| (*name).to_owned()).collect()),
        pins = pins.collect::<String>(),
        set = set.collect::<String>(),
        read = more(|program| &program.read),
        execute = more(|program| &program.execute),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy;

    #[test]
    fn a_starter_is_a_policy_wherever_the_toolchains_are() {
        let home = tempfile::tempdir().unwrap();
        assert!(policy::parse(&starter(home.path(), 30)).is_ok());
        let bin = home.path().join(".cargo/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("cargo"), "").unwrap();
        let policy = policy::parse(&starter(home.path(), 30)).unwrap();
        if toolchains::SYSTEM.iter().all(|directory| !Path::new(directory).join("cargo").exists()) {
            assert_eq!(policy.exec.pin["cargo"], "~/.cargo/bin/cargo");
            assert_eq!(policy.exec.env_set["CARGO_HOME"], "~/.cargo");
            assert!(policy.paths.execute.contains(&"~/.rustup/toolchains/**".to_owned()));
        }
    }
}
