//! A request: an operation and its parameters.

use cp_common::program::Class;
use cp_common::spelling::nearest;
use serde_json::{Map, Value};

use crate::plane::Failure;

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
