//! The operations: what each answers.

use serde_json::{Value, json};

use crate::plane::{Failure, Operation, Plane, Request};
use crate::signals::Signals;

/// What an operation needs of the session it is asked in.
pub(crate) trait Live {
    /// How the session stands.
    fn signals(&mut self, plane: &Plane) -> Signals;

    /// Runs a command through policy: what follows `!`. It gives the result of the execution.
    fn execute(&mut self, command: &str) -> Result<Value, Failure>;
}

/// Answers a request.
pub(crate) fn run(plane: &Plane, request: &Request, live: &mut dyn Live) -> Result<Value, Failure> {
    match request.operation {
        Operation::SignalStatus => Ok(json!({"signals": live.signals(plane).to_value()})),
        other => Err(Failure::handler(format!("{} is not there", other.name()))),
    }
}
