//! How each event is shown: the group it is filtered by, its heading, the members that are named beside it, and those shown below it.

/// How one event is shown. `{x}` in a title is the member `x` of the data.
pub(super) struct Row {
    pub(super) event: &'static str,
    pub(super) group: &'static str,
    pub(super) title: &'static str,
    pub(super) facts: &'static str,
    pub(super) parts: &'static [(&'static str, Form)],
}

/// How a member is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A text, or a list of blocks.
    Content,
    /// The output of a tool.
    Output,
    /// A command line.
    Command,
    /// The arguments of a tool, changes of files as differences.
    Input,
    /// A unified difference.
    Difference,
    /// A refused action: a command line, or a tool and its arguments.
    Asked,
    /// Any value, folded.
    Value,
}

use Form::{Asked, Command, Content, Difference, Input, Output, Value};

macro_rules! rows {
    ($($event:literal $group:ident $title:literal [$($facts:literal)?] $($path:literal as $form:ident),*;)*) => {
        &[$(Row {
            event: $event, group: stringify!($group), title: $title, facts: concat!($($facts)?), parts: &[$(($path, $form)),*],
        }),*]
    };
}

/// The events that are known. The first row is that of all others.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = rows! {
    "" other "{event}" [""] "message" as Content, "content" as Content, "data" as Value;
    "run_start" session "The run begins" ["base name parent messages limits.max_iterations limits.tokens limits.usd limits.deadline"] "content" as Content, "data.tools" as Value, "data.model_command" as Command;
    "run_resumed" session "The run goes on" ["limits.max_iterations limits.tokens limits.usd limits.deadline"];
    "run_paused" session "The run pauses: {code}" ["tally.iterations tally.tool_calls"] "message" as Content;
    "run_end" session "The run ends: {status}" ["tally.iterations tally.tool_calls tally.tool_errors tally.usage.input_tokens tally.usage.output_tokens tally.usage.cost_usd"];
    "iteration" session "Turn {turn} begins" [""];
    "agent_start" session "An agent begins: {run_id}" ["call"];
    "context_compacted" session "The context is made shorter" ["model"] "data.compacted" as Value, "content" as Content;
    "llm.request" model "The model is asked: {model}" ["batch prompt_id endpoint attempt messages tools bytes stream"];
    "llm.response" model "The model answers: {model}" ["batch endpoint attempt code status duration_ms first_token_ms stop_reason usage.input_tokens usage.output_tokens usage.cache_read_tokens usage.cost_usd"] "message" as Content, "content" as Content;
    "llm.batch" model "A batch at the provider" ["code"] "message" as Content, "data.job" as Value;
    "message" message "{role}" ["model endpoint stop_reason usage.input_tokens usage.output_tokens usage.cost_usd"] "content" as Content;
    "tool_call" tool "Call of {name}" ["id"] "data.input" as Input;
    "tool_result" tool "Result of {name}" ["id exit_code duration_ms"] "content" as Output;
    "tool_screened" tool "Screened: {name}" ["id"] "data.outcome" as Value;
    "tool_sifted" tool "Result changed: {name}" ["id content_sha256"];
    "mcp.server" tool "A server of tools" [""] "data.server" as Value;
    "mcp.session" session "A client speaks the Model Context Protocol" ["client.name client.version protocol host_session"];
    "mcp.pinned" tool "The tools of {server} are kept" [""] "data.tools" as Value;
    "mcp.call" tool "The client calls {tool}" ["call client.name server input_hash"];
    "mcp.result" tool "Result of {tool}" ["call outcome is_error duration_ms output.bytes"];
    "mcp.refused" tool "Refused: {rule}" ["call tool server"] "message" as Content;
    "exec.intent" command "A command starts" ["tool rule risk profile network cwd timeout_ms confirmed"] "data.argv" as Command, "data.line" as Command;
    "exec.step" command "Starts {exe.path}: {decision}" ["by rule reason approval cwd"] "data.argv_as_asked" as Command;
    "exec.request" command "A program inside asks for a command: {decision}" ["rule cwd"] "data.argv" as Command, "data.line" as Command;
    "exec.expanded" command "The words of part {part}" [""] "data.argv" as Command;
    "exec.part" command "Part {part} ends: exit {return_code}" ["signal ended duration_ms stdout.bytes stderr.bytes enforcement.profile enforcement.network"] "data.argv" as Command, "data.enforcement" as Value;
    "exec.result" command "The command ends: exit {return_code}" ["signal ended duration_ms stdout.bytes stderr.bytes steps.line steps.programs steps.unrecorded steps.denied enforcement.profile enforcement.network"] "data.enforcement" as Value;
    "exec.refused" command "Refused: {rule}" ["code rule"] "message" as Content, "data.asked" as Asked;
    "exec.evidence" command "What the command may touch" [""] "data" as Value;
    "exec.changes" command "Files created: {created}, changed: {changed}, removed: {removed}" ["truncated not_kept"] "data.files" as Value;
    "exec.operation" command "{operation}" ["what.call"] "data.what" as Value;
    "host.session" session "{host}: {moment}" ["host_session cwd"];
    "host.intent" tool "{host} asks about {tool}: {decision}" ["host_call rule cwd"] "data.command" as Command, "data.paths" as Value, "data.input" as Input;
    "host.result" tool "{host} has the result of {tool}" ["host_call failed output.bytes"] "data.secrets" as Value, "data.content" as Output;
    "hook.install" program "The hook of {host} is installed" ["file sha256"];
    "hook.remove" program "The hook of {host} is removed" ["file"];
    "mcp.install" program "The server is put into {host}" ["file after"];
    "mcp.remove" program "The server is taken out of {host}" ["file"];
    "undone" command "Undone" ["call"] "data" as Value;
    "policy.init" command "A policy is made" ["file sha256"];
    "approval.asked" person "Approval is asked for" ["id approval.action approval.level approval.shown.rule approval.shown.risk approval.shown.cwd approval.expires_at"] "message" as Content, "data.approval.shown.argv" as Command, "data.approval.shown.line" as Command, "data.approval.shown.input" as Input, "data.approval.shown.diff" as Difference;
    "approval.granted" person "Approved by {by}" ["id how scope uid"];
    "approval.denied" person "Denied by {by}" ["id uid"] "message" as Content;
    "approval.spent" person "The approval of {by} is used" ["id how scope"];
    "session_start" session "The session begins" ["agent mode tier name cwd"];
    "session_end" session "The session ends" [""] "message" as Content;
    "session_resumed" session "The session goes on" [""];
    "session_name" session "The session is called {name}" [""];
    "session_turn" session "A turn is complete" ["risk cancelled dry_run redactions"];
    "session_question" message "A question" [""] "content" as Content;
    "session_compact" session "The history is made shorter" [""] "content" as Content, "data" as Value;
    "session_clear" session "The history is cleared" [""];
    "agent_turn" model "A turn of {agent}" ["command_form verdict code duration_ms"] "data.command" as Content, "data" as Value;
    "memory" message "A memory" ["kind"] "message" as Content;
    "command" program "{program} {verb}" ["exit code duration_ms origin"] "data.argv" as Command;
    "error" program "{program} {verb} fails" ["exit code duration_ms origin"] "message" as Content, "data.argv" as Command;
    "log" other "A note" [""] "message" as Content, "content" as Content, "data" as Value;
    "ledger.open" ledger "The ledger begins" ["origin verifier"];
    "ledger.checkpoint" ledger "A checkpoint is signed" ["size root verifier"];
    "ledger.recovered" ledger "The ledger was repaired" ["offset len sha256 file"];
    "ledger.forget" ledger "A sealed value is to be forgotten" ["sealed"];
    "ledger.forgotten" ledger "A sealed value is forgotten" ["sealed"];
    "segment.seal" ledger "A file of the ledger is closed" ["count first last"];
    "segment.open" ledger "A file of the ledger begins" ["file len sha256"];
};
