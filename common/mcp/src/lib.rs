//! The Model Context Protocol over standard streams: its messages, versions, tools and contents, for a client and for a server. It
//! starts nothing, reads nothing and waits for nothing; whoever has the pipes does.

mod content;
mod message;
mod tool;
mod version;

pub use self::content::{CallResult, Media};
pub use self::message::{
    Failure, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Message, PARSE_ERROR,
    UNSUPPORTED_VERSION, failure, notification, parse, read, request, result,
};
pub use self::tool::{Annotations, Call, LeftOut, Page, Tool, is_tool_name};
pub use self::version::{Greeting, HANDSHAKES, Initialize, LEGACY, MODERN, Meta, Party};
