//! A file that may be a tool.

use std::path::PathBuf;

/// A file that may be a tool, and what is known of it before it is asked.
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// The link that it was found as, where that has another name.
    pub(super) link: Option<PathBuf>,
    pub(super) sha256: String,
    pub(super) described: Option<String>,
}

impl Candidate {
    /// The name that cp-exec finds it by.
    pub(super) fn file_name(&self) -> String {
        let called = self.link.as_ref().unwrap_or(&self.path);
        called.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}
