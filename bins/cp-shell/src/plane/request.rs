//! The parameters of a request to the control plane, and the failure of a request.

use cp_common::Code;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The parameters of a request, including unknown ones.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    /// The operation, for messages.
    pub(crate) operation: &'static str,
    pub(crate) members: Map<String, Value>,
}

impl Parameters {
    /// A required parameter.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Failure> {
        self.optional(name)?.filter(|text| !text.is_empty()).ok_or_else(|| {
            Failure::new("MISSING_FIELD", format!("{} needs `{name}`", self.operation)).with("field", name)
        })
    }

    /// An optional parameter; `null` is the same as none.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                Err(Failure::request(format!("`{name}` must be a string, not {}", type_of(other))).with("field", name))
            }
        }
    }

    /// An optional count, a positive integer.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, Failure> {
        match self.members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                match value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0) {
                    Some(count) => Ok(Some(count)),
                    None => Err(Failure::request(format!("`{name}` must be a positive integer, not {value}"))
                        .with("field", name)),
                }
            }
        }
    }
}

/// The type of a value, for messages.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Why a request failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields, rename = "Fault"))]
pub(crate) struct Failure {
    /// The code, such as `MISSING_FIELD`.
    pub(crate) code: &'static str,
    /// The message.
    pub(crate) message: String,
    /// Details for programs.
    pub(crate) details: Map<String, Value>,
}

impl Failure {
    /// A failure without details.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// The failure for a member of the request with an invalid type or value.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new("INVALID_REQUEST", message)
    }

    /// The failure for a tree that cannot be read.
    pub(crate) fn handler(message: impl Into<String>) -> Self {
        Self::new("HANDLER_ERROR", message)
    }

    /// Adds a detail.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a hint.
    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.with("hint", hint.into())
    }

    /// Adds a general hint for the code if the failure has none.
    #[must_use]
    pub(crate) fn hinted(self) -> Self {
        if self.details.contains_key("hint") {
            return self;
        }
        let hint = match (self.code, self.details.get("field").and_then(Value::as_str)) {
            ("MISSING_FIELD", Some(field)) => format!("add \"{field}\":\"...\""),
            ("HANDLER_ERROR", _) => "run `cp-shell doctor` to find the cause, then retry".to_owned(),
            _ => "see OPERATIONS in cp-shell(1) for the parameters".to_owned(),
        };
        self.hint(hint)
    }

    /// True if something was denied.
    pub(crate) fn is_denial(&self) -> bool {
        let code = self.details.get("error_code").and_then(Value::as_str).unwrap_or_default();
        self.code == "CAPABILITY_DENIED"
            || ["E_FORBIDDEN", "E_CONFIRMATION_REQUIRED", "E_HUMAN_REQUIRED"].contains(&code)
    }

    /// The `error` member of the envelope.
    pub(crate) fn to_value(&self) -> Value {
        json!(self)
    }
}

impl From<cp_common::Error> for Failure {
    /// The code and details of the error become details of the failure.
    fn from(error: cp_common::Error) -> Self {
        let mut details = error.details();
        details.insert("error_code".to_owned(), error.code().row().name.into());
        // A refusal by the tree's own declarations always has the same code. A governed path is refused with the name
        // of its class.
        let class = details.get("class").filter(|class| class.is_string()).cloned();
        if let Some(class) = class {
            let message = format!("{}: {}", error.message(), class.as_str().unwrap_or_default());
            details.insert("rule".to_owned(), class);
            return Self { code: "CAPABILITY_DENIED", message, details };
        }
        let is_declared = details.get("rule").is_some_and(|rule| rule == "capabilities");
        let code = if is_declared { "CAPABILITY_DENIED" } else { "HANDLER_ERROR" };
        Self { code, message: error.message().to_owned(), details }
    }
}

impl From<Failure> for cp_common::Error {
    /// The failure as an error for a person.
    fn from(failure: Failure) -> Self {
        let code = if failure.is_denial() { Code::Forbidden } else { Code::Validation };
        let failure = failure.hinted();
        failure.details.into_iter().fold(Self::new(code, failure.message), |error, (name, value)| match value {
            Value::String(hint) if name == "hint" => error.hint(hint),
            value => error.with(&name, value),
        })
    }
}
