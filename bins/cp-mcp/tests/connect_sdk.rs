//! `cp-mcp connect`, over the servers of the official SDKs.
