//! `cp-exec hook doctor`: checks which hosts have the hook, if it fails closed, and if the host really calls it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::coprocess::{Child, ChildOptions, Stderr, cmd, on_path};
use cp_common::home::resolved;
use cp_common::program::describe::report;
use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::{Code, Context, Error, Result};

use super::install::{edits, has_hook};
use crate::files::Pending;
use crate::hosts::{Command, Host};
use crate::sandbox::SUPERVISOR;
use crate::verbs::doctor::policy_check;

pub(crate) const DOC: VerbDoc =
    VerbDoc { examples: &["{} hook doctor"], ..VerbDoc::new("hook doctor", Class::Query, "doctor") };

/// Test each route of the hosts with one run of a local model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this one (default: those that are installed or configured)
    #[arg(value_name = "HOST", value_parser = Host::hooked())]
    host: Option<Host>,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let (mut checks, here) = (vec![policy_check(context)], context.base()?);
    for host in Host::HOOKED.into_iter().filter(|host| args.host.is_none_or(|asked| asked == *host)) {
        let (name, ours, program) = (host.name(), Command::of(host, context)?, on_path(host.name()));
        let places = [("person", None), ("project", Some(&*here))];
        let hooks: Vec<_> =
            places.into_iter().filter_map(|(whose, project)| configured(&ours, whose, project)).collect();
        if args.host.is_none() && program.is_none() && hooks.is_empty() {
            continue;
        }
        checks.push(match &program {
            Some(program) => Check::pass(name, program.display().to_string()),
            None => Check::not_fine(name, Status::Warn, "not on the path", "install it, or add its directory to PATH"),
        });
        if hooks.is_empty() {
            let (check, message) = (format!("{name}_hook"), "has no hook: its tools run freely");
            let fix = format!("`cp-exec hook install {name}` puts it in, with --project DIR for one project");
            checks.push(Check::not_fine(&check, Status::Fail, message, fix));
            continue;
        }
        checks.extend(hooks);
        match program.map(|program| routes(&ours, &program, &here)) {
            Some(Err(error)) if error.code() == Code::Interrupted => return Err(error),
            Some(Err(error)) => {
                let fix = error.hint_text().unwrap_or("try again").to_owned();
                checks.push(Check::not_fine(&format!("{name}_shell"), Status::Fail, error.message(), fix));
            }
            Some(Ok(routes)) => checks.extend(routes),
            None => {}
        }
    }
    if checks.len() == 1 {
        let message = "neither claude nor codex is on the path or has the hook";
        checks.push(Check::not_fine("hosts", Status::Warn, message, "`cp-exec hook install HOST` puts the hook in"));
    }
    report(&checks, context)
}

/// Checks that the hook of the user or of a project is the one that would be installed now; `None` without a hook.
fn configured(ours: &Command, whose: &str, project: Option<&Path>) -> Option<Check> {
    let (host, file) = (ours.host, ours.host.hook_file(project));
    if matches!(has_hook(host, &file), Ok(false)) {
        return None;
    }
    let (name, file) = (format!("{}_{whose}", host.name()), resolved(&file));
    let changed = |(others, own): (Vec<Pending>, Pending)| [own].into_iter().chain(others).find(Pending::is_change);
    let why = match edits(&file, host, Some(ours)).map(changed) {
        Ok(None) => return Some(Check::pass(&name, file.display().to_string())),
        Ok(Some(Pending { path, .. })) => {
            format!("{}: missing, or not as this cp-exec writes it, so it may not close", path.display())
        }
        Err(error) => error.message().to_owned(),
    };
    Some(Check::not_fine(&name, Status::Fail, why, format!("`cp-exec hook install {}` replaces it", host.name())))
}

/// Runs the host with a model that tries each of its routes, by a script that every installation has. With the hook, no
/// call has an effect outside of the project, and the model receives the output of a line from our sandbox, or the
/// refusal.
fn routes(ours: &Command, program: &Path, here: &Path) -> Result<Vec<Check>> {
    let name = ours.host.name();
    let not_run = |why: &str, fix: &str| {
        vec![Check::not_fine(&format!("{name}_routes"), Status::Warn, format!("not tried: {why}"), fix)]
    };
    let Some(python) = on_path("python3") else {
        return Ok(not_run("there is no python3", "install it, or add its directory to PATH"));
    };
    let Some(script) = script(Path::new(&ours.program)) else {
        return Ok(not_run("the script hook-canary is not there", "install the programs as a release does"));
    };
    let words = ["-I".as_ref(), script.as_os_str(), name.as_ref(), program.as_os_str()];
    let words = words.into_iter().chain([&ours.program, &ours.home, SUPERVISOR].map(OsStr::new));
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
