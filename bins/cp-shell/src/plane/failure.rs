//! Why a request of the control plane failed: a code of its own table, words, and facts.

use cp_common::Code;
use serde_json::{Map, Value, json};

/// A failure in the control plane's own form.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Its code, such as `MISSING_FIELD`.
    pub(crate) code: &'static str,
    /// What happened.
    pub(crate) message: String,
    /// Facts for programs; `hint` says what to do.
    pub(crate) details: Map<String, Value>,
}

impl Failure {
    /// A failure without facts.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// A member of the request has the wrong type or value.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new("INVALID_REQUEST", message)
    }

    /// The tree cannot be read as it should.
    pub(crate) fn handler(message: impl Into<String>) -> Self {
        Self::new("HANDLER_ERROR", message)
    }

    /// Adds a fact.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.with("hint", hint.into())
    }

    /// With what to do about it, also where nothing better is known than what its code says.
    #[must_use]
    pub(crate) fn hinted(self) -> Self {
        if self.details.contains_key("hint") {
            return self;
        }
        let hint = match (self.code, self.details.get("field").and_then(Value::as_str)) {
            ("MISSING_FIELD", Some(field)) => format!("give it: \"{field}\":\"...\""),
            ("HANDLER_ERROR", _) => "`cp-shell doctor` looks for what is missing; then ask again".to_owned(),
            _ => "cp-shell(1), OPERATIONS, says what each takes".to_owned(),
        };
        self.hint(hint)
    }

    /// Whether something was not allowed.
    pub(crate) fn is_denial(&self) -> bool {
        let code = self.details.get("error_code").and_then(Value::as_str).unwrap_or_default();
        self.code == "CAPABILITY_DENIED"
            || ["E_FORBIDDEN", "E_CONFIRMATION_REQUIRED", "E_HUMAN_REQUIRED"].contains(&code)
    }

    /// The `error` member of an envelope.
    pub(crate) fn to_value(&self) -> Value {
        json!({"code": self.code, "message": self.message, "details": self.details})
    }
}

impl From<cp_common::Error> for Failure {
    /// An error of ours keeps its code and its facts in the details.
    fn from(error: cp_common::Error) -> Self {
        let mut details = error.details();
        details.insert("error_code".to_owned(), error.code().row().name.into());
        // What a tree declares of itself is one kind of refusal, whoever finds it out; what it governs is refused by the name of its class.
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
    /// What the control plane refused, for a person.
    fn from(failure: Failure) -> Self {
        let code = if failure.is_denial() { Code::Forbidden } else { Code::Validation };
        let failure = failure.hinted();
        failure.details.into_iter().fold(Self::new(code, failure.message), |error, (name, value)| match value {
            Value::String(hint) if name == "hint" => error.hint(hint),
            value => error.with(&name, value),
        })
    }
}
