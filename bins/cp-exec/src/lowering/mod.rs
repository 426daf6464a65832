//! Command lines, lowered: from a string in the everyday part of the shell's language to steps that policy can decide about. No shell
//! ever sees the string.

pub(crate) mod steps;
