//! The checks of `cp-exec doctor`: the policy, the ledger, and every layer of the sandbox in use.

use std::path::Path;

use cp_common::program::{Check, Status};
use cp_common::{Code, Context, Error, Result};

use crate::decision::{self, HashCache};
use crate::policy::{self, Loaded, Policy};
use crate::request::Command;
use crate::run::helper::{self, Helper};
use crate::run::{Prepared, Steps, supervise};
use crate::sandbox;
use crate::sandbox::plan::Layer;
use crate::sandbox::report::Enforcement;

/// Checks everything that a run depends on.
pub(crate) fn checks(context: &mut Context) -> Vec<Check> {
    if sandbox::is_inside() {
        let words = "this is inside a cp-exec sandbox: the supervisor outside decides, records and limits";
        return vec![Check::pass("sandbox", words)];
    }
    let mut checks = vec![policy_check(context), ledger_check(context)];
    let loaded = policy::load(&context.home.policy_file());
    let needs_group = loaded.is_ok_and(|loaded| loaded.settings.exec.require.contains(&Layer::Cgroup));
    match probe(context) {
        Ok(enforcement) => layers(&enforcement, needs_group, &mut checks),
        Err(why) => checks.push(Check::not_fine(
            "sandbox",
            Status::Fail,
            format!("cannot start a command in the sandbox: {why}"),
            "allow user namespaces, or run as root; until this works no command runs, and the kernel log may say why",
        )),
    }
    checks
}

pub(super) fn policy_check(context: &Context) -> Check {
    match policy::load(&context.home.policy_file()) {
        Err(error) => {
            let fix = error.hint_text().unwrap_or("correct the file; `cp-exec policy show` checks it").to_owned();
            Check::not_fine("policy", Status::Fail, error.to_string(), fix)
        }
        Ok(loaded) if loaded.file.is_none() => Check::not_fine(
            "policy",
            Status::Warn,
            "no policy file, so no command is allowed",
            "`cp-exec policy init` writes a starter policy",
        ),
        Ok(Loaded { settings, .. }) => match settings.exec.allowed_commands.len() {
            0 => Check::not_fine("policy", Status::Warn, "it allows no commands", "add names to allowed_commands"),
            _ if settings.exec.allows_all() => Check::pass("policy", "allows every program of its path"),
            count => Check::pass("policy", format!("allows {count} commands")),
        },
    }
}

fn ledger_check(context: &Context) -> Check {
    let fix = "give --ledger FILE or --home DIR in a writable directory; without a ledger nothing runs";
    let path = match cp_ledger::effect_path(context, "cp-exec.jsonl") {
        Ok(path) => path,
        Err(error) => return Check::not_fine("ledger", Status::Fail, error.to_string(), fix),
    };
    // The permissions of the nearest existing directory determine whether the ledger can be created.
    let there = path.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::access(there, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Check::pass("ledger", path.display().to_string()),
        Err(error) => Check::not_fine("ledger", Status::Fail, format!("{}: {error}", there.display()), fix),
    }
}

/// Runs `true` with every available layer, under a policy of its own.
fn probe(context: &Context) -> Result<Enforcement> {
    let settings = policy::parse(
        "[exec]\nallowed_commands = [\"true\"]\nrequire = []\ndegraded = \"allow\"\n\
        timeout = 5\n[paths]\nread = [\"/usr\"]\nwrite = []\n",
    )?;
    let policy = Policy::of_loaded(Loaded::of(settings, rustix::process::getuid().as_raw()), context, &[])?;
    let command = Command { argv: vec!["true".to_owned()], cwd: Some("/usr".to_owned()), ..Command::default() };
    let decision = decision::decide(&policy, &mut HashCache::default(), &command)?;
    let mut ruling = decision::plan(&policy, decision)?;
    ruling.plan.view.session_tmp = None;
    let steps = Steps::new(&policy, &HashCache::default(), &mut ruling, 0);
    let outcome = supervise(&Helper::start(None)?, &mut Prepared::unrecorded(ruling), steps, None, None)?;
    if outcome.status.code != Some(0) {
        return Err(Error::new(Code::Unknown, format!("`true` ended with {:?}", outcome.status)));
    }
    Ok(outcome.enforcement)
}

fn layers(enforcement: &Enforcement, needs_group: bool, checks: &mut Vec<Check>) {
    let mut check = |name: &str, there: bool, status: Status, found: String, fix: &str| {
        checks.push(if there { Check::pass(name, found) } else { Check::not_fine(name, status, found, fix) });
    };
    let words = |there: bool| if there { "in force" } else { "absent" }.to_owned();
    let Enforcement { landlock, seccomp, listener, .. } = enforcement;
    let found = format!("interface {}, {}", sandbox::landlock_abi(), landlock.status);
    let fix = "use a kernel of 6.12 or later, with `landlock` in its list of security modules (lsm=)";
    check("landlock", landlock.status == "full", Status::Warn, found, fix);
    check("seccomp", *seccomp, Status::Warn, words(*seccomp), "use a kernel with CONFIG_SECCOMP_FILTER");
    let fix = "use a kernel of 5.5 or later, outside a container that filters seccomp";
    check("listener", *listener, Status::Warn, words(*listener), fix);
    let refused = enforcement.missing.iter().find(|text| text.starts_with("namespaces"));
    let found = refused.cloned().unwrap_or_else(|| enforcement.namespaces.join(", "));
    let nothing = "nothing runs unless the policy has degraded = \"allow\", and command lines never";
    let found = if enforcement.is_private() { found } else { format!("{found}: {nothing}") };
    let fix = "allow user namespaces (user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns), or run as root";
    check("namespaces", enforcement.is_private(), Status::Fail, found, fix);
    let is_there = !needs_group || helper::can_make_group();
    let found = if needs_group { words(is_there) } else { "the policy does not ask for a control group".to_owned() };
    let fix = "delegate a control group of version 2 with pids and memory to this user";
    check("cgroup", is_there, Status::Fail, found, fix);
    let user = rustix::process::geteuid();
    let found = format!("commands run as {}, without any capability", user.as_raw());
    let fix = "run cp-exec as an ordinary user, as with runuser -u USER -- cp-exec";
    check("uid", !user.is_root(), Status::Warn, found, fix);
}
