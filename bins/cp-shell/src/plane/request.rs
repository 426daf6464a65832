//! Requests to the control plane, the operations that can be requested, and the failure of a request.

use cp_common::Code;
use cp_common::program::Class;
use cp_common::spelling::nearest;
use serde_json::{Map, Value, json};

macro_rules! operations {
    ($($variant:ident $name:literal $meaning:literal),* $(,)?) => {
        /// What can be asked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation { $(#[doc = $meaning] $variant),* }

        impl Operation {
            /// All, in the order of the standard.
            pub(crate) const ALL: [Self; 17] = [$(Self::$variant),*];

            /// Its name on the wire.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

operations! {
    PkgList "pkg_list" "The installed packages.",
    PkgInfo "pkg_info" "One installed package.",
    LedgerQuery "ledger_query" "The newest entries of a ledger.",
    GateStatus "gate_status" "The gates, and what failed at them.",
    Compliance "compliance" "How the tree is governed, in short.",
    Trace "trace" "What an artifact is and where it comes from.",
    SignalStatus "signal_status" "The signals of the session.",
    ExecuteCommand "execute_command" "A command of the shell.",
    ManifestRequirements "manifest_requirements" "What a manifest must hold.",
    PackagingWorkflow "packaging_workflow" "The steps to a package.",
    Troubleshoot "troubleshoot" "What gate errors mean and how to fix them.",
    ExampleManifest "example_manifest" "A manifest to start from.",
    ListFrameworks "list_frameworks" "The registered frameworks.",
    ListSpecs "list_specs" "The registered specs.",
    SpecInfo "spec_info" "The manifest of a spec.",
    GovernedRoots "governed_roots" "The roots that are governed.",
    ExplainPath "explain_path" "What may be done with a path.",
}

impl Operation {
    /// The operation with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// What gates it.
    pub(crate) fn class(self) -> Class {
        if self == Self::ExecuteCommand { Class::Governed } else { Class::Query }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// For what.
    pub(crate) operation: Operation,
    /// With which parameters; also those that the operation does not know.
    pub(crate) parameters: Map<String, Value>,
}

impl Request {
    /// A request made by the shell itself.
    pub(crate) fn new(operation: Operation) -> Self {
        Self { operation, parameters: Map::new() }
    }

    /// Sets a parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.to_owned(), value.into());
        self
    }

    /// Reads a request. An object without `operation` asks for the packages.
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

    /// A parameter that must be there.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Failure> {
        self.optional(name)?.filter(|text| !text.is_empty()).ok_or_else(|| {
            let operation = self.operation.name();
            Failure::new("MISSING_FIELD", format!("{operation} needs `{name}`")).with("field", name)
        })
    }

    /// A parameter that may be there. `null` is as if it were not.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.parameters.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                Err(Failure::request(format!("`{name}` must be a string, not {}", type_of(other))).with("field", name))
            }
        }
    }

    /// A count that may be there: a positive whole number.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, Failure> {
        match self.parameters.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                match value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0) {
                    Some(count) => Ok(Some(count)),
                    None => Err(Failure::request(format!("`{name}` must be a positive whole number, not {value}"))
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

/// What a value is, for people.
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
