//! Redirections: which file each means, whether policy allows it, and what has to be confirmed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cp_common::Result;

use super::paths::reached;
use crate::lowering::steps::{self, Target};
use crate::policy::{Access, Policy, Verdict, readable, writable};
use crate::refusal::refuse;
use crate::rules::{Finding, Risk};
use crate::sandbox::plan::{How, Redirect, To};

/// Redirections that policy allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redirected {
    pub redirects: Vec<Redirect>,
    /// What has to be confirmed.
    pub asks: Vec<Finding>,
}

impl Redirected {
    /// The files that are opened, with whether each is written.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, bool)> {
        self.redirects.iter().filter_map(|redirect| match &redirect.to {
            To::File(path, how) => Some((path.as_path(), *how != How::Read)),
            To::Stream(_) | To::Text(_) | To::Null => None,
        })
    }
}

/// Decides about the redirections of one command. A file that came after `since` belongs to the plan, which may write over it.
pub(super) fn decide(
    policy: &Policy,
    redirects: &[steps::Redirect],
    cwd: &Path,
    status: u8,
    since: Option<SystemTime>,
) -> Result<Redirected> {
    let mut decided = Redirected::default();
    for steps::Redirect { fd, target } in redirects {
        let (path, access) = match target {
            Target::Dup { to } => {
                decided.redirects.push(Redirect { fd: *fd, to: To::Stream(*to) });
                continue;
            }
            Target::Text { text } => {
                decided.redirects.push(Redirect { fd: *fd, to: To::Text(text.with_status(status)) });
                continue;
            }
            Target::Read { path } => (path, Access::Read),
            Target::Write { path } | Target::Append { path } => (path, Access::Write),
        };
        if path.has_pattern() {
            return Err(
                refuse("redirection", "a pattern names the file of a redirection").hint("write the file's name")
            );
        }
        let name = path.with_status(status);
        let appends = matches!(target, Target::Append { .. });
        let to = if let Some(to) = device(&name, access)? {
            to
        } else {
            let path = reached(cwd, &name);
            policy.modules_at(&[cwd]).into_iter().try_for_each(|module| module.check(access, &path))?;
            file(policy, &path, access, appends, since, &mut decided.asks)?
        };
        decided.redirects.push(Redirect { fd: *fd, to });
    }
    Ok(decided)
}

/// The names that mean no file of their own.
fn device(name: &str, access: Access) -> Result<Option<To>> {
    Ok(Some(match (name, access) {
        ("/dev/null", _) => To::Null,
        ("/dev/stdin" | "/dev/fd/0", Access::Read) => To::Stream(0),
        ("/dev/stdout" | "/dev/fd/1", Access::Write) => To::Stream(1),
        ("/dev/stderr" | "/dev/fd/2", Access::Write) => To::Stream(2),
        _ if ["/dev/tcp/", "/dev/udp/"].iter().any(|start| name.starts_with(start)) => {
            return Err(refuse("redirection", format!("`{name}` is a connection, not a file"))
                .hint("use a program that policy lets reach the network"));
        }
        _ => return Ok(None),
    }))
}

fn file(
    policy: &Policy,
    path: &Path,
    access: Access,
    appends: bool,
    since: Option<SystemTime>,
    asks: &mut Vec<Finding>,
) -> Result<To> {
    if access == Access::Read {
        readable(policy, path)?;
        return Ok(To::File(path.to_owned(), How::Read));
    }
    writable(policy, path, path)?;
    let how = match fs::symlink_metadata(path) {
        _ if appends => How::Append,
        Ok(meta) if meta.is_file() && meta.len() == 0 => How::Fill((meta.dev(), meta.ino())),
        Ok(meta) => {
            let made = since.is_some_and(|since| meta.created().is_ok_and(|created| created >= since));
            if meta.is_file() && !made {
                asks.push(overwrites(path));
            }
            How::Replace((meta.dev(), meta.ino()))
        }
        Err(_) => How::Create,
    };
    Ok(To::File(PathBuf::from(path), how))
}

fn overwrites(path: &Path) -> Finding {
    Finding {
        verdict: Verdict::Confirm,
        rule: "overwrite".to_owned(),
        reason: format!("`>`: overwrites {}", path.display()),
        ..Finding::allowed(Risk::High)
    }
}
