//! A server over streamable HTTP, in both eras of the protocol: each message of the client is a request of its own there.

mod remote;

mod post;

mod stream;

mod link;

mod refusal;

mod client_message;

mod mirror;

pub(crate) mod address;
pub(crate) mod headers;

pub(crate) use self::remote::Remote;
