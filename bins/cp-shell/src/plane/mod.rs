//! Reads a control plane tree: its packages, registries, ledgers and work orders. Only work orders are written, and
//! only to the home.

mod files;
pub(crate) mod ledgers;
pub(crate) mod operations;
mod packages;
mod registries;
mod trace;
pub(crate) mod work_orders;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use cp_common::{Code, Context, Error, Result};
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use files::Read;
pub(crate) use ledgers::GateState;
pub(crate) use operations::Request;
pub(crate) use work_orders::WorkOrder;

/// A control plane tree. Any of its files may be missing.
#[derive(Debug)]
pub(crate) struct Plane {
    /// A real path.
    pub(crate) root: PathBuf,
    reads: RefCell<Vec<Read>>,
}

impl Plane {
    /// Opens the named tree, which must exist, or the home. It is the governed tree of every program that is started.
    pub(crate) fn of_context(context: &mut Context) -> Result<Self> {
        let plane = match context.root()? {
            Some(root) => Self { root, reads: RefCell::default() },
            None => Self::open(context.home.root())?,
        };
        context.options.root = plane.root.is_dir().then(|| plane.root.clone());
        Ok(plane)
    }

    /// Opens the tree below `root`. A home that does not exist yet is an empty tree.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let real = root.canonicalize().or_else(|_| std::path::absolute(root))?;
        if real.exists() && !real.is_dir() {
            return Err(Error::validation("the root is not a directory").in_file(root));
        }
        Ok(Self { root: real, reads: RefCell::default() })
    }

    /// Takes the reads that were declared since the last call.
    pub(crate) fn take_reads(&self) -> Vec<Read> {
        self.reads.take()
    }

    /// The tier in `tier.json`: ho1, ho2 or ho3. Tools of the control plane also call ho3 HOT.
    pub(crate) fn tier(&self) -> Option<String> {
        let tier = self.json("tier.json").ok()??.get("tier")?.as_str()?.to_lowercase();
        Some(if tier == "hot" { "ho3".to_owned() } else { tier })
    }

    /// True if the tree has a registry of governed prompts.
    pub(crate) fn governs_prompts(&self) -> Result<bool> {
        Ok(self.parsed("registries/prompts_registry.csv", |_| Ok(()))?.is_some())
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

/// The detail of an error that has a code of the control plane.
const FAULT: &str = "fault";

/// An error with a code of the control plane, such as `MISSING_FIELD`.
pub(crate) fn fault(code: &str, message: impl Into<String>) -> Error {
    Error::validation(message).with(FAULT, code)
}

/// True if the error is a denial.
pub(crate) fn is_denial(error: &Error) -> bool {
    matches!(error.code(), Code::Forbidden | Code::ConfirmationRequired | Code::HumanRequired)
}

/// The `error` member of the envelope.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields, rename = "Fault"))]
pub(crate) struct Failure {
    /// The code, such as `MISSING_FIELD`.
    pub(crate) code: String,
    /// The message.
    pub(crate) message: String,
    /// Details for programs.
    pub(crate) details: Map<String, Value>,
}

impl From<Error> for Failure {
    /// The code of an error without a code of the control plane becomes a detail.
    fn from(error: Error) -> Self {
        let error = error.without_secrets();
        let (mut message, mut details) = (error.message().to_owned(), error.details());
        let code = if let Some(Value::String(code)) = details.shift_remove(FAULT) {
            code
        } else {
            details.insert("error_code".to_owned(), error.code().row().name.into());
            // A governed path is refused with the name of its class.
            if let Some(class) = details.get("class").and_then(Value::as_str).map(str::to_owned) {
                message = format!("{message}: {class}");
                details.insert("rule".to_owned(), class.into());
            }
            // A refusal by the tree's own declarations always has the same code.
            let is_declared =
                details.contains_key("class") || details.get("rule").is_some_and(|rule| rule == "capabilities");
            if is_declared { "CAPABILITY_DENIED" } else { "HANDLER_ERROR" }.to_owned()
        };
        let hint = match (code.as_str(), details.get("field").and_then(Value::as_str)) {
            ("MISSING_FIELD", Some(field)) => format!("add \"{field}\":\"...\""),
            ("HANDLER_ERROR", _) => "run `cp-shell doctor` to find the cause, then retry".to_owned(),
            _ => "see OPERATIONS in cp-shell(1) for the parameters".to_owned(),
        };
        details.entry("hint").or_insert_with(|| hint.into());
        Self { code, message, details }
    }
}
