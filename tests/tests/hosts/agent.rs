//! The agents, each as its users start it without a screen: how it is configured, and what its tools are called.

use std::path::PathBuf;
use std::time::Duration;

use cp_testkit::{Outcome, Place, Program, packages, required};
use serde_json::{Value, json};

use super::model::{Call, Model, Turn};

/// An agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Copilot,
}

use Host::{Claude, Codex, Copilot, Gemini, Opencode};

/// A policy under which any program may run, so only the sandbox keeps a command from what is outside of the project.
pub(super) const ANY: &str = "[exec]\nallowed_commands = [\"*\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n";

/// A policy that allows one program, and another if its owner approves.
pub(super) const ONE: &str = "[exec]
allowed_commands = [\"printenv\", \"touch\"]
confirm = \"owner\"
[[exec.rule]]
command = \"touch\"
decision = \"confirm\"
[paths]
read = [\".\"]
write = [\".\"]
forbidden = [\"secret/**\"]
";

/// Those that are tried: each of them is there, or the test fails.
pub(super) fn hosts() -> Vec<Host> {
    let all = if cp_testkit::is_long() { vec![Claude, Codex, Gemini, Opencode, Copilot] } else { vec![Claude, Codex] };
    all.into_iter().filter(|host| host.is_there()).collect()
}

/// Those that ask a hook of ours.
pub(super) fn hooked() -> impl Iterator<Item = Host> {
    [Claude, Codex].into_iter().filter(|host| host.is_there())
}

impl Host {
    /// What cp-exec calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Claude => "claude",
            Codex => "codex",
            Gemini => "gemini",
            Opencode => "opencode",
            Copilot => "copilot",
        }
    }

    /// Its program, as `.ci/run` installs it.
    pub(super) fn program(self) -> PathBuf {
        packages().with_file_name("hosts").join("node_modules").join(match self {
            Claude => "@anthropic-ai/claude-code-linux-x64/claude",
            Codex => "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
            Gemini => ".bin/gemini",
            Opencode => "opencode-linux-x64/bin/opencode",
            Copilot => "@github/copilot-linux-x64/copilot",
        })
    }

    pub(super) fn is_there(self) -> bool {
        required(
            &format!("{} (.ci/run installs it, all of them with CP_LONG=1)", self.name()),
            self.program().is_file(),
        )
    }

    /// A call of its shell.
    pub(super) fn shell(self, command: &str) -> Call {
        let input = json!({"command": command, "description": "a test"});
        match self {
            Claude => Call { tool: "Bash", input },
            Codex => Call { tool: "exec_command", input: json!({"cmd": command, "yield_time_ms": 30_000}) },
            Gemini => Call { tool: "run_shell_command", input },
            Opencode | Copilot => Call { tool: "bash", input },
        }
    }

    /// A call of the tool that makes a file.
    pub(super) fn write(self, path: &str, text: &str) -> Call {
        match self {
            Claude => Call { tool: "Write", input: json!({"file_path": path, "content": text}) },
            Codex => Call {
                tool: "apply_patch",
                input: format!("*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch").into(),
            },
            Gemini => Call { tool: "write_file", input: json!({"file_path": path, "content": text}) },
            Opencode => Call { tool: "write", input: json!({"filePath": path, "content": text}) },
            Copilot => Call { tool: "create", input: json!({"path": path, "file_text": text}) },
        }
    }
}

/// An agent in a place of its own, with its home in the user's.
pub(super) struct Agent {
    pub(super) host: Host,
    pub(super) place: Place,
}

impl Agent {
    pub(super) fn new(host: Host) -> Self {
        Self { host, place: Place::new() }
    }

    /// Asks this command before each tool, and gives it so many seconds.
    pub(super) fn hook(&self, command: &str, seconds: u32) {
        let entry = json!({"type": "command", "command": command, "timeout": seconds});
        let user = &self.place.user;
        match self.host {
            Claude => {
                let hooks = json!({"hooks": {"PreToolUse": [{"matcher": "", "hooks": [entry]}]}});
                user.write(".claude/settings.json", hooks.to_string());
            }
            Codex => {
                let hooks = json!({"hooks": {"PreToolUse": [{"hooks": [entry]}]}});
                user.write(".codex/hooks.json", hooks.to_string());
            }
            Gemini | Opencode | Copilot => panic!("{} asks no hook of ours", self.host.name()),
        }
    }

    /// Puts our hook into its configuration, as its person would. The programs lie in the place, where a test can
    /// replace them.
    pub(super) fn govern(&self, policy: &str) {
        self.install_hook(policy, &[]);
    }

    /// The same in the configuration of the project, which `cp-exec agent` shows to the agent.
    pub(super) fn govern_project(&self, policy: &str) {
        self.install_hook(policy, &["--project", "."]);
    }

    fn install_hook(&self, policy: &str, place: &[&str]) {
        for name in ["cp-exec", "cp-log", "cp-session", "cp-mcp"] {
            self.place.install(name);
        }
        self.place.policy(policy);
        let install = || self.place.program("cp-exec").args(["hook", "install", self.host.name()]).args(place);
        let plan = install().arg("--dry-run").run().data();
        install().arg("--confirm").arg(plan["confirm_token"].as_str().unwrap_or_default()).run().success();
    }

    /// Runs the agent until the model has no more calls.
    pub(super) fn run(&self, turns: Vec<Turn>) -> (Outcome, Model) {
        self.run_with(turns, &[])
    }

    /// The same in the conversation that it had last.
    pub(super) fn resume(&self, turns: Vec<Turn>) -> (Outcome, Model) {
        let words: &[&str] = match self.host {
            Claude | Opencode | Copilot => &["--continue"],
            Codex => &["resume", "--last"],
            Gemini => &["--resume", "latest"],
        };
        self.run_with(turns, words)
    }

    /// A call that makes the file `made` waits for its person, and runs once then, in the conversation that goes on.
    pub(super) fn runs_once_if_approved(&self, call: &Call) {
        let host = self.host;
        let made = || std::fs::remove_file(self.place.work.join("made")).is_ok();
        let (outcome, model) = self.run(vec![vec![call.clone()]]);
        let told = model.results().pop().unwrap_or_else(|| panic!("{host:?}: {outcome:?}\n{model:?}"));
        let mut words = told.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let id = words.find(|word| word.starts_with("APR-")).unwrap_or_else(|| panic!("{host:?}: {told}"));
        assert!(!made(), "{host:?}: {told}");
        let mut terminal = self.place.program("cp-exec").args(["approve", id]).terminal(80);
        terminal.wait_for("Allow it? y = yes, n = no: ");
        terminal.send("yes\r");
        terminal.end();
        let (outcome, model) = self.resume(vec![vec![call.clone()]]);
        assert!(made(), "{host:?}: {outcome:?}\n{model:?}");
        let (_, model) = self.resume(vec![vec![call.clone()]]);
        let told = model.results().pop().unwrap_or_default();
        assert!(!made() && told.contains("APR-"), "{host:?}: it was for once: {told}");
    }

    /// The same with more arguments.
    fn run_with(&self, turns: Vec<Turn>, more: &[&str]) -> (Outcome, Model) {
        // As if the person had looked at the hooks.
        let trusting: &[&str] = if self.host == Codex { &["--dangerously-bypass-hook-trust"] } else { &[] };
        self.run_as_it_is(turns, &[trusting, more].concat())
    }

    /// The same with no trust in its hooks but what is in its configuration.
    pub(super) fn run_as_it_is(&self, turns: Vec<Turn>, more: &[&str]) -> (Outcome, Model) {
        let model = Model::asking(turns);
        let outcome = self.command(&model.url(), more).run();
        (outcome, model)
    }

    /// The same in the sandbox of `cp-exec agent`.
    pub(super) fn run_contained(&self, turns: Vec<Turn>, more: &[&str]) -> (Outcome, Model) {
        let model = Model::asking(turns);
        let allowed = model.url().replace("http://", "model.test=");
        let installed = self.place.root.join("bin/cp-exec");
        let exec = if installed.exists() { installed } else { cp_testkit::program("cp-exec") };
        let outcome = self
            .command("http://model.test", more)
            .under(exec, ["agent", "--allow-host", &allowed, self.host.name(), "--"])
            .run();
        (outcome, model)
    }

    pub(super) fn command(&self, url: &str, more: &[&str]) -> Program {
        let user = &self.place.user;
        let program = self.place.program(self.host.program());
        let program = match self.host {
            Claude => program
                .env("ANTHROPIC_BASE_URL", url)
                .env("ANTHROPIC_API_KEY", "none")
                .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
                // Root may skip its permissions only in what calls itself a sandbox.
                .env("IS_SANDBOX", "1")
                .args(["-p", "go", "--output-format", "json", "--permission-mode", "bypassPermissions"]),
            Codex => {
                let provider = format!("{{name=\"local\",base_url=\"{url}/v1\",wire_api=\"responses\"}}");
                program
                    .env("CODEX_HOME", user.directory(".codex"))
                    // It keeps no programs of its own below the directory for temporary files.
                    .env("TMPDIR", self.place.root.directory("temporary"))
                    .args(["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"])
                    // This model gets the tool that patches files.
                    .args(["-m", "gpt-5.5", "-c", "model_provider=\"local\"", "-c"])
                    .arg(format!("model_providers.local={provider}"))
            }
            Gemini => {
                let mut settings: Value =
                    serde_json::from_str(&user.read_if_there(".gemini/settings.json")).unwrap_or(json!({}));
                settings["security"] = json!({"auth": {"selectedType": "gemini-api-key"}});
                settings["privacy"] = json!({"usageStatisticsEnabled": false});
                // It would wait for a registry that it cannot reach.
                settings["general"] = json!({"disableAutoUpdate": true, "enableAutoUpdate": false, "enableAutoUpdateNotification": false});
                user.write(".gemini/settings.json", settings.to_string());
                program
                    .env("GEMINI_API_KEY", "none")
                    .env("GOOGLE_GEMINI_BASE_URL", url)
                    .env("GEMINI_CLI_TRUST_WORKSPACE", "true")
                    // Else it starts itself once more, for more memory.
                    .env("GEMINI_CLI_NO_RELAUNCH", "true")
                    .args(["-m", "gemini-2.5-flash", "-p", "go", "--yolo", "--output-format", "json"])
            }
            Opencode => {
                let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "none"});
                let provider = json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {"tool_call": true}}});
                let config = json!({"autoupdate": false, "share": "disabled", "model": "local/m", "small_model": "local/m",
                    "permission": "allow", "provider": {"local": provider}});
                program
                    .env("OPENCODE_CONFIG_CONTENT", config.to_string())
                    .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
                    .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
                    .args(["run", "--format", "json"])
            }
            Copilot => program
                .env("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1"))
                .env("COPILOT_PROVIDER_TYPE", "openai")
                .env("COPILOT_PROVIDER_API_KEY", "none")
                .env("COPILOT_MODEL", "gpt-5")
                .env("COPILOT_OFFLINE", "true")
                .args(["-p", "go", "--allow-all-tools"]),
        };
        let program = program.args(more).limit(Duration::from_mins(3));
        if matches!(self.host, Codex | Opencode) { program.arg("go") } else { program }
    }
}
