//! `cp-exec hook HOST`: answers a host's question about a tool call in the host's format. A call that is not
//! explicitly allowed does not run. Its verbs add the hook to the host's configuration.

pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod shell;

use std::path::Path;

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::wire::{Level, Reply};
use cp_common::{Context, Error, Result, coprocess};
use cp_ledger::format::approval::Said;
use cp_ledger::sessions::Session;
use serde::Serialize;
use serde_json::{Value, json};

use crate::decision::{self, confirm};
use crate::digest::sha256;
use crate::hook::{self, Event, Moment, Tool, ToolEffect, Verdict, effect_of, rewritten};
use crate::hosts::{self, Does, Host, SHELL_PREFIX, text_of};
use crate::refusal::refuse;
use crate::request::Command;
use crate::run::{Engine, until_answered};
use crate::tools::{executable, filesystem};
use crate::verbs::run::on_record;

pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &[
        r#"echo '{"hook_event_name":"PreToolUse","session_id":"s","tool_use_id":"c","tool_name":"Read","tool_input":{"file_path":"a"}}' | {} hook claude --json"#,
    ],
    input: &[Input::Bytes],
    events: &[
        "host.intent",
        "host.result",
        "exec.refused",
        "approval.asked",
        "approval.granted",
        "approval.denied",
        "approval.spent",
    ],
    fails_closed: true,
    ..VerbDoc::new("hook", Class::Governed, "hook_answer")
};

/// Decide about tool calls of another agent, or configure its hook
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent that asks: its question is one JSON object on standard input
    #[arg(value_name = "HOST", value_parser = Host::hooked())]
    pub(super) host: Option<Host>,
    #[command(subcommand)]
    pub(super) verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
pub(super) enum Verb {
    Install(install::Args),
    Doctor(doctor::Args),
    /// Take the hook out of the configuration of a host
    Remove(install::Args),
    Shell(shell::Args),
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match (&args.verb, args.host) {
        (Some(Verb::Install(args)), _) => install::change(args, &install::INSTALL, context),
        (Some(Verb::Doctor(args)), _) => doctor::run(args, context),
        (Some(Verb::Remove(args)), _) => install::change(args, &install::REMOVE, context),
        (Some(Verb::Shell(args)), _) => shell::run(args, context),
        (None, Some(host)) => answer(host, context),
        (None, None) => Err(Error::usage("which agent asks?").hint("cp-exec hook claude or cp-exec hook codex")),
    }
}

/// The longest question. It may contain the output of a tool.
const LONGEST: u64 = 32 << 20;

/// The answer to a host.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "hook_answer"))]
pub(crate) struct Answer {
    /// The host that asked.
    host: Host,
    /// The decision: `pass`, `rewrite`, `ask`, `deny`, or null if no decision was needed.
    decision: Option<&'static str>,
    /// The line for the host; empty if it expects none.
    words: String,
}

impl Reply for Answer {
    fn text(&self) -> String {
        self.words.trim_end().to_owned()
    }

    fn raw(&self) -> Vec<u8> {
        self.words.clone().into_bytes()
    }
}

impl Answer {
    /// The answer to a question; without a verdict none was needed.
    pub(super) fn of(host: Host, verdict: Option<&Verdict>) -> Self {
        let (decision, words) = verdict.map(hook::response).unzip();
        Self { host, decision, words: words.unwrap_or_default() }
    }
}

fn answer(named: Host, context: &mut Context) -> Result<()> {
    let event = hook::decode(&question()?, named)?;
    if matches!(event.moment, Moment::Other) {
        return context.out.answer(&Answer::of(event.host, None));
    }
    enter(event.host, &event.call.session, event.cwd.as_deref(), context)?;
    let mut engine = Engine::new(context, &[])?;
    engine.serve(event.call.clone());
    match &event.moment {
        Moment::Before(tool) => return before(&mut engine, &event, tool, context),
        Moment::After(tool, output, failed) => {
            let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
            let kept = keeps_content(&engine).then_some(output);
            let output = json!({ "bytes": text.len(), "sha256": sha256(text.as_bytes()), "content": kept });
            let data = json!({ "tool": tool.name, "failed": failed, "output": output });
            let entry = engine.journal.entry("host.result").data(&data).with("policy", engine.policy.sha256());
            engine.journal.synced(entry)?;
        }
        Moment::Other => {}
    }
    context.out.answer(&Answer::of(event.host, None))
}

pub(super) fn question() -> Result<Vec<u8>> {
    cp_common::context::given::bytes(Path::new("-"), LONGEST)
}

/// Continues the session of the host's conversation, which the first question creates.
pub(super) fn enter(host: Host, id: &str, cwd: Option<&Path>, context: &mut Context) -> Result<()> {
    let host = host.name();
    if context.options.session.is_some() {
        return Ok(());
    }
    if Session::of_host(host, id, &context.home).is_none() {
        context.options.base = context.options.base.take().or_else(|| cwd.map(Path::to_owned));
        let words = ["start", "--host", host, "--host-session", id];
        coprocess::ask::<serde::de::IgnoredAny>("cp-session", &words, b"", context)?;
    }
    let found = Session::of_host(host, id, &context.home);
    let (session, note) =
        found.ok_or_else(|| Error::not_found("the session that was started for the host is not there"))?;
    context.options.session = Some(session.id);
    context.options.base.get_or_insert(note.base);
    Ok(())
}

pub(super) fn input_hash(tool: &Tool) -> String {
    sha256(Value::Object(tool.input.clone()).to_string().as_bytes())
}

fn before(engine: &mut Engine, event: &Event, tool: &Tool, context: &mut Context) -> Result<()> {
    let base = context.base()?;
    let cwd = event.cwd.as_deref().unwrap_or(&base);
    let ours = hosts::Command::of(event.host, context)?;
    let is_shell = ours.is_shell();
    let mut program = vec![ours.program];
    for word in context.handed_on() {
        program.push(text_of(word.as_ref())?);
    }
    program.extend(["--hosted", &event.call.word(), "--format", "raw"].map(str::to_owned));
    let asking = Question { event, tool, cwd, program, is_shell };
    let (asked, input_hash) = (hook::command(tool), input_hash(tool));
    let decided = effect_of(tool, cwd).and_then(|effect| Ok((asking.decide(engine, &effect)?, effect)));
    let about = json!({ "tool": tool.name, "command": asked, "input_hash": input_hash });
    match on_record(engine, &about, decided) {
        Ok(((verdict, rule), effect)) => {
            let answer = Answer::of(event.host, Some(&verdict));
            let intent = json!({
                "tool": tool.name,
                "decision": answer.decision,
                "rule": rule,
                "cwd": cwd,
                "command": asked,
                "timeout": tool.input.get("timeout"),
                "paths": effect.files.iter().map(|(_, path)| path.display().to_string()).collect::<Vec<_>>(),
                "input_hash": input_hash,
                "input": keeps_content(engine).then_some(&tool.input),
                "policy": engine.policy.sha256(),
            });
            engine.journal.synced(engine.journal.entry("host.intent").data(&intent))?;
            context.out.answer(&answer)
        }
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => {
            // A host shows a single text. A hint may start with a command, so it follows a label.
            let hint = error.hint_text().map(|hint| format!(". Hint: {hint}")).unwrap_or_default();
            let verdict = Verdict::Deny(format!("{}{hint}", error.message()));
            context.out.refuse(&Answer::of(event.host, Some(&verdict)), error)
        }
    }
}

/// True if the inputs and outputs of tools are recorded unredacted in full.
fn keeps_content(engine: &Engine) -> bool {
    engine.policy.loaded.settings.llm.get("log_content").and_then(toml::Value::as_bool).unwrap_or(false)
}

/// True if a person can answer questions, according to the environment of Claude Code, which settings cannot change.
fn is_attended() -> bool {
    std::env::var("CLAUDE_CODE_SESSION_ATTENDED").is_ok_and(|attended| attended == "1")
}

/// A question about a tool call.
struct Question<'a> {
    event: &'a Event,
    tool: &'a Tool,
    /// The working directory of the host.
    cwd: &'a Path,
    /// The words before the options of a line that this program runs.
    program: Vec<String>,
    /// True if the host starts its command lines with our program.
    is_shell: bool,
}

impl Question<'_> {
    /// The decision, and the rule that made it. A refusal is an error, and a call that awaits approval is recorded.
    fn decide(&self, engine: &mut Engine, effect: &ToolEffect) -> Result<(Verdict, String)> {
        let tool = &self.tool.name;
        for (access, path) in &effect.files {
            filesystem::check(&engine.policy, *access, &path.to_string_lossy())?;
        }
        match (effect.does, &effect.line) {
            (Does::Skill, _) | (_, Some(_)) if self.event.host == Host::Claude && !self.is_shell => {
                let message = format!("{SHELL_PREFIX} is not the program of cp-exec, so commands would run outside");
                Err(refuse("host_shell", message).hint(format!(
                    "`cp-exec hook install claude` sets env.{SHELL_PREFIX}; remove it from the settings of the project"
                )))
            }
            (does, Some(line)) => self.shell(engine, line, does != Does::Unknown && self.is_shell),
            (Does::Read | Does::Write | Does::Patch | Does::Search, None) => Ok((Verdict::Pass, "paths".to_owned())),
            (Does::Fetch, None) => {
                self.by_name(engine, Some(format!("`{tool}` uses the network outside of the sandbox")))
            }
            (Does::Shell | Does::Stdin | Does::Skill | Does::None, None) => self.by_name(engine, None),
            (Does::Unknown, None) => self.by_name(engine, Some(format!("cp-exec does not know the tool `{tool}`"))),
        }
    }

    /// Decides about a tool by its name. `risk` is the reason to ask about a tool that the policy does not list.
    fn by_name(&self, engine: &mut Engine, risk: Option<String>) -> Result<(Verdict, String)> {
        let name = &self.tool.name;
        if let Err(error) = executable::permitted(&engine.policy, name, risk.is_none()) {
            let by_agent = engine.policy.exec().confirm == Level::Agent;
            if let Some(why) = risk.filter(|_| by_agent && self.event.may_ask() && is_attended()) {
                return Ok((Verdict::Ask(self.tool.input.clone(), why), "tools.allow".to_owned()));
            }
            // The tools of one server are usually allowed together.
            let server = name.rsplit_once("__").map_or_else(|| name.clone(), |(server, _)| format!("{server}__*"));
            let line = format!("[tools] allow = [\"{}\", \"{server}\"]", executable::BY_DEFAULT);
            return Err(error.hint(engine.policy.setting_hint(&line)));
        }
        if !executable::requires_approval(&engine.policy, name) {
            return Ok((Verdict::Pass, "tools.allow".to_owned()));
        }
        let input = Value::Object(self.tool.input.clone());
        let approval = confirm::approval_of_host_call(&engine.policy, name, &input, self.cwd)?;
        let spent = until_answered(engine, false, |engine| confirm::spend(&engine.policy, &approval))?;
        engine.journal.approval(Said::Spent(&spent.grant), &spent.approval)?;
        Ok((Verdict::Pass, "tools.approve".to_owned()))
    }

    /// Rewrites a command line to run in our sandbox, where it is decided about again. A contained line stays as it
    /// is, so that the host applies its own rules to it.
    fn shell(&self, engine: &mut Engine, asked: &Command, contained: bool) -> Result<(Verdict, String)> {
        asked.check()?;
        let decision = decision::decide(&engine.policy, &mut engine.hashes, asked)?;
        if contained {
            return Ok((Verdict::Pass, decision.finding.rule));
        }
        let options = [("--cwd", asked.cwd.clone()), ("--timeout", asked.timeout.map(|limit| limit.to_string()))];
        let options = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        let program: Vec<String> = self.program.iter().cloned().chain(options.flatten()).collect();
        let mut input = self.tool.input.clone();
        let member = if input.contains_key("command") { "command" } else { "cmd" };
        input.insert(member.to_owned(), rewritten(asked.line.as_deref().unwrap_or_default(), &program).into());
        Ok((Verdict::Rewrite(input), decision.finding.rule))
    }
}
