//! Tests that a host calls its hook: runs the real program with a local model that requests one command which the
//! policy refuses.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, Grace};
use cp_common::home::write_whole;
use cp_common::{Error, Result, signals};
use cp_hosts::Host;
use serde_json::{Value, json};

use super::model::{Call, Model};

/// The time limit of a host.
const LIMIT: Duration = Duration::from_mins(1);
const PROMPT: &str = "do it";

/// The observations of a canary run.
pub(crate) struct CanaryResult {
    /// True if the command ran.
    pub ran: bool,
    /// The tool results that the model received; empty if it received none.
    pub tool_results: Vec<String>,
    /// The last line of the host on standard error.
    pub last_error_line: String,
}

/// The parameters of a canary run.
pub(crate) struct Canary<'a> {
    pub host: Host,
    pub program: &'a Path,
    /// The directory in which the host is started.
    pub cwd: &'a Path,
    /// The host's configuration file of the user.
    pub file: &'a Path,
    /// A temporary directory of the test.
    pub place: &'a Path,
    /// The file in it that the command creates if it runs.
    pub mark: &'a str,
    pub string: &'a str,
}

/// Runs the host, with a model that requests the command.
pub(crate) fn run_canary(canary: &Canary<'_>) -> Result<CanaryResult> {
    let &Canary { host, program, cwd, place, mark, string, .. } = canary;
    let (tool, name) = match host {
        Host::Claude => ("Bash", "command"),
        Host::Codex => ("exec_command", "cmd"),
        Host::Gemini => ("run_shell_command", "command"),
        Host::Copilot | Host::Opencode => ("bash", "command"),
    };
    let arguments = json!({ name: string, "description": mark });
    let call = Call { tool, arguments, mark: mark.to_owned() };
    let model = Model::start(call).map_err(|e| Error::io("listening on loopback", e))?;
    let mut command = Command::new(program);
    command.current_dir(cwd).stderr(Stdio::piped());
    configure(host, &mut command, &format!("http://{}", model.address), canary)?;
    let grace = Grace { after_input: Duration::ZERO, after_term: Duration::from_secs(2) };
    let mut child = Child::start_group(&mut command, grace)?;
    child.close_input();
    let until = Instant::now() + LIMIT;
    let mut unread = Vec::new();
    while Instant::now() < until && child.is_running() {
        unread.clear();
        if let Some(0) = child.read_some(&mut unread, Duration::from_millis(200))? {
            std::thread::sleep(Duration::from_millis(20));
        }
        signals::check()?;
    }
    child.stop();
    Ok(CanaryResult {
        ran: place.join(mark).exists(),
        tool_results: model.tool_results(),
        last_error_line: child.error_text(),
    })
}

/// Configures a host to use the model at `url`, without questions to the user, and with its existing configuration.
fn configure(host: Host, command: &mut Command, url: &str, canary: &Canary<'_>) -> Result<()> {
    let v1 = format!("{url}/v1");
    match host {
        Host::Claude => {
            let settings = json!({"env": {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}}).to_string();
            command.args(["-p", PROMPT, "--permission-mode", "bypassPermissions", "--no-session-persistence"]);
            command.args(["--strict-mcp-config", "--settings", &settings]);
            command.env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", "none").env("IS_SANDBOX", "1");
            command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
        }
        Host::Codex => {
            let provider = format!(
                "model_providers.canary={{name=\"canary\",base_url=\"{v1}\",wire_api=\"responses\",request_max_retries=0,stream_max_retries=0}}"
            );
            command.args([
                "exec",
                "--dangerously-bypass-approvals-and-sandbox",
                "--skip-git-repo-check",
                "--ephemeral",
            ]);
            command.args(["-c", &provider, "-c", "model_provider=\"canary\"", "-c", "model=\"gpt-5\"", PROMPT]);
        }
        Host::Gemini => {
            // The settings select the login and cannot be overridden, so a changed copy of them is used.
            let text = fs::read_to_string(canary.file).unwrap_or_else(|_| "{}".to_owned());
            let mut settings: Value = serde_json::from_str(&text)
                .map_err(|e| Error::config(format!("not strict JSON: {e}")).in_file(canary.file))?;
            settings["security"]["auth"]["selectedType"] = "gemini-api-key".into();
            let copy = canary.place.join(".gemini/settings.json");
            write_whole(&copy, settings.to_string().as_bytes())?;
            command.args(["-p", PROMPT, "--yolo", "--skip-trust"]).env("GEMINI_CLI_HOME", canary.place);
            command.env("GEMINI_API_KEY", "none").env("GOOGLE_GEMINI_BASE_URL", url);
            command.env("GEMINI_TELEMETRY_ENABLED", "false");
        }
        Host::Copilot => {
            command.args(["-p", PROMPT, "--allow-all-tools"]).env("COPILOT_PROVIDER_BASE_URL", v1);
            command.env("COPILOT_PROVIDER_TYPE", "openai").env("COPILOT_PROVIDER_API_KEY", "none");
            command.env("COPILOT_MODEL", "gpt-5").env("COPILOT_OFFLINE", "true").env("COPILOT_AUTO_UPDATE", "false");
        }
        Host::Opencode => {
            let models = json!({"m": {"name": "m", "tool_call": true}});
            let provider = json!({"npm": "@ai-sdk/openai-compatible", "name": "canary",
                "options": {"baseURL": v1, "apiKey": "none"}, "models": models});
            let config: Value = json!({"model": "canary/m", "small_model": "canary/m", "permission": "allow",
                "share": "disabled", "autoupdate": false, "provider": {"canary": provider}});
            command.args(["run", PROMPT]).env("OPENCODE_CONFIG_CONTENT", config.to_string());
            command.env("OPENCODE_DISABLE_AUTOUPDATE", "1").env("OPENCODE_DISABLE_MODELS_FETCH", "1");
        }
    }
    Ok(())
}
