//! The seam between this program and its parts: records out, records in, failures as errors.

use cp_common::coprocess::Part;
use cp_common::wire::record::{Kind, Record};
use cp_common::{Code, Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Map<String, Value>,
}

/// The failure that a record reports. One that closes its stream is the part's own, and ends us too.
pub(crate) fn failure(part: &str, record: &Record<'_>) -> Error {
    let failure = record.error.and_then(|error| serde_json::from_str::<Failure>(error.get()).ok());
    let (message, details) = failure.map_or_else(Default::default, |failure| (failure.message, failure.details));
    let message = if message.is_empty() { format!("{part} failed and did not say why") } else { message };
    let mut error = Error::new(record.code(), message).with("part", part);
    for (name, value) in details.into_iter().filter(|(name, _)| name != "index") {
        error = match (name.as_str(), value) {
            ("hint", Value::String(hint)) => error.hint(hint),
            (_, value) => error.with(&name, value),
        };
    }
    if record.closed { error.fatal() } else { error }
}

/// The next line of a part, as a record.
pub(crate) fn next<T>(part: &mut Part, take: impl FnOnce(&str, &Record<'_>) -> Result<T>) -> Result<T> {
    let line = part.receive()?;
    let name = part.name().to_owned();
    let record = Record::parse(&line).map_err(|e| {
        Error::new(Code::Io, format!("{name} answered with something that is no record: {}", e.message())).fatal()
    })?;
    take(&name, &record)
}

/// What to say of a record that was not to be expected.
pub(crate) fn unexpected(part: &str, record: &Record<'_>) -> Error {
    let kind = record.kind_name.as_deref().unwrap_or("answer");
    if record.closed && record.kind == Some(Kind::Summary) {
        return Error::new(Code::Io, format!("{part} closed its stream before it answered")).fatal();
    }
    Error::new(Code::Io, format!("{part} answered with a `{kind}` record")).fatal()
}
