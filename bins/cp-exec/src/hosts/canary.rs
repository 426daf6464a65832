//! The proof that a host asks its hook: the real program, a model on loopback, and one command that the policy refuses.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, Grace};
use cp_common::{Error, Result, signals};
use serde_json::{Value, json};

use super::model::{Call, Model};
use crate::hook::Host;

/// How long a host may take.
const LIMIT: Duration = Duration::from_secs(60);
const PROMPT: &str = "do it";

/// What came of the command.
pub(crate) struct Seen {
    /// It ran.
    pub ran: bool,
    /// What the model was told; empty if it was never told anything.
    pub told: Vec<String>,
    /// What the host said last on standard error.
    pub said: String,
}

/// Has the program of a host run in `cwd` and asked for `command`, which makes the file `mark` in `place` if it runs.
pub(crate) fn fire(host: Host, program: &Path, cwd: &Path, place: &Path, mark: &str, string: &str) -> Result<Seen> {
    let (tool, name) = match host {
        Host::Claude => ("Bash", "command"),
        Host::Codex => ("exec_command", "cmd"),
        Host::Gemini => ("run_shell_command", "command"),
        Host::Copilot | Host::Opencode => ("bash", "command"),
    };
    let arguments = json!({ name: string, "description": "a test of the hook" });
    let call = Call { tool, arguments, mark: mark.to_owned() };
    let model = Model::start(call).map_err(|e| Error::io("listening on loopback", e))?;
    let mut command = Command::new(program);
    command.current_dir(cwd).stderr(Stdio::piped());
    to(host, &mut command, &format!("http://{}", model.address), place)?;
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
    Ok(Seen { ran: place.join(mark).exists(), told: model.told(), said: child.error_text() })
}

/// Has a host speak to the model at `url`, without its questions to the person, and with the configuration that it has.
fn to(host: Host, command: &mut Command, url: &str, place: &Path) -> Result<()> {
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
            let settings = place.join("settings.json");
            let auth = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}}).to_string();
            fs::write(&settings, auth).map_err(|e| Error::io("writing", e).in_file(&settings))?;
            command.args(["-p", PROMPT, "--yolo", "--skip-trust"]).env("GEMINI_CLI_SYSTEM_SETTINGS_PATH", settings);
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
