//! What passes between a client and another server: checked by policy, recorded, and without secrets.

use cp_common::{Code, Context, Error, Result};

use crate::inbox::Post;

/// A server behind the gate. What it says is posted as events; when it has left, that is the last of them.
pub(crate) trait Server {
    /// Sends it a line, without its line feed.
    fn send(&mut self, line: &[u8]) -> Result<()>;

    /// Tells it that nothing more comes, and lets it leave within its grace.
    fn close(&mut self) -> Result<()>;
}

/// Stands between the client and the server of this name until one of them leaves.
pub(crate) fn pass<S: Server>(
    _name: &str,
    _start: impl FnOnce(Post, &Context) -> Result<S>,
    _context: &mut Context,
) -> Result<()> {
    Err(Error::new(Code::Unknown, "to be built"))
}
