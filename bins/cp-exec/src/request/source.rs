//! Requests as lines of standard input.

use cp_common::stream::filter::Body;
use cp_common::wire::ToolCall;
use cp_common::{Error, Result};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Request;

/// The request, which determines the form of the answer.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Source {
    /// A bare request.
    #[serde(serialize_with = "without_values")]
    Row(Box<RawValue>),
    Call(Call),
}

impl Source {
    /// The id of the tool call, if the request is one.
    pub(crate) fn call(&self) -> Option<&str> {
        match self {
            Self::Row(_) => None,
            Self::Call(call) => Some(&call.id),
        }
    }
}

/// A tool call, as it is recorded on the ledger.
#[derive(Serialize)]
pub(crate) struct Call {
    #[serde(skip)]
    pub id: String,
    pub name: String,
    #[serde(serialize_with = "without_values")]
    pub input: Box<RawValue>,
}

/// Parses a line as a request. An invalid one is refused in order, like any other. `home` is the value of `~`.
pub(crate) fn of_line(body: Body<'_>, home: &str) -> Result<(Source, Result<Request>)> {
    match body {
        Body::Text(_) => Err(Error::validation("requests are JSON objects, one per line")
            .hint("for a command line use -c STRING or -- COMMAND ARG…")),
        Body::Row(row) => Ok((Source::Row(row.to_owned()), super::of_row(row, home))),
        Body::Record(record) => {
            let call: ToolCall = record.read()?;
            let mut request = super::of_call(&call.name, &call.input, home);
            if let Ok(Request::Tool(tool)) = &mut request {
                tool.timeout = call.timeout;
            }
            Ok((Source::Call(Call { id: call.id, name: call.name, input: call.input }), request))
        }
    }
}

/// Serializes a request for the ledger, with the names but not the values of its variables.
fn without_values<S: serde::Serializer>(request: &RawValue, out: S) -> std::result::Result<S::Ok, S::Error> {
    let Ok(mut value) = serde_json::from_str::<Value>(request.get()) else { return request.serialize(out) };
    for pointer in ["/env", "/arguments/env"] {
        let variables = value.pointer_mut(pointer).and_then(Value::as_object_mut);
        variables.into_iter().flatten().for_each(|(_, value)| *value = "…".into());
    }
    value.serialize(out)
}
