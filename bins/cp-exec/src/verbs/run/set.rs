//! A set of requests that are shown together and confirmed by one token.

use cp_common::context::options::WriteOptions;
use cp_common::output::Place;
use cp_common::program::confirm::{Change, Gate, Write};
use cp_common::wire::quoted;
use cp_common::{Context, Error, Result};
use serde_json::json;

use super::answers::Asked;
use crate::decision::confirm::{binding, binding_of_line};
use crate::decision::{self, Part, Ruling};
use crate::policy::Policy;
use crate::request::{Request, SystemOperation, line_of};
use crate::run::Engine;
use crate::tools::{executable, filesystem};

/// The most requests that one token is for.
const MOST: usize = 10_000;

/// A request of the set, its place in the input, and in what form it is answered.
pub(crate) type Member = (Place, Asked, Result<Request>);

pub(crate) struct Set {
    members: Vec<Member>,
    options: WriteOptions,
}

/// What one request would do.
struct Shown {
    change: Change,
    /// Whether it cannot be undone.
    destroys: bool,
}

impl Set {
    pub(crate) fn new(options: WriteOptions) -> Self {
        Self { members: Vec::new(), options }
    }

    pub(crate) fn add(&mut self, place: Place, asked: Asked, request: Result<Request>) -> Result<()> {
        if self.members.len() == MOST {
            return Err(Error::validation(format!("a set has at most {MOST} requests"))
                .hint("send it in parts")
                .fatal());
        }
        self.members.push((place, asked, request));
        Ok(())
    }

    /// The requests and their token, which is spent now; none where the set is only shown. A request that is refused belongs to the
    /// set too: the token is for what was shown.
    pub(crate) fn confirmed(self, engine: &mut Engine, context: &mut Context) -> Result<Option<(Vec<Member>, String)>> {
        let Self { members, options } = self;
        if members.is_empty() {
            return Ok(None);
        }
        let (mut changes, mut destroys, mut refused) = (Vec::new(), false, Vec::new());
        for (_, _, request) in &members {
            match show(engine, request) {
                Ok(shown) => {
                    destroys |= shown.destroys;
                    changes.push(shown.change);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    changes.push(refusal(changes.len(), &error));
                    refused.push(error);
                }
            }
        }
        // Only what they would do says whether they destroy. The token comes next, before what may have become of its targets.
        let asked = Write { verb: "run", arguments: &(), dangerous: destroys };
        let gate = Gate::before(&asked, &options, context)?;
        if refused.len() == members.len() {
            return Err(refused.swap_remove(0).fatal());
        }
        let token = options.confirm.clone().unwrap_or_default();
        Ok(gate.pass(changes, context)?.then_some((members, token)))
    }
}

fn show(engine: &mut Engine, request: &Result<Request>) -> Result<Shown> {
    // The error itself stays: a set that is confirmed answers with it again.
    let request = request.as_ref().map_err(|error| Error::from_value(&error.to_value()))?;
    let Engine { policy, hashes, .. } = engine;
    match request {
        Request::Command(command) if !command.steps.is_empty() => {
            let line = decision::decide_line(policy, hashes, command)?;
            let part = |part: &Part| {
                let asks: Vec<&str> = part.asks.iter().map(|ask| ask.reason.as_str()).collect();
                json!({
                    "argv": part.argv,
                    "cwd": part.directory.real.display().to_string(),
                    "sha256": part.program(),
                    "rule": part.rule(),
                    "risk": part.risk(),
                    "confirm": (!asks.is_empty()).then(|| asks.join("; ")),
                })
            };
            let bound_to = binding_of_line(policy, command, &line)?.request;
            let before = json!({ "bound_to": bound_to, "parts": line.parts.iter().map(part).collect::<Vec<_>>() });
            let destroys = line.asks().next().is_some();
            Ok(Shown { change: change("run", "plan", line_of(&command.steps), before), destroys })
        }
        Request::Command(command) => {
            let stages = command.stages.iter();
            let rulings: Vec<Ruling> =
                stages.map(|argv| decision::decide(policy, hashes, command, argv)).collect::<Result<_>>()?;
            of_rulings(policy, "run", "command", &rulings)
        }
        Request::Tool(call) => {
            let (ruling, _) = executable::rule(policy, hashes, call)?;
            of_rulings(policy, "call", "tool", &[ruling])
        }
        Request::File(operation) => {
            let (change, destroys) = filesystem::change(policy, operation)?;
            Ok(Shown { change, destroys })
        }
        Request::System(operation) => {
            let name = match operation {
                SystemOperation::GetInfo => "get_info",
                SystemOperation::GetStatus => "get_status",
            };
            Ok(Shown { change: change("ask", "system", name.to_owned(), json!(null)), destroys: false })
        }
    }
}

fn of_rulings(policy: &Policy, action: &str, resource: &str, rulings: &[Ruling]) -> Result<Shown> {
    let stages = rulings.iter().map(|ruling| {
        Ok(json!({
            "argv": ruling.argv,
            "cwd": ruling.plan.cwd.path.display().to_string(),
            "exe": ruling.pinned.path.display().to_string(),
            "sha256": ruling.pinned.sha256,
            "rule": ruling.rule,
            "risk": ruling.risk,
            "confirm": ruling.confirm,
            "bound_to": binding(policy, ruling)?.request,
        }))
    });
    let before = stages.collect::<Result<Vec<_>>>()?;
    let words = |ruling: &Ruling| ruling.argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let id = rulings.iter().map(words).collect::<Vec<_>>().join(" | ");
    let destroys = rulings.iter().any(|ruling| ruling.confirm.is_some());
    Ok(Shown { change: change(action, resource, id, before.into()), destroys })
}

fn refusal(at: usize, error: &Error) -> Change {
    let details = error.details();
    let before = json!({ "code": error.code().row().name, "rule": details.get("rule"), "reason": error.message() });
    change("refuse", "request", at.to_string(), before)
}

/// One line of the preview. What a command changes is not known before it runs.
fn change(action: &str, resource: &str, id: String, before: serde_json::Value) -> Change {
    Change { action: action.to_owned(), resource: resource.to_owned(), id, before, after: json!(null) }
}
