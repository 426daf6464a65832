//! `cp-exec policy init`: a starter policy with the toolchains of this machine. A file that is there stays as it is.

use std::path::Path;

use cp_common::context::options::AppendOptions;
use cp_common::home::write_whole;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};

use crate::digest::sha256;
use crate::policy;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "policy init",
    class: Class::Append,
    output: "policy_begun",
    examples: &["{} policy init"],
    events: &["policy.init"],
    ..VerbDoc::EMPTY
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    append: AppendOptions,
}

/// A starter policy.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy_begun"))]
pub(crate) struct Begun {
    /// Its file.
    file: String,
    /// Whether it was written now.
    written: bool,
    /// The hash of its text.
    sha256: String,
    /// What it allows.
    allowed_commands: Vec<String>,
    /// Its text.
    text: String,
}

impl Reply for Begun {
    fn text(&self) -> String {
        if self.written { format!("wrote {}", self.file) } else { self.text.trim_end().to_owned() }
    }

    fn raw(&self) -> Vec<u8> {
        self.text.clone().into_bytes()
    }
}

/// Commands worth allowing where they exist: they build, test, show history and filter text.
const WANTED: [&str; 20] = [
    "git", "cargo", "rustc", "npm", "node", "python3", "make", "go", "grep", "rg", "sed", "diff", "sort", "uniq",
    "cut", "tr", "wc", "comm", "paste", "jq",
];

/// A program, its directory, what it needs to read, and its variables.
type Toolchain = (&'static str, &'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// Where toolchains lie below a home directory: the directory of a program, what it needs to read, and its variables.
const TOOLCHAINS: [Toolchain; 4] = [
    ("cargo", ".cargo/bin", &[".cargo/**", ".rustup/**"], &[("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")]),
    ("rustc", ".cargo/bin", &[], &[]),
    ("go", "go/bin", &["go/**"], &[]),
    ("node", ".local/node/bin", &[".local/node/**"], &[]),
];

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let file = context.home.policy_file();
    let id = args.append.request_id.as_deref();
    let begun = if args.append.dry_run {
        begin(&file, false)?
    } else {
        idempotency::once(id, &("policy init", &file), context, |context| {
            let begun = begin(&file, true)?;
            let entry =
                Entry::new("policy.init").with("file", &begun.file.as_str()).with("sha256", &begun.sha256.as_str());
            let mut ledger = effect_ledger(context, "cp-exec.jsonl")?;
            ledger.append(entry)?;
            ledger.sync()?;
            Ok(begun)
        })?
    };
    context.out.answer(&begun)
}

fn begin(file: &Path, write: bool) -> Result<Begun> {
    if file.exists() {
        return Err(Error::new(Code::Conflict, "a policy already exists, and is not overwritten")
            .in_file(file)
            .hint("`cp-exec policy show` shows it; move the file away to start again"));
    }
    let text = starter(&policy::load(file)?.home);
    let parsed = policy::parse(&text)?;
    if write {
        write_whole(file, text.as_bytes())?;
    }
    Ok(Begun {
        file: file.display().to_string(),
        written: write,
        sha256: sha256(text.as_bytes()),
        allowed_commands: parsed.exec.allowed_commands,
        text,
    })
}

/// What this machine has of the wanted commands, as it is written in a policy.
#[derive(Default)]
struct Found {
    allowed: Vec<&'static str>,
    pins: Vec<String>,
    read: Vec<String>,
    execute: Vec<String>,
    set: Vec<String>,
}

impl Found {
    fn on_this_machine(home: &Path) -> Self {
        let system = ["/usr/local/bin", "/usr/bin", "/bin"];
        let on_path = |name: &str| system.iter().any(|directory| Path::new(directory).join(name).is_file());
        let in_home = |name: &str| {
            TOOLCHAINS.iter().find(|(tool, below, ..)| *tool == name && home.join(below).join(name).is_file())
        };
        let mut found = Self::default();
        for name in WANTED {
            if on_path(name) {
                found.allowed.push(name);
            } else if let Some(toolchain) = in_home(name) {
                found.allowed.push(name);
                found.add(name, toolchain);
            }
        }
        if found.pins.iter().any(|pin| pin.starts_with("cargo")) {
            found.execute.push("\"~/.rustup/toolchains/**\"".to_owned());
        }
        found.execute.sort();
        found.execute.dedup();
        found
    }

    fn add(&mut self, name: &str, (_, below, reads, variables): &Toolchain) {
        self.pins.push(format!("{name} = \"~/{below}/{name}\""));
        self.read.extend(reads.iter().map(|path| format!("\"~/{path}\"")));
        self.execute.push(format!("\"~/{below}/**\""));
        self.set.extend(variables.iter().map(|(variable, path)| format!("{variable} = \"~/{path}\"")));
    }
}

/// The text of a starter policy for this machine.
fn starter(home: &Path) -> String {
    let Found { allowed, pins, read, execute, set } = Found::on_this_machine(home);
    let list = |items: &[&str]| items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(", ");
    let more = |items: &[String]| items.iter().fold(String::new(), |text, item| text + ", " + item);
    let table =
        |items: &[String]| if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) };
    format!(
        r#"# What commands, tools and models may do. See cp-policy(5); `cp-exec check -- COMMAND` explains a decision.

[exec]
# The names that may run. Deny wins: what is restricted stays so, whatever else allows it.
allowed_commands = [{allowed}]
restricted_commands = ["rm", "sudo", "chmod", "chown", "mkfs", "fdisk", "dd", "mount", "umount"]
# Where a name is looked for, never in the working directory, and names with one fixed file.
path = ["/usr/local/bin", "/usr/bin", "/bin"]
pin = {pins}
env_set = {set}
# Variables that a request may set.
env_allow = ["CI", "RUST_LOG"]
# A read-only command of a program or a model is refused with the tool that serves it: enforce, warn or off.
intent = "enforce"
# Arguments by which a harmless command runs something else: default or off.
argument_rules = "default"
# Seconds; a request may ask for up to 600.
timeout = 30
# none, loopback or host.
network = "none"
# strict: one program and its libraries. build: system programs and the execute paths below.
profile = "build"
# Who confirms what destroys or publishes: agent (a token from --dry-run) or owner (a person, with cp-exec approve).
confirm = "agent"
# Without these layers nothing runs.
require = ["no_new_privs", "seccomp"]

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
        allowed = list(&allowed),
        pins = table(&pins),
        set = table(&set),
        read = more(&read),
        execute = more(&execute),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starter_is_a_policy_wherever_the_toolchains_are() {
        let home = tempfile::tempdir().unwrap();
        assert!(policy::parse(&starter(home.path())).is_ok());
        let bin = home.path().join(".cargo/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("cargo"), "").unwrap();
        let policy = policy::parse(&starter(home.path())).unwrap();
        if !Path::new("/usr/bin/cargo").exists() && !Path::new("/usr/local/bin/cargo").exists() {
            assert_eq!(policy.exec.pin["cargo"], "~/.cargo/bin/cargo");
            assert_eq!(policy.exec.env_set["CARGO_HOME"], "~/.cargo");
        }
    }
}
