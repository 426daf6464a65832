//! JSON Schemas of the output that several programs share.

macro_rules! shared {
    ($($name:literal),*) => {
        /// The schemas, each a name and a text. `reference` has those that an output of the program names.
        pub(crate) const SHARED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../schemas/", $name, ".json")))),*];
    };
}

shared!(
    "changelog",
    "completions",
    "context",
    "delta",
    "doctor",
    "error",
    "message",
    "passed",
    "preview",
    "prompt",
    "receipt",
    "reference",
    "summary",
    "tool_call",
    "tool_result"
);

/// The schema of a message.
pub const MESSAGE: &str = include_str!("../../schemas/message.json");
