//! Requests to the control plane, the operations, and the failure of a request.

use cp_common::Code;
use cp_common::program::Class;
use cp_common::spelling::nearest;
use serde::Serialize;
use serde_json::{Map, Value, json};

named_enum! {
    /// An operation of the control plane. The order is that of the standard.
    Operation[17]:
    PkgList "pkg_list" "The installed packages.",
    PkgInfo "pkg_info" "One installed package.",
    LedgerQuery "ledger_query" "The newest entries of a ledger.",
    GateStatus "gate_status" "The gates and their failures.",
    Compliance "compliance" "A summary of the governance of the tree.",
    Trace "trace" "The kind and lineage of an artifact.",
    SignalStatus "signal_status" "The signals of the session.",
    ExecuteCommand "execute_command" "A command of the shell.",
    ManifestRequirements "manifest_requirements" "The requirements for a manifest.",
    PackagingWorkflow "packaging_workflow" "The steps to a package.",
    Troubleshoot "troubleshoot" "The meaning of gate errors, and their fixes.",
    ExampleManifest "example_manifest" "A manifest to start from.",
    ListFrameworks "list_frameworks" "The registered frameworks.",
    ListSpecs "list_specs" "The registered specs.",
    SpecInfo "spec_info" "The manifest of a spec.",
    GovernedRoots "governed_roots" "The governed roots.",
    ExplainPath "explain_path" "The class of a path.",
}

impl Operation {
    /// The operation with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// The class that decides how it is governed.
    pub(crate) fn class(self) -> Class {
        if self == Self::ExecuteCommand { Class::Governed } else { Class::Query }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The operation.
    pub(crate) operation: Operation,
    /// The parameters, including unknown ones.
    pub(crate) parameters: Map<String, Value>,
}

impl Request {
    /// A request without parameters.
    pub(crate) fn new(operation: Operation) -> Self {
        Self { operation, parameters: Map::new() }
    }

    /// Sets a parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.to_owned(), value.into());
        self
    }

    /// Parses a request. The default operation is `pkg_list`.
    pub(crate) fn from_value(value: &Value) -> Result<Self, Failure> {
        let Value::Object(object) = value else {
            return Err(Failure::request(format!("a request must be a JSON object, not {}", type_of(value)))
                .hint("write {\"operation\":\"pkg_list\"}"));
        };
        let operation = match object.get("operation") {
            None => Operation::PkgList,
            Some(Value::String(name)) => Operation::from_name(name).ok_or_else(|| unknown(name))?,
            Some(other) => {
                return Err(Failure::request(format!("`operation` must be a string, not {}", type_of(other)))
                    .with("field", "operation"));
            }
        };
        let mut parameters = object.clone();
        parameters.shift_remove("operation");
        Ok(Self { operation, parameters })
    }

    /// A required parameter.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Failure> {
        self.optional(name)?.filter(|text| !text.is_empty()).ok_or_else(|| {
            let operation = self.operation.name();
            Failure::new("MISSING_FIELD", format!("{operation} needs `{name}`")).with("field", name)
        })
    }

    /// An optional parameter; `null` is the same as none.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.parameters.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                Err(Failure::request(format!("`{name}` must be a string, not {}", type_of(other))).with("field", name))
            }
        }
    }

    /// An optional count, a positive integer.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, Failure> {
        match self.parameters.get(name) {
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

fn unknown(name: &str) -> Failure {
    let names = Operation::ALL.map(Operation::name);
    let failure = Failure::new("UNKNOWN_OPERATION", format!("unknown operation `{name}`"))
        .with("operation", name)
        .with("valid_operations", names.to_vec());
    match nearest(name, names) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure,
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
