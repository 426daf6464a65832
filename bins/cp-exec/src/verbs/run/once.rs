//! A command with a request id: it runs once, and its result is returned for every later request with the id.

use std::io::Write as _;

use crate::exec_result::ExecResult;
use cp_common::output::Format;
use cp_common::program::idempotency::{Begun, begin};
use cp_common::{Code, Context, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Args, prepare, supervise, variables};
use crate::digest::sha256;
use crate::request::word_text;
use crate::run::{Engine, FinishedRun};

/// The stored result of a command.
#[derive(Serialize, Deserialize)]
struct StoredResult {
    result: ExecResult,
    failure: Option<Value>,
}

/// Runs the command, or returns the stored result of its request id.
pub(super) fn run(engine: &mut Engine, args: &Args, context: &mut Context) -> Result<FinishedRun> {
    let id = args.write.request_id.as_deref();
    let asked = id.map(|_| request_identity(args, context)).transpose()?;
    let request = match begin::<StoredResult>(id, &asked, context)? {
        Begun::Again(kept) => return repeat_result(kept?, context),
        Begun::First(request) => request,
    };
    let prepared = match prepare(engine, args, context) {
        Ok(prepared) => prepared,
        // Nothing ran, so the same request may be repeated after the cause is removed.
        Err(error) => return request.release().and(Err(error)),
    };
    // From here on the command may have had an effect. If no result is stored, a repeated request reports that the
    // first one did not finish.
    let done = supervise(prepared, engine, args, context)?;
    if done.failure.as_ref().is_some_and(|error| error.code() == Code::Interrupted) {
        return Ok(done);
    }
    let failure = done.failure.as_ref().map(Error::to_value);
    let kept = request.keep(Ok(StoredResult { result: done.result, failure }), context)?;
    Ok(FinishedRun { result: kept.result, ..done })
}

/// The parts of the command line that identify the command.
fn request_identity(args: &Args, context: &Context) -> Result<Value> {
    let input = match args.stdin.as_deref() {
        None => None,
        Some("-") => {
            return Err(Error::usage("--request-id needs an input that can be compared").hint("give --stdin a file"));
        }
        Some(path) => {
            let bytes = std::fs::read(path).map_err(|e| Error::io("reading the input", e).in_file(path.as_ref()))?;
            Some((std::path::absolute(path)?, sha256(&bytes)))
        }
    };
    let base = context.base()?;
    let cwd = args.cwd.as_ref().map(|cwd| base.join(cwd));
    let tools = args.tools.iter().map(std::path::absolute).collect::<std::io::Result<Vec<_>>>()?;
    let place = (&base, cwd, &context.options.root, tools);
    let words: Vec<String> = args.command.iter().map(word_text).collect();
    let asked = ("run", words, &args.string, variables(&args.env)?, args.timeout, place, input);
    serde_json::to_value(asked)
        .map_err(|e| Error::new(Code::Unknown, format!("what is asked cannot be written down: {e}")))
}

fn repeat_result(kept: StoredResult, context: &mut Context) -> Result<FinishedRun> {
    let StoredResult { result, failure } = kept;
    if context.out.format() == Format::Raw {
        context.out.raw(result.stdout.as_bytes())?;
        std::io::stderr().write_all(result.stderr.as_bytes())?;
    }
    Ok(FinishedRun { result, failure: failure.as_ref().map(Error::from_value), is_ended: false })
}
