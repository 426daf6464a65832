//! Opens the paths of a view, and checks that they are unchanged since the decision.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::Stat;

use super::plan::View;
use super::report::Failure;
use crate::nofollow;

impl View {
    /// Opens a path of the view without following links; `None` if nothing exists there. Fails if it changed since
    /// the decision.
    pub(super) fn open(&self, path: &Path) -> Result<Option<OwnedFd>, Failure> {
        Ok(self.open_with_stat(path)?.map(|(file, _)| file))
    }

    /// The same, with the attributes of the file.
    pub(super) fn open_with_stat(&self, path: &Path) -> Result<Option<(OwnedFd, Stat)>, Failure> {
        let opened = nofollow::open(path).and_then(|file| match file {
            Some(file) => Ok(Some(rustix::fs::fstat(&file).map(|stat| (file, stat))?)),
            None => Ok(None),
        });
        let is_known = |stat: &Stat| self.nodes.get(path).is_none_or(|known| *known == (stat.st_dev, stat.st_ino));
        match opened {
            Ok(Some((file, stat))) if is_known(&stat) => Ok(Some((file, stat))),
            Ok(None) if !self.nodes.contains_key(path) => Ok(None),
            Ok(_) => Err(Failure::changed(path, "it is not what was there when it was checked")),
            Err(e) => Err(Failure::changed(path, &e.to_string())),
        }
    }
}
