//! Writes. A dry run shows the exact changes and issues a confirm token, which the write requires. At a terminal the
//! person is asked instead.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::Context;
use crate::context::options::WriteOptions;
use crate::output::printable;
use crate::program::VerbDoc;
use crate::program::grant::{Bound, inspect, issue, policy_hash, redeem, void};
use crate::program::idempotency::{self, Begun};
use crate::program::terminal;
use crate::signals;
use crate::wire::{Code, Error, Reply, Result};

/// A change that a write would make.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The action: delete, replace, …
    pub action: String,
    /// The type of the resource.
    pub resource: String,
    /// The id of the resource.
    pub id: String,
    /// The state before, including its version.
    pub before: Value,
    /// The state after; null if the resource is deleted.
    pub after: Value,
}

impl Change {
    /// Makes a change that leaves nothing of the resource; `after` may be set.
    pub fn new(action: &str, resource: &str, id: impl Into<String>, before: Value) -> Self {
        Self { action: action.to_owned(), resource: resource.to_owned(), id: id.into(), before, after: Value::Null }
    }
}

/// The outcome for one target of a set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// The target as the caller named it.
    pub target: String,
    /// True if it was written.
    pub ok: bool,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

impl Outcome {
    /// Makes the outcome for a target; without an error it was written.
    pub fn new(target: &str, error: Option<&Error>) -> Self {
        Self { target: target.to_owned(), ok: error.is_none(), error: error.map(Error::to_value) }
    }
}

/// The answer of a dry run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preview {
    /// The changes.
    pub preview: Changes,
    /// The token that applies them.
    pub confirm_token: String,
    /// The expiry of the token.
    pub expires_at: String,
}

/// The changes in a [`Preview`].
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Changes {
    /// The changes in order.
    pub changes: Vec<Change>,
    /// Targets of a set that nothing would be done for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Outcome>,
}

impl From<Vec<Change>> for Changes {
    fn from(changes: Vec<Change>) -> Self {
        Self { changes, failed: Vec::new() }
    }
}

impl Changes {
    /// One line for each change, with its difference, and each target that fails.
    fn text(&self) -> String {
        let lines = self.changes.iter().map(|Change { action, resource, id, after, .. }| {
            let difference = after["difference"].as_str().map(|shown| format!("\n{shown}")).unwrap_or_default();
            format!("{action} {resource} {id}{}", difference.trim_end())
        });
        let why = |item: &Outcome| item.error.as_ref().and_then(|error| error["message"].as_str()).map(str::to_owned);
        let failed = self.failed.iter().map(|item| format!("{}: {}", item.target, why(item).unwrap_or_default()));
        lines.chain(failed).collect::<Vec<_>>().join("\n")
    }
}

impl Reply for Preview {
    fn text(&self) -> String {
        format!("{}\nconfirm with --confirm {}", self.preview.text(), self.confirm_token)
    }
}

/// What a write would do.
pub enum Plan<'a, T> {
    /// Changes that need confirmation, and what makes them.
    Changes(Changes, Box<Effect<'a, T>>),
    /// The answer of a dry run, and what turns it into that of the write. Needs no confirmation, because nothing is
    /// replaced.
    Free(T, Box<Completion<'a, T>>),
}

/// Makes the changes of a write.
pub type Effect<'a, T> = dyn FnOnce(&mut Context) -> Result<T> + 'a;

/// Turns the answer of a dry run into that of the write.
pub type Completion<'a, T> = dyn FnOnce(T, &mut Context) -> Result<T> + 'a;

impl<'a, T> Plan<'a, T> {
    /// Plans changes. A set has one token, which is spent even if some targets fail.
    pub fn changes(changes: impl Into<Changes>, effect: impl FnOnce(&mut Context) -> Result<T> + 'a) -> Result<Self> {
        Ok(Self::Changes(changes.into(), Box::new(effect)))
    }

    /// There is nothing to do.
    pub fn nothing(answer: T) -> Result<Self> {
        Ok(Self::Free(answer, Box::new(|answer, _| Ok(answer))))
    }
}

/// Performs a write and prints its answer, or prints its preview. `arguments` are all that determine the effect, with
/// absolute paths. A repeated request id returns the first answer. A forged, expired or used token is rejected before
/// `plan` reads anything.
pub fn write<'a, T: Reply + DeserializeOwned>(
    verb: &VerbDoc,
    arguments: &impl Serialize,
    options: &WriteOptions,
    context: &mut Context,
    plan: impl FnOnce(&mut Context) -> Result<Plan<'a, T>>,
) -> Result<()> {
    if verb.dangerous && !options.dangerous {
        let message = format!("{} cannot be undone", verb.path);
        return Err(Error::new(Code::ConfirmationRequired, message).hint("add --dangerous to do it anyway"));
    }
    let id = options.request_id.as_deref().filter(|_| !options.dry_run);
    let request = match idempotency::begin::<T>(id, &(verb.path, arguments), context)? {
        Begun::Again(outcome) => return context.out.answer(&outcome?),
        Begun::First(request) => request,
    };
    let token = options.confirm.as_deref().filter(|_| !options.dry_run);
    let check = |context: &Context| token.map_or(Ok(()), |token| inspect(&context.home, token));
    let planned = check(context).and_then(|()| plan(context));
    let planned = planned.map_err(|error| match token {
        // The target existed during the dry run.
        Some(_) if error.code() == Code::NotFound => {
            changed(&format!("the target of the confirm token is gone: {}", error.message()))
        }
        _ => error,
    });
    let bound = (context.program, verb.path, arguments, &options.request_id);
    let effect = planned.and_then(|plan| confirmed(plan, verb.path, &bound, options, context));
    // Another process may have used the token in the meantime, which explains the unexpected state.
    let effect = effect.or_else(|error| check(context).and(Err(error)));
    match effect.and_then(|effect| effect.map(|effect| effect(context)).transpose()) {
        Ok(Some(answer)) => {
            let answer = request.keep(Ok(answer), context)?;
            context.out.answer(&answer)
        }
        Ok(None) => request.release(),
        // The failure belongs to this token; the same request may be repeated with a new one.
        Err(error) => request.release().and(Err(error)),
    }
}

fn changed(message: &str) -> Error {
    void("changed", message).with("changed", "target")
}

/// Returns the effect of a plan after its token is spent, or `None` after printing the preview of a dry run.
fn confirmed<'a, T: Reply + 'a>(
    plan: Plan<'a, T>,
    verb: &str,
    request: &impl Serialize,
    options: &WriteOptions,
    context: &mut Context,
) -> Result<Option<Box<Effect<'a, T>>>> {
    let (changes, effect) = match plan {
        Plan::Changes(changes, effect) => (changes, effect),
        Plan::Free(preview, _) if options.dry_run => return context.out.answer(&preview).map(|()| None),
        Plan::Free(..) if options.confirm.is_some() => return Err(changed("there is nothing left to confirm")),
        Plan::Free(preview, effect) => return Ok(Some(Box::new(move |context| effect(preview, context)))),
    };
    // A failure is bound by its target only, because the wording of its reason may differ next time.
    let failed: Vec<&str> = changes.failed.iter().map(|failed| failed.target.as_str()).collect();
    let bound = Bound::new(request, &(&changes.changes, failed, policy_hash(&context.home)?))?;
    if options.dry_run {
        let (confirm_token, expires_at) = issue(&context.home, &bound)?;
        return context.out.answer(&Preview { preview: changes, confirm_token, expires_at }).map(|()| None);
    }
    let question = || format!("{}\nDo it? [y/N] ", printable(&changes.text()));
    match &options.confirm {
        Some(token) => {
            redeem(&context.home, token, &bound)?;
        }
        // A request id belongs to a program.
        None => match if options.request_id.is_none() { terminal::confirms(&question())? } else { None } {
            Some(true) => {}
            Some(false) => {
                return Err(Error::new(Code::ConfirmationRequired, "not confirmed, so nothing was changed"));
            }
            None => {
                return Err(Error::new(Code::ConfirmationRequired, format!("{verb} needs a confirm token"))
                    .hint("run it with --dry-run, look at the preview, then repeat it with --confirm TOKEN"));
            }
        },
    }
    // The confirmation is spent, so its write must not be interrupted.
    std::mem::forget(signals::effect());
    Ok(Some(effect))
}
