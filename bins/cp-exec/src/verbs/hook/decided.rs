//! The decision about a tool call of a host.

use std::path::Path;

use cp_common::Result;
use cp_ledger::format::approval::Said;
use serde_json::{Map, Value};

use crate::decision::{self, confirm};
use crate::hook::{Line, Rewriter, Tool, ToolEffect, Verdict, original_of};
use crate::hosts::facts::Does;
use crate::hosts::{HostShell, SHELL_PREFIX};
use crate::policy::{Confirm, HostCall, LONGEST};
use crate::refusal::refuse;
use crate::request::{Command, Form};
use crate::run::{Engine, until_answered};
use crate::tools::{executable, filesystem};

const ASKED: &str = "approval.asked";
const SPENT: &str = "approval.spent";

/// A question about a tool call.
pub(super) struct Question<'a> {
    pub tool: &'a Tool,
    /// The working directory of the host.
    pub cwd: &'a Path,
    /// The path of this program for the host's shell.
    pub program: &'a str,
    /// The options that pass the context on.
    pub handed_on: &'a [String],
    /// True if the host can ask its user.
    pub may_ask: bool,
    /// The program that runs the command lines of the host.
    pub shell: HostShell,
}

impl Question<'_> {
    /// The decision, and the rule that made it. A refusal is an error, and a call that awaits approval is recorded.
    pub(super) fn decide(&self, engine: &mut Engine, effect: &ToolEffect) -> Result<(Verdict, String)> {
        let tool = &self.tool.name;
        for (access, path) in &effect.files {
            filesystem::check(&engine.policy, *access, &path.to_string_lossy())?;
        }
        match (effect.does, &effect.line) {
            (Some(Does::Skill), _) | (_, Some(_)) if self.shell == HostShell::Foreign => {
                let message = format!("{SHELL_PREFIX} is not the program of cp-exec, so commands would run outside");
                Err(refuse("host_shell", message).hint(format!(
                    "remove env.{SHELL_PREFIX} from the settings of the project; `cp-exec hook install claude` sets it"
                )))
            }
            (does, Some(line)) => {
                self.shell(engine, line.clone(), does.is_some() && self.shell == HostShell::Sandboxed)
            }
            (Some(Does::Read | Does::Write | Does::Patch | Does::Search), None) => {
                Ok((Verdict::Pass, "paths".to_owned()))
            }
            (Some(Does::Skill), None) if self.shell == HostShell::Default => {
                let message = format!("`{tool}` runs the command lines of a file, which would not be in the sandbox");
                Err(refuse("host_tool", message).hint("`cp-exec hook install claude` puts them into it"))
            }
            (Some(Does::Fetch), None) => {
                self.by_name(engine, Some(format!("`{tool}` uses the network outside of the sandbox")))
            }
            (Some(Does::Shell | Does::Stdin | Does::Skill | Does::None), None) => self.by_name(engine, None),
            (None, None) => self.by_name(engine, Some(format!("cp-exec does not know the tool `{tool}`"))),
        }
    }

    /// Decides about a tool by its name. `risk` is the reason to ask about a tool that the policy does not list.
    fn by_name(&self, engine: &mut Engine, risk: Option<String>) -> Result<(Verdict, String)> {
        let name = &self.tool.name;
        if let Err(error) = executable::permitted(&engine.policy, name, risk.is_none()) {
            let by_agent = engine.policy.exec().confirm == Confirm::Agent;
            if let Some(why) = risk.filter(|_| by_agent && self.may_ask) {
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
        // It holds until the call has a result. An entry that contains words of a run can only end it.
        if !engine.journal.has(SPENT, &[SPENT, "host.result"], &[&approval.id])? {
            let spend = |engine: &mut Engine| confirm::spend(&engine.policy, &approval);
            // The request is recorded once.
            let is_asked =
                engine.journal.has(ASKED, &[ASKED, "approval.granted", "approval.denied"], &[&approval.id])?;
            let granted = if is_asked { spend(engine)? } else { until_answered(engine, false, spend)? };
            engine.journal.approval(Said::Spent(&granted.grant), &granted.approval)?;
        }
        Ok((Verdict::Pass, "tools.approve".to_owned()))
    }

    /// Rewrites a command line to run in our sandbox, where it is decided about again. A contained line stays as it
    /// is, so that the host applies its own rules to it.
    fn shell(&self, engine: &mut Engine, line: Line, contained: bool) -> Result<(Verdict, String)> {
        let hosted = engine.policy.actor.host.as_ref().map(HostCall::word).unwrap_or_default();
        let rewriting = Rewriter { program: self.program, context: self.handed_on, hosted: &hosted };
        let line = Line { timeout: line.timeout.map(|limit| limit.min(LONGEST)), ..line };
        let line = original_of(&line).filter(|original| rewriting.of(original) == line.command).unwrap_or(line);
        let command = Command {
            form: Form::Line(line.command.clone()),
            cwd: Some(line.cwd.display().to_string()),
            timeout: line.timeout,
            ..Command::default()
        };
        command.check()?;
        let decision = decision::decide(&engine.policy, &mut engine.hashes, &command)?;
        let verdict = if contained { Verdict::Pass } else { Verdict::Rewrite(self.with_command(rewriting.of(&line))) };
        Ok((verdict, decision.finding.rule))
    }

    fn with_command(&self, command: String) -> Map<String, Value> {
        let mut input = self.tool.input.clone();
        let member = if input.contains_key("command") { "command" } else { "cmd" };
        input.insert(member.to_owned(), command.into());
        input
    }
}
