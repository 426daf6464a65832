//! `cp-exec check`: decides about a command without running it.

use std::ffi::OsString;

use cp_common::context::options::StreamOptions;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Source};
use cp_common::wire::{Level, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_redact::Redactor;
use serde::Serialize;
use serde_json::Value;

use super::Requests;
use crate::decision::{self, Decision, HashCache, confirm};
use crate::exec_result::Executable;
use crate::policy::{Policy, Verdict};
use crate::refusal::with_members;
use crate::request::Command;
use crate::run::Engine;

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &["{} check -- git push --force", "{} check -c 'ls; id'"],
    input: &[Input::Rows, Input::Records],
    ..VerbDoc::new("check", Class::Query, "decision")
};

/// Say whether a command, or each request on the input, may run
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory it would run in
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<String>,
    /// The command line as one string
    #[arg(short = 'c', value_name = "STRING", allow_hyphen_values = true, conflicts_with = "command")]
    string: Option<String>,
    #[command(flatten)]
    stream: StreamOptions,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// A decision with its reason.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "decision"))]
pub(crate) struct Answer {
    /// allow, ask or deny.
    #[serde(rename = "decision")]
    pub verdict: Verdict,
    /// The arguments of the command; null if the string is not a command.
    pub argv: Option<Vec<String>>,
    /// The rule that decided.
    pub rule: String,
    /// The reason.
    pub reason: String,
    /// The hint.
    pub hint: Option<String>,
    /// The error code of a run.
    pub code: Option<&'static str>,
    /// The file that would be executed.
    pub exe: Option<Executable>,
    /// The working directory.
    pub cwd: Option<String>,
    /// The token that confirms the command, if one is issued.
    pub confirm_token: Option<String>,
    /// When the token expires.
    pub expires_at: Option<String>,
    /// The hash of the policy.
    pub policy: String,
}

impl Answer {
    /// The decision without the secrets of the command, because it is shown and stored like a result.
    fn without_secrets(mut self) -> Self {
        let redactor = Redactor::from_environment();
        for text in self.argv.iter_mut().flatten().chain([&mut self.reason]) {
            *text = redactor.redact_text(text).0;
        }
        self
    }
}

impl Reply for Answer {
    fn text(&self) -> String {
        let decision = match self.verdict {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        };
        let hint = self.hint.as_ref().map(|hint| format!("\n  Hint: {hint}")).unwrap_or_default();
        format!("{decision}  {}: {}{hint}", self.rule, self.reason)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut engine = Engine::new(context, &[])?;
    if args.string.is_none() && args.command.is_empty() {
        let no_options = super::Args::default();
        let mut checks = Requests { engine, args: &no_options, env: Vec::new(), preview: Some(answer_about) };
        return filter::run(&mut checks, Source::Input, args.stream, context);
    }
    let command = Command::of(args.string.as_deref(), &args.command);
    let command = Command { cwd: args.cwd.clone(), typed: true, ..command };
    let decision = answer_about(&engine.policy, &mut engine.hashes, Ok(command))?;
    if !args.stream.strict_exit || decision.verdict == Verdict::Allow {
        return context.out.answer(&decision);
    }
    let code = if decision.verdict == Verdict::Deny { Code::Forbidden } else { Code::ConfirmationRequired };
    let error = with_members(Error::new(code, decision.reason.clone()), &decision);
    context.out.refuse(&decision, error)
}

/// The answer about a command, or about a request that is none. An invalid policy is an error.
fn answer_about(policy: &Policy, hashes: &mut HashCache, command: Result<Command>) -> Result<Answer> {
    let mut argv = None;
    let decision = command.and_then(|command| {
        command.check()?;
        argv = command.line.is_none().then(|| command.argv.clone());
        decision::decide(policy, hashes, &command)
    });
    let error = match decision {
        Ok(decision) => return Ok(decided(policy, decision)),
        Err(error) => error,
    };
    if error.is_fatal() || !matches!(error.code(), Code::Forbidden | Code::Validation | Code::NotFound) {
        return Err(error);
    }
    let details = error.details();
    let rule = details.get("rule").and_then(Value::as_str).unwrap_or("request");
    Ok(Answer {
        verdict: Verdict::Deny,
        argv,
        rule: rule.to_owned(),
        reason: error.message().to_owned(),
        hint: error.hint_text().map(str::to_owned),
        code: Some(error.code().row().name),
        policy: policy.sha256().to_owned(),
        ..Answer::default()
    }
    .without_secrets())
}

/// The answer about one command, with the token of a dry run. A refusal is an error.
pub(super) fn preview(policy: &Policy, hashes: &mut HashCache, command: Result<Command>) -> Result<Answer> {
    let decision = decision::decide(policy, hashes, &command?)?;
    let answer = decided(policy, decision.clone());
    let (confirm_token, expires_at) = confirm::token(policy, &decision::plan(policy, decision)?)?.unzip();
    Ok(Answer { confirm_token, expires_at, ..answer })
}

fn decided(policy: &Policy, decision: Decision) -> Answer {
    let asks = decision.question().is_some();
    let hint = match policy.exec().confirm {
        Level::Agent => confirm::CONFIRM_HINT,
        Level::Owner => "request it, then approve it with `cp-exec approve`",
    };
    let Decision { command, finding, pinned, cwd, .. } = decision;
    Answer {
        verdict: finding.verdict,
        argv: Some(command.argv),
        rule: finding.rule,
        reason: finding.reason,
        hint: asks.then(|| hint.to_owned()),
        code: asks.then_some(Code::ConfirmationRequired.row().name),
        exe: Some(Executable::of(&pinned)),
        cwd: Some(cwd.display().to_string()),
        policy: policy.sha256().to_owned(),
        ..Answer::default()
    }
    .without_secrets()
}
