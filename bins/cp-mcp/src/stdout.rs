//! Standard output to the client: the lines of the protocol, and nothing else. With `--format json` each line is a record.

use cp_common::output::Format;
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Context, Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;

/// A message to the client.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["message"])))]
pub(crate) struct Item<'a> {
    /// The message.
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, serde_json::Value>"))]
    message: &'a RawValue,
    /// JSON Pointers to untrusted members.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 1],
}

impl Reply for Item<'_> {
    fn text(&self) -> String {
        self.message.get().to_owned()
    }
}

/// Starts the protocol: a later failure writes no record of its own, unless the output is records.
pub(crate) fn begin(context: &mut Context) -> Result<()> {
    if in_records(context) {
        return context.out.streaming();
    }
    context.out.ended_with(0);
    Ok(())
}

/// Writes a message, which ends with a line feed.
pub(crate) fn write(line: &[u8], context: &mut Context) -> Result<()> {
    if line.is_empty() || !in_records(context) {
        return context.out.raw(line);
    }
    let message = serde_json::from_slice(line).map_err(|e| Error::validation(format!("a message: {e}")))?;
    context.out.record(Kind::Item, &Item { message, untrusted: ["/message"] })
}

fn in_records(context: &Context) -> bool {
    context.options.json || context.options.format == Some(Format::Json)
}
