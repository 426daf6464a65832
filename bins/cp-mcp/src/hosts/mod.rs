//! The configuration of hosts: our server added and removed, and a check that it starts and answers.

mod configured;
use self::configured::{Server, file_of, server, with_ours, without_ours};
use clap::ValueEnum as _;
use cp_common::coprocess::{Child, Grace};
use cp_common::program::{Check, Class, Status, VERSION, VerbDoc};
use cp_common::{Code, Context, Error, Result};
use cp_hosts::{Args, Edit, Host, change, own};
use cp_mcp_wire::{
    CallResult, Initialize, MODERN, Message, Meta, Page, Party, notification, parse, request as line_of,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const INSTALL: VerbDoc = VerbDoc {
    path: "install",
    class: Class::Write,
    output: "host_changed",
    examples: &["{} install claude --project . --dry-run"],
    events: &["mcp.install"],
    ..VerbDoc::EMPTY
};

pub(crate) fn install(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let words = argv(context)?;
    let next = args.place.project.as_ref().and(match host {
        Host::Claude => Some("start claude there: it asks once whether to use the server"),
        Host::Codex | Host::Gemini | Host::Copilot => Some("the host reads it in a directory that you have trusted"),
        Host::Opencode => None,
    });
    let edit = Edit {
        verb: INSTALL.path,
        event: "mcp.install",
        resource: "server",
        next,
        person: person()?,
        file: file_of,
        script: None,
        check: None,
    };
    change(&edit, args, context, |text| with_ours(host, &words, text).map(Some))
}

pub(crate) const REMOVE: VerbDoc = VerbDoc {
    path: "remove",
    class: Class::Write,
    output: "host_changed",
    examples: &["{} remove claude --project ."],
    events: &["mcp.remove"],
    ..VerbDoc::EMPTY
};

pub(crate) fn remove(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let edit = Edit {
        verb: REMOVE.path,
        event: "mcp.remove",
        resource: "server",
        next: None,
        person: person()?,
        file: file_of,
        script: None,
        check: None,
    };
    change(&edit, args, context, |text| text.map_or(Ok(None), |text| without_ours(host, text)))
}

/// The command by which a host starts this server.
pub(super) fn argv(context: &Context) -> Result<Vec<String>> {
    let (program, home) = own(context)?;
    Ok(vec![program, "--home".to_owned(), home, "serve".to_owned()])
}

/// The home directory of the user, as the hosts find it.
pub(super) fn person() -> Result<PathBuf> {
    cp_hosts::person().ok_or_else(|| Error::config("HOME is not set").hint("set it to your directory"))
}

pub(crate) fn checks(context: &mut Context) -> Vec<Check> {
    let mut checks = Vec::new();
    if let (Ok(person), Ok(here), Ok(own)) = (person(), context.base(), argv(context)) {
        for &host in Host::value_variants() {
            for (whose, project) in [("person", None), ("project", Some(here.as_path()))] {
                let check = format!("{}_{whose}", host.name());
                let file = file_of(host, project, &person);
                checks.extend(check_of(&check, host, &file, &here, project.is_some().then_some(&own)));
            }
        }
    }
    if checks.is_empty() {
        let message = "no configuration of a host has this server";
        checks.push(Check::not_fine("hosts", Status::Warn, message, "`cp-mcp install HOST` puts it in"));
    }
    checks
}

/// The check of a host's file, if it has our server. The server of a project is started only with our own command, because the project may
/// be untrusted.
fn check_of(check: &str, host: Host, file: &Path, here: &Path, only: Option<&Vec<String>>) -> Option<Check> {
    let text = std::fs::read_to_string(file).ok().filter(|text| text.contains("cp-mcp"))?;
    let place = file.display();
    let failed = |why: &str, fix: String| Some(Check::not_fine(check, Status::Fail, format!("{place}: {why}"), fix));
    let server = match server(host, &text) {
        Ok(server) => server?,
        Err(error) => return failed(error.message(), "correct the file; the host cannot read it either".to_owned()),
    };
    if only.is_some_and(|own| server.argv != *own || !server.env.is_empty()) {
        let message = format!("{place}: not as this cp-mcp writes it, so it was not started: {}", words(&server.argv));
        let fix = format!("check it; `cp-mcp install {} --project DIR` replaces it", host.name());
        return Some(Check::not_fine(check, Status::Warn, message, fix));
    }
    let milliseconds = |time: std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    match visit(host, &server, here) {
        Ok(Seen { greeted, tools, called }) => {
            let (program, start, call) = (&server.argv[0], milliseconds(greeted), milliseconds(called));
            let said =
                format!("{place}: {program} greets after {start}, has {tools} tools, and answers a call in {call}");
            Some(Check::pass(check, said))
        }
        Err(_) if !Path::new(&server.argv[0]).is_file() => {
            let fix = format!("`cp-mcp install {}` names this program, with --project DIR in a project", host.name());
            failed(&format!("{} is not there", server.argv[0]), fix)
        }
        Err(error) => failed(error.message(), format!("run it to see its error: {} </dev/null", words(&server.argv))),
    }
}

fn words(argv: &[String]) -> String {
    argv.iter().map(|word| cp_common::wire::quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The variables that every host passes on.
const ENVIRONMENT: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "TZ"];
/// The time limit of a response, which is the shortest start limit of the hosts.
const LIMIT: Duration = Duration::from_secs(10);
/// The tool that is called, which has no effect.
const TOOL: &str = "cp_check";

/// The times and the number of tools of a visit.
pub(crate) struct Seen {
    /// The time from the start to the response to the handshake.
    pub greeted: Duration,
    /// The number of tools.
    pub tools: usize,
    /// The time of the call.
    pub called: Duration,
}

/// The protocol version of a host.
const fn version(host: Host) -> &'static str {
    match host {
        Host::Claude | Host::Copilot => MODERN,
        Host::Codex | Host::Gemini => "2025-06-18",
        Host::Opencode => "2025-11-25",
    }
}

/// Starts a server in a directory as the host does, and calls a tool.
pub(crate) fn visit(host: Host, server: &Server, cwd: &Path) -> Result<Seen> {
    let (program, arguments) = server.argv.split_first().ok_or_else(|| Error::config("the command is empty"))?;
    let mut command = Command::new(program);
    let handed_on = ENVIRONMENT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.args(arguments).current_dir(cwd).env_clear().envs(handed_on).stderr(Stdio::piped());
    command.envs(server.env.iter().map(|(name, value)| (name, value)));
    let began = Instant::now();
    let child = Child::start_group(&mut command, Grace::default())?;
    let party = Party { name: format!("{}-doctor", host.name()), version: VERSION.to_owned() };
    let mut visit = Visit { child, version: version(host), party, asked: 0 };
    visit.greet()?;
    let greeted = began.elapsed();
    let tools = visit.ask::<Page>("tools/list", json!({}))?.tools;
    if !tools.iter().any(|tool| tool.name == TOOL) {
        return Err(Error::new(Code::Server, format!("it has {} tools, and {TOOL} is none of them", tools.len())));
    }
    let asked = Instant::now();
    let result: CallResult = visit.ask("tools/call", json!({"name": TOOL, "arguments": {"command": "true"}}))?;
    if result.is_error {
        return Err(Error::new(Code::Server, format!("{TOOL} fails: {}", result.text(|_, _| false))));
    }
    Ok(Seen { greeted, tools: tools.len(), called: asked.elapsed() })
}

struct Visit {
    child: Child,
    version: &'static str,
    party: Party,
    asked: u64,
}

impl Visit {
    fn greet(&mut self) -> Result<()> {
        if self.version == MODERN {
            return self.ask::<Value>("server/discover", json!({})).map(drop);
        }
        let (protocol_version, client_info) = (self.version.to_owned(), self.party.clone());
        let asked = Initialize { protocol_version, capabilities: json!({}), client_info };
        self.ask::<Value>("initialize", json!(asked))?;
        self.send(notification("notifications/initialized", &json!({})))
    }

    fn send(&mut self, line: serde_json::Result<String>) -> Result<()> {
        self.child.write(line.map_err(std::io::Error::from)?.as_bytes())
    }

    /// Sends a request, and waits for its response.
    fn ask<T: DeserializeOwned>(&mut self, method: &'static str, mut params: Value) -> Result<T> {
        if self.version == MODERN {
            let (version, client) = (MODERN.to_owned(), self.party.clone());
            params["_meta"] = json!(Meta { version, client, capabilities: json!({}) });
        }
        self.asked += 1;
        self.send(line_of(self.asked, method, &params))?;
        let (id, until) = (self.asked.to_string(), Instant::now() + LIMIT);
        loop {
            if !self.child.wait_line(until.saturating_duration_since(Instant::now()))? {
                return Err(Error::new(Code::Timeout, format!("no answer to {method} within {} s", LIMIT.as_secs())));
            }
            let Some(line) = self.child.next_line()? else { return Err(self.child.gone()) };
            // Other messages are ignored.
            let Some(Message::Answer { id: of, outcome }) = parse(line) else { continue };
            if of.get() != id {
                continue;
            }
            let refused = |why: String| Error::new(Code::Server, format!("{method} is not answered: {why}"));
            let result = outcome.map_err(|failure| refused(failure.to_string()))?;
            return serde_json::from_str(result.get()).map_err(|e| refused(e.to_string()));
        }
    }
}

#[cfg(test)]
mod tests;
