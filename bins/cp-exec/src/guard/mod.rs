//! What other programs run later, and the directory that outlasts a command.

pub(crate) mod session_tmp;
