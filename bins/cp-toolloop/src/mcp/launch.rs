//! Starting a server: in the sandbox of cp-exec, under a policy of its own, or outside where the policy says so.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cp_common::coprocess;
use cp_common::home::{make_directory, resolved, write_whole};
use cp_common::keys::{hex, random};
use cp_common::{Code, Context, Error, Result};

use super::Spec;
use super::policy::{Policy, Sandbox};

/// The variables that a server outside the sandbox has.
const ENVIRONMENT: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// How old what a start left behind is when it is removed.
const SWEPT: Duration = Duration::from_hours(1);

/// What the starting of servers needs to know of the run.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    policy: Policy,
    home: PathBuf,
    base: PathBuf,
    /// The ledger of what is started, and what else is handed on.
    flags: Vec<String>,
}

/// A server's process as it was started.
pub(super) struct Started {
    pub(super) child: Child,
    /// It runs in the sandbox, which ends it after a time.
    pub(super) is_sandboxed: bool,
    /// The home that was made for it, until it has answered.
    pub(super) place: Option<Place>,
}

/// A directory that is removed again.
pub(super) struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Ground {
    /// The ground that a command line stands on.
    pub(crate) fn of(context: &Context) -> Result<Self> {
        let mut flags = vec!["--origin".to_owned(), context.origin().name().to_owned()];
        let ledger = std::path::absolute(cp_ledger::effect_path(context, "cp-exec.jsonl")?)?;
        if let Some(directory) = ledger.parent() {
            make_directory(directory)?;
        }
        flags.extend(["--ledger".to_owned(), ledger.display().to_string()]);
        let named = [("--session", &context.options.session), ("--run", &context.options.run)];
        for (flag, value) in named {
            flags.extend(value.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
        }
        Ok(Self { policy: Policy::load(context)?, home: resolved(context.home.root()), base: context.base()?, flags })
    }

    /// A ground on which the server of this name runs outside the sandbox.
    #[cfg(test)]
    pub(super) fn outside(name: &str, base: &Path) -> Self {
        let policy = Policy::of_text(&format!("[mcp.{name}]\nsandbox = \"none\"\n"));
        Self { policy, home: base.to_owned(), base: base.to_owned(), flags: Vec::new() }
    }

    /// The command of a server: the policy's own, where none is given.
    pub(super) fn argv(&self, name: &str, given: Option<&str>) -> Result<Vec<String>> {
        let read = |command: &str| {
            let mut argv = coprocess::command_line(command)?;
            if let Some(program) = argv.first_mut() {
                *program = std::path::absolute(&*program)?.display().to_string();
            }
            Ok::<_, Error>(argv)
        };
        let listed = self.policy.table(name)?.command.as_deref().map(read).transpose()?;
        match (listed, given.map(read).transpose()?) {
            (Some(listed), Some(given)) if listed != given => {
                let message = format!("the policy has another command for the server {name}");
                Err(Error::new(Code::Forbidden, message)
                    .with("rule", "mcp.command")
                    .with("command", listed)
                    .hint(format!("--mcp {name} starts that one; or choose another name")))
            }
            (Some(argv), _) | (None, Some(argv)) => Ok(argv),
            (None, None) => {
                Err(Error::usage(format!("--mcp {name}: there is no `=`, and no [mcp.{name}] in the policy"))
                    .hint("write --mcp NAME='/path/to/server arguments'"))
            }
        }
    }

    /// Starts a server.
    pub(super) fn start(&self, spec: &Spec) -> Result<Started> {
        let table = self.policy.table(&spec.name)?;
        let (mut command, place) = match table.sandbox {
            Sandbox::None => (outside(&spec.argv, &table.env)?, None),
            Sandbox::Tool => {
                let place = self.place(&self.policy.narrowed(&table, &spec.argv, &self.home))?;
                (self.inside(&place.0, &spec.argv)?, Some(place))
            }
        };
        let child = command
            .current_dir(&self.base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Error::io(format!("starting the server {}", spec.name), e))?;
        Ok(Started { child, is_sandboxed: table.sandbox == Sandbox::Tool, place })
    }

    /// cp-exec as a chain loader: the server reads and writes our pipes.
    fn inside(&self, home: &Path, argv: &[String]) -> Result<Command> {
        let mut command = Command::new(coprocess::find("cp-exec")?);
        let base = self.base.as_os_str();
        command.arg("--home").arg(home).arg("--base").arg(base).arg("--cwd").arg(base).args(&self.flags);
        command.args(["--format", "raw", "--stdin", "-", "--timeout"]);
        command.arg(super::LIFETIME.as_secs().to_string()).arg("--").args(argv);
        Ok(command)
    }

    /// A home with nothing in it but a policy.
    fn place(&self, policy: &str) -> Result<Place> {
        let above = self.home.join("tmp");
        sweep(&above);
        let place = Place(above.join(format!("mcp-{}", hex(&random::<8>()?))));
        make_directory(&place.0.join("config"))?;
        write_whole(&place.0.join("config/policy.toml"), policy.as_bytes())?;
        Ok(place)
    }
}

/// Removes what runs that were killed left there: no server takes an hour to start.
fn sweep(above: &Path) {
    let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("mcp-")) {
        let changed = entry.metadata().and_then(|meta| meta.modified()).ok();
        if changed.and_then(|changed| changed.elapsed().ok()).is_some_and(|age| age > SWEPT) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A server with the rights of whoever runs us, but not with their whole environment.
fn outside(argv: &[String], env: &[String]) -> Result<Command> {
    let (program, arguments) = argv.split_first().ok_or_else(|| Error::usage("the command is empty"))?;
    let given = ENVIRONMENT.into_iter().chain(env.iter().map(String::as_str));
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(given.filter_map(|name| Some((name, std::env::var_os(name)?))));
    Ok(command)
}
