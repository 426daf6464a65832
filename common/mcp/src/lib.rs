//! The Model Context Protocol over standard streams: messages, versions, tools and content, for clients and servers. This crate has only
//! data types; it does not read, write or start anything.

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
