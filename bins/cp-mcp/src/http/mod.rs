//! A server over streamable HTTP, in both eras of the protocol.
