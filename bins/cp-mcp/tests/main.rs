//! `cp-mcp` as an agent meets it.

mod hostile;
