//! Where the streams of a command come from and go to. Files are opened in the command's own view and with its own rights, so that a
//! descriptor allows nothing that the path does not.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::plan::{How, Redirect, To};
use super::report::{Cause, Failure};
use super::wire::memory_file;
use crate::place;

/// Makes the redirections of a command that is about to start.
pub(super) fn make(redirects: &[Redirect]) -> std::result::Result<(), Failure> {
    each(redirects, |fd, target| match fd {
        0 => Ok(rustix::stdio::dup2_stdin(target)?),
        1 => Ok(rustix::stdio::dup2_stdout(target)?),
        _ => Ok(rustix::stdio::dup2_stderr(target)?),
    })
}

/// Opens the files of redirections that no command is for: they are made, or emptied.
pub(crate) fn open_all(redirects: &[Redirect]) -> std::result::Result<(), Failure> {
    each(redirects, |_, _| Ok(()))
}

fn each(redirects: &[Redirect], mut point: impl FnMut(u8, &OwnedFd) -> Result<()>) -> std::result::Result<(), Failure> {
    let mut made = Vec::new();
    redirects.iter().try_for_each(|redirect| {
        target(redirect, &mut made).and_then(|target| point(redirect.fd, &target)).map_err(|e| {
            let name = match &redirect.to {
                To::File(path, _) => path.display().to_string(),
                To::Stream(fd) => fd.to_string(),
                To::Text(_) | To::Null => "input".to_owned(),
            };
            let reason = e.raw_os_error().map_or_else(|| e.to_string(), reason_of);
            Failure { step: "redirect".to_owned(), message: format!("{name}: {reason}"), cause: Cause::Redirect }
        })
    })
}

/// The words of the C library, without the number that Rust adds.
fn reason_of(number: i32) -> String {
    let text = Error::from_raw_os_error(number).to_string();
    text.split_once(" (os error").map_or(text.clone(), |(reason, _)| reason.to_owned())
}

fn target<'a>(redirect: &'a Redirect, made: &mut Vec<&'a Path>) -> Result<OwnedFd> {
    Ok(match &redirect.to {
        To::Stream(0) => rustix::stdio::stdin().try_clone_to_owned()?,
        To::Stream(1) => rustix::stdio::stdout().try_clone_to_owned()?,
        To::Stream(_) => rustix::stdio::stderr().try_clone_to_owned()?,
        To::Text(text) => memory_file("text", text.as_bytes())?,
        To::Null => rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?,
        To::File(path, how) => {
            let again = *how == How::Create && made.contains(&path.as_path());
            made.push(path);
            open(path, *how, again)?
        }
    })
}

/// Opens a file through no link. `again`: this command made it a moment ago.
fn open(path: &Path, how: How, again: bool) -> Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::ISDIR.into());
    };
    let parent = place::open(parent)?.ok_or(Errno::NOENT)?;
    let flags = match how {
        How::Read => OFlags::RDONLY,
        How::Append => OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND,
        How::Create if again => OFlags::WRONLY | OFlags::TRUNC,
        How::Create => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        How::Replace(_) | How::Fill(_) => OFlags::WRONLY,
    };
    // What is no file, such as a pipe with a name, must not make this wait.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o666))?);
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !meta.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let file = OwnedFd::from(file);
    if let How::Replace(node) | How::Fill(node) = how {
        let filled = matches!(how, How::Fill(_)) && meta.len() > 0;
        if place::node(&file)? != node || filled {
            return Err(Error::other("it is not the file that was checked"));
        }
        rustix::fs::ftruncate(&file, 0)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_opened_as_it_was_decided_about_and_through_no_link() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let (file, other) = (root.join("file"), root.join("other"));
        assert!(open(&file, How::Create, false).is_ok());
        assert_eq!(open(&file, How::Create, false).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        assert!(open(&file, How::Create, true).is_ok());
        let node = |path: &Path| place::node(&place::open(path).unwrap().unwrap()).unwrap();
        let before = node(&file);
        assert!(open(&file, How::Fill(before), false).is_ok());
        fs::write(&file, "held").unwrap();
        assert!(open(&file, How::Fill(before), false).is_err());
        assert!(open(&file, How::Append, false).is_ok() && fs::read(&file).unwrap() == b"held");
        assert!(open(&file, How::Replace(before), false).is_ok() && fs::read(&file).unwrap().is_empty());
        fs::write(&other, "kept").unwrap();
        fs::rename(&other, &file).unwrap();
        assert!(open(&file, How::Replace(before), false).is_err());
        std::os::unix::fs::symlink(&file, &other).unwrap();
        let in_link = std::os::unix::fs::symlink(&root, root.join("up")).map(|()| root.join("up/file"));
        for path in [&other, &in_link.unwrap()] {
            for how in [How::Read, How::Append, How::Replace(node(&file))] {
                assert_eq!(open(path, how, false).unwrap_err().raw_os_error(), Some(libc::ELOOP), "{path:?}");
            }
        }
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        assert_eq!(reason_of(libc::ENOENT), "No such file or directory");
    }
}
