//! Confirmation of a write. A dry run on this machine shows the exact change and issues a token. The token is bound to
//! the change, expires, and can be used once.

mod token;

use std::cell::Cell;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::token::{Bound, LIFETIME, fingerprint, inspect, issue, recall, redeem};
use crate::clock;
use crate::context::Context;
use crate::context::options::WriteOptions;
use crate::output::{Severity, printable};
use crate::program::idempotency::policy;
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
    pub before: serde_json::Value,
    /// The state after; null if the resource is deleted.
    pub after: serde_json::Value,
}

/// A target of a set that nothing would be done for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failed {
    /// The target as the caller named it.
    pub target: String,
    /// Always false.
    pub ok: bool,
    /// The error.
    pub error: serde_json::Value,
}

impl Failed {
    /// Makes the entry of a target that cannot be written.
    pub fn new(target: &str, error: &Error) -> Self {
        Self { target: target.to_owned(), ok: false, error: error.to_value() }
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
    pub failed: Vec<Failed>,
}

impl From<Vec<Change>> for Changes {
    fn from(changes: Vec<Change>) -> Self {
        Self { changes, failed: Vec::new() }
    }
}

impl Changes {
    /// One line for each change and each target that fails, before the differences.
    fn text(&self) -> Vec<String> {
        let Self { changes, failed } = self;
        let line = |change: &Change| {
            let difference = change.after["difference"].as_str().map(|shown| format!("\n{shown}")).unwrap_or_default();
            format!("{} {} {}{}", change.action, change.resource, change.id, difference.trim_end())
        };
        let lines = changes.iter().map(line);
        let failed =
            failed.iter().map(|item| format!("{}: {}", item.target, item.error["message"].as_str().unwrap_or("")));
        lines.chain(failed).collect()
    }
}

impl Reply for Preview {
    fn text(&self) -> String {
        let confirm = format!("confirm with --confirm {}", self.confirm_token);
        self.preview.text().into_iter().chain([confirm]).collect::<Vec<_>>().join("\n")
    }
}

/// A requested write: its verb and all of its arguments, with absolute paths.
pub struct Write<'a, A> {
    /// The verb.
    pub verb: &'a str,
    /// All arguments that determine the effect.
    pub arguments: &'a A,
    /// True if the write also requires `--dangerous`.
    pub dangerous: bool,
}

/// Performs a write behind its [`Gate`] and prints the answer. A repeated request id returns the first answer. A
/// forged, expired or used token is rejected before the write reads anything. `write` returns `None` if the gate
/// printed the preview.
pub fn write<A: Serialize, T: Reply + DeserializeOwned>(
    asked: &Write<'_, A>,
    options: &WriteOptions,
    context: &mut Context,
    write: impl FnOnce(Gate<'_, A>, &mut Context) -> Result<Option<T>>,
) -> Result<()> {
    let spent = Rc::new(Cell::new(false));
    let gate = Gate { asked, options, spent: Rc::clone(&spent) };
    gate.check_dangerous()?;
    if options.dry_run || options.confirm.is_none() {
        return write(gate, context)?.map_or(Ok(()), |answer| context.out.answer(&answer));
    }
    let request = match idempotency::begin::<T>(options.request_id.as_deref(), &(asked.verb, asked.arguments), context)?
    {
        Begun::Again(outcome) => return context.out.answer(&outcome?),
        Begun::First(request) => request,
    };
    match gate.inspect(context).and_then(|()| write(gate, context)) {
        Ok(Some(answer)) => {
            let answer = request.keep(Ok(answer), context)?;
            context.out.answer(&answer)
        }
        Ok(None) => request.release(),
        // The failure belongs to this token; the same request may be repeated with a new one.
        Err(error) => {
            request.release()?;
            if !spent.get() {
                // Another process may have used the token in the meantime, which explains the unexpected state.
                inspect(&context.home, options.confirm.as_deref().unwrap_or_default())?;
            }
            Err(error)
        }
    }
}

/// The confirmation that precedes a write.
pub struct Gate<'a, A> {
    asked: &'a Write<'a, A>,
    options: &'a WriteOptions,
    /// True if this gate spent its token.
    spent: Rc<Cell<bool>>,
}

impl<'a, A: Serialize> Gate<'a, A> {
    /// Makes the gate of a write that prints its own answer. Call it before the write reads anything.
    pub fn before(asked: &'a Write<'a, A>, options: &'a WriteOptions, context: &Context) -> Result<Self> {
        let gate = Self { asked, options, spent: Rc::default() };
        gate.check_dangerous()?;
        gate.inspect(context)?;
        Ok(gate)
    }

    /// Checks for `--dangerous` first.
    fn check_dangerous(&self) -> Result<()> {
        if self.asked.dangerous && !self.options.dangerous {
            let message = format!("{} cannot be undone", self.asked.verb);
            return Err(Error::new(Code::ConfirmationRequired, message).hint("add --dangerous to do it anyway"));
        }
        Ok(())
    }

    fn inspect(&self, context: &Context) -> Result<()> {
        let given = self.options.confirm.as_deref().filter(|_| !self.options.dry_run);
        given.map_or(Ok(()), |token| inspect(&context.home, token))
    }

    /// Reports a missing target. With a confirm token the target existed during the dry run, so its absence is a
    /// conflict.
    pub fn found<T>(&self, target: Result<T>) -> Result<T> {
        let confirms = self.options.confirm.is_some() && !self.options.dry_run;
        target.map_err(|error| match error.code() {
            Code::NotFound if confirms => {
                let message = format!("the target of the confirm token is gone: {}", error.message());
                token::token_error("changed", &message).with("changed", "target")
            }
            _ => error,
        })
    }

    /// Succeeds if the write may report that there is nothing to do. With a confirm token there was something to do, so
    /// this is a conflict.
    pub fn nothing_to_do(&self) -> Result<()> {
        self.found(Err(Error::not_found("there is nothing to do"))).or_else(|error| match error.code() {
            Code::NotFound => Ok(()),
            _ => Err(error),
        })
    }

    /// Returns true after spending the token, so that the write continues, or false after printing the preview of a dry
    /// run. A set has one token, which is spent even if some targets fail.
    pub fn pass(self, changes: impl Into<Changes>, context: &mut Context) -> Result<bool> {
        let Self { asked, options, spent } = self;
        let changes = changes.into();
        // A failure is bound by its target only, because the wording of its reason may differ next time.
        let failed: Vec<&str> = changes.failed.iter().map(|failed| failed.target.as_str()).collect();
        let request = (context.program, asked.verb, asked.arguments, &options.request_id);
        let bound = Bound::new(&request, &(&changes.changes, failed, policy(context)?))?;
        if options.dry_run {
            let (confirm_token, expires) = issue(&context.home, &bound)?;
            let expires_at = clock::from_unix_seconds(expires);
            context.out.answer(&Preview { preview: changes, confirm_token, expires_at })?;
            return Ok(false);
        }
        let Some(token) = &options.confirm else {
            let question = format!("{}\nDo it? [y/N] ", printable(&changes.text().join("\n")));
            // A request id belongs to a program.
            let answer = if options.request_id.is_none() { terminal::confirms(&question)? } else { None };
            match answer {
                Some(true) => {
                    std::mem::forget(signals::effect());
                    return Ok(true);
                }
                Some(false) => {
                    return Err(Error::new(Code::ConfirmationRequired, "not confirmed, so nothing was changed"));
                }
                None => {}
            }
            return Err(Error::new(Code::ConfirmationRequired, format!("{} needs a confirm token", asked.verb))
                .hint("run it with --dry-run, look at the preview, then repeat it with --confirm TOKEN"));
        };
        // The token is spent, so its write must not be interrupted.
        std::mem::forget(signals::effect());
        match redeem(&context.home, token, &bound) {
            // If the token cannot be marked as used, a write that can be undone continues; a write that runs commands
            // or destroys data fails.
            Err(error) if error.code() == Code::Io && !asked.dangerous && context.program != "cp-exec" => {
                let message = format!("the confirm token is not marked as used: {error}");
                context.out.notice("token_not_marked", Severity::Warning, message);
                spent.set(true);
                Ok(true)
            }
            outcome => outcome.map(|()| {
                spent.set(true);
                true
            }),
        }
    }
}
