//! What `doctor` looks at: the server is started as a host would, and a tool is called.

use cp_common::Context;
use cp_common::program::Check;

pub(crate) fn checks(_context: &mut Context) -> Vec<Check> {
    Vec::new()
}
