//! The Model Context Protocol over standard streams: messages, versions, tools and content, for clients and servers.
//! This crate has only data types; it does not read, write or start anything.

mod message;
mod offers;
mod tool;

pub use self::message::{
    Failure, Greeting, HANDSHAKES, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, LEGACY, METHOD_NOT_FOUND, MODERN,
    Message, Meta, PARSE_ERROR, Party, UNSUPPORTED_VERSION, failure, read, request, response, result,
};
pub use self::offers::{Hints, Offer, OfferingServer, Offers};
pub use self::tool::{Annotations, Block, CallResult, Tool, is_tool_name};
