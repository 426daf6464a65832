//! Executable tools: files in a `--tools` directory that are called with JSON, and that can describe themselves.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::{Code, Error, Result};

use crate::decision::{Caller, Decision, HashCache, Ruling, check_modules, pin, plan, timeout_of};
use crate::policy::{LONGEST, Policy, Verdict};
use crate::refusal::refuse;
use crate::request::{Command, ToolCall};
use crate::rules::Finding;
use crate::sandbox::plan::{Layer, Operation, Place, Profile};
use cp_common::glob::name_matches;

/// The most bytes of arguments that are also passed in argv.
const ARGUMENT: usize = 32 * 1024;
/// The time limit for a description.
const DESCRIBE: Duration = Duration::from_secs(2);

/// Decides about a call of a tool.
pub(crate) fn rule(policy: &Policy, hashes: &mut HashCache, call: &ToolCall) -> Result<Ruling> {
    let path = find(policy, &call.name)?;
    permitted(policy, &call.name, true)?;
    let pinned = pin(policy, &path, hashes)?;

    let arguments = call.arguments.get();
    let mut argv = vec![path.display().to_string()];
    if call.describe {
        argv.push("--describe".to_owned());
    } else if arguments.len() <= ARGUMENT {
        argv.push(arguments.to_owned());
    }
    policy.check_base()?;
    let timeout =
        if call.describe { DESCRIBE } else { timeout_of(policy, call.timeout.map(|seconds| seconds.min(LONGEST)))? };
    check_modules(policy, &policy.base, &path, &[])?;
    let input = if call.describe { "" } else { arguments };
    let asks = !call.describe && requires_approval(policy, &call.name);
    let finding = Finding {
        verdict: if asks { Verdict::Ask } else { Verdict::Allow },
        rule: if asks { "tools.approve" } else { "tools.allow" }.to_owned(),
        reason: format!("tools.approve of the policy lists `{}`", call.name),
        ..Finding::allowed()
    };
    let command = Command { argv, stdin: Some(input.to_owned()), ..Command::default() };
    let cwd = policy.base.clone();
    let mut ruling = plan(policy, Decision { command, finding, pinned, cwd, timeout, caller: Caller::Line })?;
    let plan = &mut ruling.plan;
    // A tool must not write to its own directory. A description needs neither network nor files.
    let stays = |place: &Place| !call.describe && !policy.tools.contains(&place.path);
    plan.view.places.retain(|place| place.operation != Operation::Write || stays(place));
    if call.describe {
        if plan.script.is_none() {
            plan.profile = Profile::Strict;
            plan.require.push(Layer::Listener);
        }
        plan.sockets = false;
    }
    ruling.watched.only_in(&plan.view);
    Ok(ruling)
}

/// The file of a tool. A tool name is one path component, so it cannot name a file outside of the directories.
fn find(policy: &Policy, name: &str) -> Result<PathBuf> {
    let plain = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'));
    let found = policy.tools.iter().map(|tools| tools.join(name)).find(|path| plain && path.is_file());
    match found.filter(|_| !name.starts_with('.')) {
        Some(path) => path.canonicalize().map_err(|e| Error::io("the tool", e).in_file(&path)),
        None => Err(Error::new(Code::NotFound, format!("no tool `{name}`"))
            .with("rule", "tool")
            .hint("the tools are shell, bash, filesystem, system, and the executables of each --tools DIR")),
    }
}

/// The word in `tools.allow` for the tools that pass without this key.
pub(crate) const BY_DEFAULT: &str = "@default";

/// Refuses a tool that the policy does not allow. Without `tools.allow`, `by_default` decides.
pub(crate) fn permitted(policy: &Policy, name: &str, by_default: bool) -> Result<()> {
    let allow = policy.loaded.settings.tools.allow.as_ref();
    if allow.map_or(by_default, |allow| {
        allow.iter().any(|pattern| name_matches(pattern, name) || (by_default && pattern == BY_DEFAULT))
    }) {
        return Ok(());
    }
    Err(refuse("tools.allow", format!("Tool not permitted: {name}")).hint(policy.setting_hint("tools.allow")))
}

/// True if the policy requires approval of a tool.
pub(crate) fn requires_approval(policy: &Policy, name: &str) -> bool {
    policy.loaded.settings.tools.approve.iter().any(|pattern| name_matches(pattern, name))
}
