//! Executable tools: files in a `--tools` directory, called with JSON and asked to describe themselves.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::{Code, Error, Result};

use crate::decide::{Risk, Ruling, plan};
use crate::engine;
use crate::governor::Governor;
use crate::names::{Names, refuse};
use crate::patterns::name_matches;
use crate::request::{Command, ToolCall};
use crate::sandbox::plan::{Network, Profile};

/// The most bytes of arguments that also go into argv.
const ARGUMENT: usize = 32 * 1024;
/// How long a tool may take to describe itself.
const DESCRIBE: Duration = Duration::from_secs(2);

/// Decides about a call of a tool, and prepares what it reads.
pub(crate) fn rule(governor: &mut Governor, call: &ToolCall) -> Result<(Ruling, OwnedFd)> {
    let path = find(governor, &call.name)?;
    permitted(governor, &call.name)?;
    let mut hashes = std::mem::take(&mut governor.hashes);
    let pinned = governor.names().pin(&path, &mut hashes, &|path| governor.writable_only(path), Names::depth());
    governor.hashes = hashes;
    let pinned = pinned?;

    let arguments = call.arguments.get();
    let mut argv = vec![path.display().to_string()];
    if call.describe {
        argv.push("--describe".to_owned());
    } else if arguments.len() <= ARGUMENT {
        argv.push(arguments.to_owned());
    }
    governor.check_base()?;
    let seconds = Duration::from_secs_f64(governor.loaded.policy.exec.timeout);
    let timeout = if call.describe { DESCRIBE } else { seconds };
    let base = governor.places.base.clone();
    let (mut plan, made) = plan(governor, &Command::default(), &argv, &pinned, &base, timeout)?;
    // A tool's own directory is no place for it to write, and asking what it is gives it nothing.
    plan.write.retain(|path| !governor.tools.contains(path));
    if call.describe {
        plan.profile = if pinned.prefix.is_empty() { Profile::Strict } else { plan.profile };
        plan.network = Network::None;
        plan.write.clear();
    }
    let stdin = engine::stdin_of(if call.describe { b"" } else { arguments.as_bytes() })?;
    let ruling = Ruling {
        plan,
        argv,
        pinned,
        timeout,
        rule: "tools.allow".to_owned(),
        confirm: None,
        risk: Risk::Medium,
        notices: Vec::new(),
        made,
    };
    Ok((ruling, stdin))
}

/// The file of a tool. Its name is one component, so no path leads out of the directories.
fn find(governor: &Governor, name: &str) -> Result<PathBuf> {
    let plain = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'));
    let found = governor.tools.iter().map(|tools| tools.join(name)).find(|path| plain && path.is_file());
    match found.filter(|_| !name.starts_with('.')) {
        Some(path) => path.canonicalize().map_err(|e| Error::io("the tool", e).in_file(&path)),
        None => Err(Error::new(Code::NotFound, format!("no tool `{name}`"))
            .with("rule", "tool")
            .hint("the tools are shell, filesystem, system, and the executables of each --tools DIR")),
    }
}

/// The policy's word on a tool.
fn permitted(governor: &Governor, name: &str) -> Result<()> {
    let allow = &governor.loaded.policy.tools.allow;
    if allow.iter().any(|pattern| name_matches(pattern, name)) {
        return Ok(());
    }
    Err(refuse("tools.allow", format!("Tool not permitted: {name}")).hint("add it to tools.allow of the policy"))
}
