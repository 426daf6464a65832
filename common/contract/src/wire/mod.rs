//! The formats that two programs must agree on byte for byte. See cp-record(5) and cp-exit(7).
//!
//! Readers ignore unknown members. Text from a model, a tool or a person keeps its original bytes.

mod approval;
mod block;
pub mod error;
pub mod fields;
mod message;
mod prompt;
pub mod record;
mod reply;
mod turn;

use serde::Serialize;
use serde_json::value::RawValue;

pub use self::approval::{Action, Approval, AskedBy, Binds, Grant, How, Level, Scope, Shown, quoted};
pub use self::block::{Block, BlockView, DOCUMENT_LIMIT, Origin};
pub use self::error::{Code, Error, Result, misspelt_verb, nearest, without_secrets};
pub use self::message::{Delta, Extracted, Message, ToolCall, ToolResult, ToolSpec, Usage};
pub use self::prompt::{Params, Prompt, estimated_tokens};
pub use self::record::{Kind, Record};
pub(crate) use self::reply::Built;
pub use self::reply::{
    ArchiveName, CheckpointName, CwdName, DirectoryName, FileName, KeyName, LedgerName, Page, PathName, PublicName,
    Receipt, Reply, SegmentName, bytes_of,
};
pub use self::turn::{Content, Turn};

/// Encodes a value as raw JSON.
pub fn raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value).map_err(|e| Error::new(Code::Unknown, format!("encoding JSON: {e}")))
}
