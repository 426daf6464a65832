//! Starts servers: in the sandbox of cp-exec under their own policy, or outside if the policy allows it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::coprocess::{self, Child, ChildOptions, Expression, Stderr, cmd, split};
use cp_common::glob::name_matches;
use cp_common::home::{Home, make_directory, resolved, sweep, write_whole};
use cp_common::{Code, Context, Error, Result};
use tempfile::TempDir;

use crate::launcher::check_fetch;
use crate::narrowed::narrowed;
use crate::policy::{LIFETIME, Policy, Sandbox, Spec, Table, is_name, list};

/// The variables of a server outside the sandbox.
const ENVIRONMENT: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// How long a server has to exit after its input is closed, and again after SIGTERM.
const OPTIONS: ChildOptions = ChildOptions {
    after_input: Duration::from_millis(500),
    after_term: Duration::from_millis(500),
    stderr: Stderr::Copied,
};

/// The age at which an abandoned scratch home is removed. No server takes longer to start.
const ABANDONED: Duration = Duration::from_hours(1);

/// Starts servers under the policy of a home.
#[derive(Clone, Debug)]
pub struct Launcher {
    policy: Policy,
    home: Home,
    base: PathBuf,
    /// The options for `cp-exec`, which has a scratch home.
    flags: Vec<OsString>,
    /// The options for `cp-mcp`.
    handed_on: Vec<OsString>,
}

impl Launcher {
    /// A launcher with the policy, base directory and ledger of this context.
    pub fn of(context: &Context) -> Result<Self> {
        let ledger = std::path::absolute(cp_ledger::effect_path(context, "cp-exec.jsonl")?)?;
        if let Some(directory) = ledger.parent() {
            make_directory(directory)?;
        }
        Ok(Self {
            policy: Policy::load(context)?,
            home: context.home.resolved(),
            base: context.base()?,
            flags: context.handed_on_without_home(Some(&ledger)),
            handed_on: context.handed_on(),
        })
    }

    /// The table of a server in the policy.
    pub fn table(&self, name: &str) -> Table {
        self.policy.table(name)
    }

    /// The server of `NAME=COMMAND`, or of `NAME` if the policy has its command.
    pub fn parse(&self, text: &str) -> Result<Spec> {
        let (name, command) = text.split_once('=').map_or((text, None), |(name, command)| (name, Some(command)));
        if !is_name(name) {
            return Err(Error::usage(format!("--mcp {text}: the name must be 1 to 64 letters, digits, _ and -"))
                .hint("write --mcp NAME='/path/to/server arguments'"));
        }
        self.spec(name, command.map(coprocess::command_words).transpose()?)
    }

    /// A server with the given command, or that of the policy.
    pub fn spec(&self, name: &str, given: Option<Vec<String>>) -> Result<Spec> {
        let table = self.table(name);
        let listed = table.command.as_deref().map(coprocess::command_words).transpose()?;
        let [listed, given] = [listed, given].map(|argv| argv.map(|argv| self.located(argv)).transpose());
        match (listed?, given?) {
            (Some(listed), Some(given)) if listed != given => {
                let message = format!("the policy has another command for the server {name}");
                Err(Error::new(Code::Forbidden, message)
                    .with("rule", "mcp.command")
                    .with("command", listed)
                    .hint(format!("--mcp {name} starts that one; or choose another name")))
            }
            (Some(argv), _) | (None, Some(argv)) => Ok(Spec { name: name.to_owned(), argv, table }),
            (None, None) => {
                Err(Error::usage(format!("--mcp {name}: no command is given, and the policy has none in [mcp.{name}]"))
                    .hint("write --mcp NAME='/path/to/server arguments'"))
            }
        }
    }

    /// The rule by which each call of a server's tool requires approval, and the reason; `None` if it requires no
    /// approval.
    pub fn approval_rule(
        &self,
        server: &str,
        table: &Table,
        tool: &str,
        is_destructive: bool,
    ) -> Option<(&'static str, String)> {
        let mut patterns = list(&self.policy.tools, "approve");
        // cp-toolloop offers it by the second name if another tool has the first one.
        if patterns.any(|pattern| name_matches(pattern, tool) || name_matches(pattern, format!("{server}_{tool}"))) {
            return Some(("tools.approve", format!("tools.approve of the policy lists `{tool}`")));
        }
        let is_asked = table.approve.unwrap_or(is_destructive);
        is_asked.then(|| ("tool.approve", format!("{tool} requires approval of each call")))
    }

    /// Starts a server, whose standard error is copied to ours. A server in the sandbox has a scratch home, which must
    /// exist until the server has answered.
    pub fn start(&self, spec: &Spec) -> Result<(Child, Option<TempDir>)> {
        let (command, home) = match spec.table.sandbox {
            // `cp-mcp` in our context starts its own server in the sandbox, and applies the table of the policy.
            _ if is_cp_mcp(spec) => {
                let words = spec.argv.iter().skip(1).map(OsString::from);
                (cmd(&spec.argv[0], self.handed_on.iter().cloned().chain(words)), None)
            }
            Sandbox::None => (outside(spec)?, None),
            Sandbox::Tool => {
                check_fetch(spec, &self.base)?;
                let home = self.scratch_home(&narrowed(&self.policy, spec, &self.home))?;
                (self.inside(home.path(), &spec.argv)?, Some(home))
            }
        };
        Ok((Child::start(&format!("the server {}", spec.name), &command.dir(&self.base), OPTIONS)?, home))
    }

    /// A command with the absolute path of its program.
    fn located(&self, mut argv: Vec<String>) -> Result<Vec<String>> {
        let program = argv.first_mut().ok_or_else(|| Error::usage("the command is empty"))?;
        let path = if program.contains('/') {
            // A resumed run may be in another directory.
            Some(coprocess::find(&self.base.join(&*program).display().to_string())?)
        } else {
            let mut listed = list(&self.policy.exec, "path");
            let ours = program.starts_with("cp-").then(|| coprocess::find(program).ok()).flatten();
            ours.or_else(|| self.pinned(program))
                .or_else(|| coprocess::on_path(program))
                .or_else(|| listed.find_map(|directory| coprocess::find(&format!("{directory}/{program}")).ok()))
        };
        let path = path.ok_or_else(|| {
            Error::not_found(format!("the program `{program}` was not found on PATH"))
                .hint("write its path; directories of PATH that others can write are passed over")
        })?;
        *program = std::path::absolute(path)?.display().to_string();
        Ok(argv)
    }

    /// The file that the policy has for a name, which cp-exec starts too: on PATH it may be a script that starts another.
    fn pinned(&self, name: &str) -> Option<PathBuf> {
        let governs = |directory: &str| self.base.starts_with(self.policy.expanded(directory));
        let projects = self.policy.project.iter().filter(|(directory, _)| governs(directory));
        let mut tables = projects.filter_map(|(_, table)| table.as_table()).chain([&self.policy.exec]);
        let pin = tables.find_map(|table| table.get("pin")?.get(name)?.as_str())?;
        coprocess::find(&self.policy.expanded(pin)).ok()
    }

    /// cp-exec as a chain loader of the server, which uses our pipes.
    fn inside(&self, home: &Path, argv: &[String]) -> Result<Expression> {
        let places = ["--home".as_ref(), home.as_os_str(), "--cwd".as_ref(), self.base.as_os_str()];
        let timeout = format!("--timeout={}", LIFETIME.as_secs());
        let options = ["--format", "raw", "--stdin", "-", "--lasting", &timeout, "--"].map(OsString::from);
        let words = places.map(OsStr::to_owned).into_iter().chain(self.flags.iter().cloned()).chain(options);
        Ok(cmd(coprocess::find("cp-exec")?, words.chain(argv.iter().map(OsString::from))))
    }

    /// A temporary home for a server in the sandbox, with only a policy.
    fn scratch_home(&self, policy: &str) -> Result<TempDir> {
        let above = self.home.path("tmp/mcp");
        make_directory(&above)?;
        // Killed processes leave theirs.
        sweep(&above, ABANDONED);
        let home = TempDir::new_in(&above).map_err(|e| Error::io("making a directory", e))?;
        write_whole(&home.path().join("config/policy.toml"), policy.as_bytes())?;
        Ok(home)
    }
}

/// True if the server's program is our own `cp-mcp`, and not another program of that name.
pub fn is_cp_mcp(spec: &Spec) -> bool {
    let ours = coprocess::find("cp-mcp").ok().map(|path| resolved(&path));
    ours.is_some_and(|ours| spec.argv.first().is_some_and(|program| resolved(Path::new(program)) == ours))
}

/// A server outside the sandbox, with few environment variables.
fn outside(spec: &Spec) -> Result<Expression> {
    let (program, arguments) = split(&spec.argv)?;
    let given = ENVIRONMENT.into_iter().chain(spec.table.env.iter().map(String::as_str));
    let given = given.filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?)));
    Ok(cmd(program, arguments).full_env(given))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use cp_common::home::Home;

    use super::Launcher;
    use crate::policy::Policy;

    #[test]
    fn program_without_slash_is_found_on_path() {
        let (policy, base) = (Policy::default(), PathBuf::from("/"));
        let home = Home::find(Some(&base)).unwrap();
        let launcher = Launcher { policy, base, home, flags: Vec::new(), handed_on: Vec::new() };
        let spec = |program: &str| launcher.spec("s", Some(vec![program.to_owned(), "-x".to_owned()]));
        let found = spec("sh").unwrap().argv;
        assert!(found[0].starts_with('/') && found[0].ends_with("/sh") && found[1] == "-x", "{found:?}");
        assert_eq!(spec("/bin/sh").unwrap().argv[0], "/bin/sh");
        // The same file as for cp-exec, in a project before all.
        let mut launcher = launcher.clone();
        let parse = |text: &str| toml::from_str::<Policy>(text).unwrap();
        for (text, file) in [
            ("[exec.pin]\nsh = \"/bin/cat\"\n", "/bin/cat"),
            ("[exec.pin]\nsh = \"~/cat\"\n", "/bin/cat"),
            ("[exec.pin]\nsh = \"/bin/ls\"\n[project.\"~\"]\npin = { sh = \"/bin/cat\" }\n", "/bin/cat"),
            ("[exec.pin]\nsh = \"/bin/cat\"\n[project.\"/x\"]\npin = { sh = \"/bin/ls\" }\n", "/bin/cat"),
            ("[exec.pin]\nsh = \"/none\"\n", &*found[0]),
        ] {
            launcher.policy = parse(text);
            launcher.policy.tilde = Some("/bin".to_owned());
            launcher.base = PathBuf::from("/bin/project");
            assert_eq!(launcher.spec("s", Some(vec!["sh".to_owned()])).unwrap().argv, [file], "{text}");
        }
        launcher.policy = Policy::default();
        let spec = |program: &str| launcher.spec("s", Some(vec![program.to_owned(), "-x".to_owned()]));
        assert!(spec("no-such-program").unwrap_err().hint_text().unwrap().contains("write its path"));
    }
}
