//! `cp-exec hook doctor`: checks which hosts have the hook, if it fails closed, and if the host really calls it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::coprocess::{Child, ChildOptions, Stderr, cmd, on_path};
use cp_common::program::describe::report;
use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::{Code, Context, Error, Result};

use crate::hosts::{self, Command, Host, add_hook, has_hook, is_shell_written, own};
use crate::policy;
use crate::sandbox::SUPERVISOR;
use crate::verbs::doctor::policy_check;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook doctor",
    class: Class::Query,
    output: "doctor",
    examples: &["{} hook doctor"],
    ..VerbDoc::EMPTY
};

/// The time limit of `--version`, in seconds.
const LIMIT: &str = "20";

/// Test each route of the hosts: run each of them once with a local model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this one (default: those that are installed or configured)
    #[arg(value_name = "HOST", value_parser = Host::hooked())]
    host: Option<Host>,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut checks = vec![policy_check(context)];
    let (person, here) = (person(context)?, context.base()?);
    for host in Host::HOOKED.into_iter().filter(|host| args.host.is_none_or(|asked| asked == *host)) {
        let files = [("person", host.hook_file(None, &person)), ("project", host.hook_file(Some(&here), &person))];
        let hooks = files.iter().filter_map(|(whose, file)| configured(host, whose, file, context)).collect::<Vec<_>>();
        let program = on_path(host.name());
        if args.host.is_some() || program.is_some() || !hooks.is_empty() {
            checks.extend(host_checks(host, program.as_deref(), hooks, &here, context)?);
        }
    }
    if checks.len() == 1 {
        let message = "neither claude nor codex is on the path or has the hook";
        checks.push(Check::not_fine("hosts", Status::Warn, message, "`cp-exec hook install HOST` puts the hook in"));
    }
    report(&checks, context)
}

/// The checks of a host: its program, its hooks, and its routes if it has a hook.
fn host_checks(
    host: Host,
    program: Option<&Path>,
    hooks: Vec<Check>,
    here: &Path,
    context: &Context,
) -> Result<Vec<Check>> {
    let name = host.name();
    let mut checks = vec![match program {
        Some(program) => Check::pass(name, installed(host, program)),
        None => Check::not_fine(name, Status::Warn, "not on the path", "install it, or add its directory to PATH"),
    }];
    if hooks.is_empty() {
        let fix = format!("`cp-exec hook install {name}` puts it in, with --project DIR for one project");
        checks.push(Check::not_fine(&format!("{name}_hook"), Status::Fail, "has no hook: its tools run freely", fix));
        return Ok(checks);
    }
    checks.extend(hooks);
    match program.map(|program| routes(host, program, here, context)) {
        Some(Err(error)) if error.code() == Code::Interrupted => return Err(error),
        Some(Err(error)) => {
            let fix = error.hint_text().unwrap_or("try again").to_owned();
            checks.push(Check::not_fine(&format!("{name}_shell"), Status::Fail, error.message(), fix));
        }
        Some(Ok(routes)) => checks.extend(routes),
        None => {}
    }
    Ok(checks)
}

/// The home directory of the user, as the hosts determine it.
pub(super) fn person(context: &Context) -> Result<PathBuf> {
    hosts::person().map_or_else(|| policy::load(&context.home.policy_file()).map(|loaded| loaded.home), Ok)
}

/// The program and its version, and the version with which the routes were tried if it is another one.
fn installed(host: Host, program: &Path) -> String {
    let asked = cmd("timeout", [LIMIT.as_ref(), program.as_os_str(), "--version".as_ref()]).stdin_null().stderr_null();
    let (said, tried) = (asked.read().unwrap_or_default(), &host.facts().version);
    let own = said.lines().next().unwrap_or("says no version");
    let other = if own.contains(tried.as_str()) { String::new() } else { format!(" (tried with {tried})") };
    format!("{} {own}{other}", program.display())
}

/// Checks that the hook in a file is the one that would be installed now; `None` without a hook.
fn configured(host: Host, whose: &str, file: &Path, context: &Context) -> Option<Check> {
    let text = std::fs::read_to_string(file).ok()?;
    let found = has_hook(host, &text);
    if found.as_ref().is_ok_and(|is_there| !is_there) {
        return None;
    }
    let why = found.and_then(|_| own(context)).and_then(|(program, home)| {
        let command = Command { host, program: &program, home: &home, is_inside: false };
        Ok(if host == Host::Claude && !is_shell_written(&command) {
            Some("the program of CLAUDE_CODE_SHELL_PREFIX is missing or changed, so no command runs")
        } else if add_hook(&command, Some(&text))? != text {
            Some("not as this cp-exec writes it, so it may not close")
        } else {
            None
        })
    });
    let (name, place) = (format!("{}_{whose}", host.name()), file.display());
    let why = match &why {
        Ok(None) => return Some(Check::pass(&name, place.to_string())),
        Ok(Some(why)) => why,
        Err(error) => error.message(),
    };
    let fix = format!("`cp-exec hook install {}` replaces it", host.name());
    Some(Check::not_fine(&name, Status::Fail, format!("{place}: {why}"), fix))
}

/// Runs the host with a model that tries each of its routes, by a script that every installation has. With the hook, no
/// call has an effect outside of the project, and the model receives the output of a line from our sandbox, or the
/// refusal.
fn routes(host: Host, program: &Path, here: &Path, context: &Context) -> Result<Vec<Check>> {
    let not_run = |why: &str, fix: &str| {
        vec![Check::not_fine(&format!("{}_routes", host.name()), Status::Warn, format!("not tried: {why}"), fix)]
    };
    let (own, home) = own(context)?;
    let Some(python) = on_path("python3") else {
        return Ok(not_run("there is no python3", "install it, or add its directory to PATH"));
    };
    let Some(script) = script(Path::new(&own)) else {
        return Ok(not_run("the script hook-canary is not there", "install the programs as a release does"));
    };
    let words = ["-I".as_ref(), script.as_os_str(), host.name().as_ref(), program.as_os_str()];
    let words = words.into_iter().chain([&own, &home, SUPERVISOR].map(OsStr::new));
    let options = ChildOptions { after_input: Duration::ZERO, stderr: Stderr::Kept, ..ChildOptions::DEFAULT };
    let mut child = Child::start("hook-canary", &cmd(python, words).dir(here), options)?;
    let said = child.output(None, &mut |_| Ok(()))?.map(|(_, said)| said).unwrap_or_default();
    let checks: std::result::Result<Vec<Check>, _> = serde_json::Deserializer::from_slice(&said).into_iter().collect();
    let checks = checks.map_err(|e| Error::new(Code::Unknown, format!("hook-canary: {e}")))?;
    if checks.is_empty() { Err(child.gone()) } else { Ok(checks) }
}

/// The script of this installation, or of the repository for a program that is tested.
fn script(own: &Path) -> Option<PathBuf> {
    let installed = own.canonicalize().ok()?.parent()?.with_file_name("share").join("cp-tools/hook-canary");
    let of_repository = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/hook-canary"));
    [installed].into_iter().chain(cfg!(debug_assertions).then_some(of_repository)).find(|script| script.is_file())
}
