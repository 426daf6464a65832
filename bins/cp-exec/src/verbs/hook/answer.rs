//! `cp-exec hook HOST`: answers a host's question about a tool call in the host's format. A call that is not
//! explicitly allowed does not run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use cp_common::home::lock;
use cp_common::output::Severity;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result, coprocess, keys};
use cp_hosts::own;
use cp_ledger::sessions::{HostNote, Session};
use serde::Serialize;
use serde_json::{Value, json};

use super::decided::{HookDecision, Question, in_one_text};
use crate::digest::sha256;
use crate::guard::session_tmp;
use crate::hook::{self, Event, Moment, Output, Tool, Verdict};
use crate::hosts::shell::HostShell;
use crate::hosts::{self, HookHost};
use crate::policy::HostCall;
use crate::run::Engine;
use crate::run::approvals::paused;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook",
    class: Class::Governed,
    output: "hook_answer",
    examples: &[
        r#"echo '{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"Read","tool_input":{"file_path":"a"}}' | {} hook claude --json"#,
    ],
    input: &[Input::Bytes],
    events: &[
        "host.session",
        "host.intent",
        "host.result",
        "exec.refused",
        "approval.asked",
        "approval.granted",
        "approval.denied",
        "approval.spent",
    ],
    fails_closed: true,
    ..VerbDoc::EMPTY
};

/// The longest question. It may contain the output of a tool.
const LONGEST: u64 = 32 << 20;

/// The events of a tool call. The newest one shows the state of the call.
const STAGES: [&str; 5] = ["host.intent", "host.result", "exec.refused", "exec.intent", "approval.asked"];

/// The answer to a host.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "hook_answer"))]
pub(crate) struct Answer {
    /// The host, recognized by the members of the question.
    pub(super) host: HookHost,
    /// The decision: `pass`, `rewrite`, `ask`, `deny`, or null if no decision was needed.
    pub(super) decision: Option<&'static str>,
    /// The line for the host; empty if it expects none.
    pub(super) words: String,
    /// The kinds of secrets in the output of a tool, with their numbers.
    pub(super) secrets: BTreeMap<&'static str, u64>,
}

impl Reply for Answer {
    fn text(&self) -> String {
        self.words.trim_end().to_owned()
    }

    fn raw(&self) -> Vec<u8> {
        self.words.clone().into_bytes()
    }
}

pub(super) fn run(named: HookHost, context: &mut Context) -> Result<()> {
    let event = hook::decode(&question()?, named)?;
    if named != event.host {
        let message = format!("asked as {}, in the words of {}", named.name(), event.host.name());
        context.out.notice("other_host", Severity::Info, message);
    }
    let silent = Answer { host: event.host, decision: None, words: String::new(), secrets: BTreeMap::new() };
    if matches!(event.moment, Moment::Other) {
        return context.out.answer(&silent);
    }
    let _turn = enter(event.host, &event.session, event.cwd.as_deref(), context)?;
    let mut engine = Engine::new(context, &[])?;
    match &event.moment {
        Moment::Before(tool) => before(&mut engine, &event, named, tool, context),
        Moment::After(tool, output) => after(&mut engine, &event, tool, output, context),
        Moment::Start | Moment::End => {
            engine.serve(hosted(&event, "")?);
            let moment = if matches!(event.moment, Moment::Start) { "start" } else { "end" };
            engine.journal.host_event("host.session", &json!({ "moment": moment, "cwd": event.cwd }))?;
            if moment == "end" {
                session_tmp::remove_of_host(&engine.policy);
            }
            context.out.answer(&silent)
        }
        Moment::Other => context.out.answer(&silent),
    }
}

pub(super) fn question() -> Result<Vec<u8>> {
    cp_common::context::given::bytes(Path::new("-"), LONGEST)
}

/// Continues the session of the host's conversation, which the first question creates. Returns a lock, so that the
/// questions of one conversation are answered one after the other.
pub(super) fn enter(host: HookHost, id: &str, cwd: Option<&Path>, context: &mut Context) -> Result<Option<File>> {
    let host = host.name();
    if context.options.session.is_some() {
        return Ok(None);
    }
    let (session, note) = if let Some(found) = Session::of_host(host, id, &context.home) {
        found
    } else {
        context.options.base = context.options.base.take().or_else(|| cwd.map(Path::to_owned));
        coprocess::ask::<serde::de::IgnoredAny>(
            "cp-session",
            &["start", "--host", host, "--host-session", id],
            b"",
            context,
        )?;
        let found = Session::of_host(host, id, &context.home);
        found.ok_or_else(|| Error::not_found("the session that was started for the host is not there"))?
    };
    context.options.session = Some(session.id);
    context.options.base.get_or_insert(note.base);
    let place = HostNote::file(host, id, &context.home);
    let note = File::open(&place).map_err(|e| Error::io("opening the note of the session", e).in_file(&place))?;
    lock(&note)?;
    Ok(Some(note))
}

/// The tool call of the host, for the ledger. A call without an id gets one that is the same for equal calls.
pub(super) fn hosted(event: &Event, told: &str) -> Result<HostCall> {
    if event.session.contains(|c: char| c == '/' || c.is_control()) {
        return Err(Error::validation("the host's id of the session has a slash or a control character in it"));
    }
    let call = match (&event.call, told.is_empty()) {
        (Some(call), _) => call.clone(),
        (None, true) => String::new(),
        (None, false) => format!("made-{}", &keys::hash(told.as_bytes())["sha256:".len()..][..16]),
    };
    Ok(HostCall { host: event.host.name().to_owned(), session: event.session.clone(), call })
}

fn before(engine: &mut Engine, event: &Event, named: HookHost, tool: &Tool, context: &mut Context) -> Result<()> {
    let base = context.base()?;
    let cwd = event.cwd.as_deref().unwrap_or(&base);
    let handed_on = context.handed_on().into_iter().map(OsString::into_string);
    let handed_on = handed_on.collect::<std::result::Result<Vec<_>, _>>();
    let handed_on = handed_on.map_err(|word| Error::validation(format!("{} is not UTF-8", word.display())))?;
    engine.serve(hosted(event, &hook::call_identity(tool))?);
    let (program, home) = own(context)?;
    let command = hosts::Command { host: named, program: &program, home: &home };
    let shell = if event.host == named { HostShell::of(&command) } else { HostShell::Default };
    let asking = Question { tool, cwd, handed_on: &handed_on, may_ask: event.may_ask(named) && is_attended(), shell };
    let input_hash = sha256(Value::Object(tool.input.clone()).to_string().as_bytes());
    let fresh = |engine: &mut Engine, stage: &str| -> Result<bool> {
        Ok(event.call.is_none() || !engine.journal.has(stage, &STAGES, &[&input_hash])?)
    };
    let known = !fresh(engine, "host.intent")?;
    let error = match asking.decide(engine, event.call.is_some()) {
        Ok(HookDecision { verdict, rule, paths, notices }) => {
            if !known {
                let intent = json!({
                    "tool": tool.name,
                    "decision": verdict.name(),
                    "rule": rule,
                    "cwd": cwd,
                    "command": hook::command(tool),
                    "timeout": tool.input.get("timeout"),
                    "paths": paths,
                    "input_hash": input_hash,
                    "input": keeps_content(engine).then_some(&tool.input),
                });
                engine.journal.host_event("host.intent", &intent)?;
            }
            for notice in notices {
                context.out.notice("command", Severity::Info, notice);
            }
            return context.out.answer(&answer(event.host, &verdict));
        }
        Err(error) if error.is_fatal() => return Err(error),
        Err(error) => error,
    };
    if paused(&error).is_none() && fresh(engine, "exec.refused")? {
        let asked = json!({ "tool": tool.name, "command": hook::command(tool), "input_hash": input_hash });
        engine.journal.refused(&asked, &error)?;
    }
    let verdict = Verdict::Deny(in_one_text(&error));
    context.out.refuse(&answer(event.host, &verdict), error)
}

fn after(engine: &mut Engine, event: &Event, tool: &Tool, output: &Output, context: &mut Context) -> Result<()> {
    engine.serve(hosted(event, &hook::call_identity(tool))?);
    let text = output.value.as_str().map_or_else(|| output.value.to_string(), str::to_owned);
    let secrets = engine.journal.secrets_in(&output.texts())?;
    let hash = sha256(text.as_bytes());
    if event.call.is_none() || !engine.journal.has("host.result", &STAGES, &[&hash])? {
        let result = json!({
            "tool": tool.name,
            "failed": output.failed,
            "output": { "bytes": text.len(), "sha256": hash },
            "secrets": secrets,
            "content": keeps_content(engine).then_some(&output.value),
        });
        engine.journal.host_event("host.result", &result)?;
    }
    let counted = secrets.iter().map(|(kind, count)| format!("{kind}: {count}")).collect::<Vec<_>>().join(", ");
    let report = format!("cp-exec: the output of {} holds what looks like secrets ({counted})", tool.name);
    let words = if secrets.is_empty() { String::new() } else { format!("{}\n", json!({ "systemMessage": report })) };
    context.out.answer(&Answer { host: event.host, decision: None, words, secrets })
}

pub(super) fn answer(host: HookHost, verdict: &Verdict) -> Answer {
    Answer { host, decision: Some(verdict.name()), words: hook::response(verdict), secrets: BTreeMap::new() }
}

/// True if the inputs and outputs of tools are recorded unredacted in full.
fn keeps_content(engine: &Engine) -> bool {
    engine.policy.loaded.settings.llm.get("log_content").and_then(toml::Value::as_bool).unwrap_or(false)
}

/// True if a person can answer questions, according to the environment of Claude Code, which settings cannot change.
fn is_attended() -> bool {
    std::env::var("CLAUDE_CODE_SESSION_ATTENDED").is_ok_and(|attended| attended == "1")
}
