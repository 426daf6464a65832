//! The paths of a view, opened again as what they were when they were decided about.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::plan::View;
use super::report::Failure;
use crate::place;

impl View {
    /// Opens a path of the view, through no link; none if nothing is there. It must be what was decided about.
    pub(super) fn open(&self, path: &Path) -> Result<Option<OwnedFd>, Failure> {
        let opened = place::open(path).and_then(|file| match file {
            Some(file) => place::node(&file).map(|node| Some((file, node))),
            None => Ok(None),
        });
        match opened {
            Ok(Some((file, node))) if self.nodes.get(path).is_none_or(|known| *known == node) => Ok(Some(file)),
            Ok(None) if !self.nodes.contains_key(path) => Ok(None),
            Ok(_) => Err(Failure::changed(path, "it is not what was there when it was checked")),
            Err(e) => Err(Failure::changed(path, &e.to_string())),
        }
    }
}
