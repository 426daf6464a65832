//! `cp-mcp` as an agent meets it.

mod conformance;
mod hostile;
mod libraries;
