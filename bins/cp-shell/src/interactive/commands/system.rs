//! `:! COMMAND`: a command for the system, run by `cp-exec` as the person's own. Policy decides; where it asks, the person is asked.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use cp_common::context::options::Origin;
use cp_common::{Code, Context, Error, Result, coprocess, signals};
use serde_json::{Value, json};

use crate::interactive::console::Console;
use crate::interactive::console::render::harmless;
use crate::interactive::console::render::{show, style};
use crate::interactive::outcome::Outcome;
use crate::interactive::state::State;
use crate::parts::{check_governed, owner_approves};
use crate::signals::Tracker;

/// Runs it, if that is allowed.
///
/// One that was `proposed` by a model never runs without a yes, also where policy asks for none.
pub(crate) fn run(state: &mut State<'_>, command: &str, proposed: bool) -> Result<Outcome> {
    if command.is_empty() {
        return Err(Error::usage("a command must follow `:!`").hint("write it after `:!`: :! git status"));
    }
    let State { context, console, standing, .. } = state;
    check_governed(context, &standing.plane, command).inspect_err(|_| standing.tracker.denied())?;
    let mut exec = Exec { command, flags: flags_of_person(context) };
    exec.flags.extend(standing.plane.root_option());
    let decision = exec.ask(&["check", "-c", command])?;
    let token = match decision["decision"].as_str() {
        Some("allow") if proposed => {
            Exec::agreed(&decision, console, &mut standing.tracker, context)?;
            None
        }
        Some("allow") => None,
        Some("ask") => exec.confirmed(&decision, console, &mut standing.tracker, context)?,
        _ => {
            standing.tracker.called(true);
            standing.tracker.denied();
            return Err(denied(&decision, context.home.policy_file().exists()));
        }
    };
    standing.tracker.called(false);
    for notice in decision["notices"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        show(&mut context.out, &format!("{}\n", style().faint(&harmless(notice))))?;
    }
    context.out.flush()?;
    let status = exec.run(token.as_deref())?;
    // A signal was for the command, and it has ended.
    signals::forget_interrupt();
    let style = style();
    let mut text = String::new();
    if status != Some(0) {
        let end = status.map_or_else(|| "was killed".to_owned(), |status| format!("exited with status {status}"));
        let name = command.split_whitespace().next().unwrap_or_default();
        text.push_str(&style.error(&format!("{name} {end}"), None));
    }
    Ok(Outcome {
        text,
        result: json!({"command": command, "status": status}),
        calls: vec![json!({"program": "cp-exec", "command": command})],
        exit: u8::from(status != Some(0)),
        has_strip: true,
        ..Outcome::default()
    })
}

fn denied(decision: &Value, has_policy: bool) -> Error {
    let reason = decision["reason"].as_str().unwrap_or("policy does not allow it");
    let rule = decision["rule"].as_str().unwrap_or("policy");
    let hint = match rule {
        // cp-exec sends a model to another tool; a person can allow the command.
        "not_allowed" if has_policy => Some("add its name to allowed_commands in config/policy.toml of the home"),
        "not_allowed" => Some("`cp-exec policy init` writes a starter policy, whose allowed_commands can be changed"),
        "shell_operator" => {
            Some("policy takes one command at a time: give its parts one by one, or put the line into a script")
        }
        _ => decision["hint"].as_str(),
    };
    let error = Error::new(Code::Forbidden, format!("denied: {reason} ({rule})"));
    hint.into_iter().fold(error, Error::hint)
}

/// The flags that hand the context on, with the person as the one who asks.
fn flags_of_person(context: &mut Context) -> Vec<OsString> {
    let before = context.options.origin.replace(Origin::Person);
    let flags = context.handed_on();
    context.options.origin = before;
    flags
}

/// A command line for cp-exec.
struct Exec<'a> {
    command: &'a str,
    flags: Vec<OsString>,
}

impl Exec<'_> {
    fn ask(&self, words: &[&str]) -> Result<Value> {
        coprocess::ask_with("cp-exec", words, b"", self.flags.clone())?.data()
    }

    /// A yes to a command that somebody else wrote.
    fn agreed(decision: &Value, console: &Console, tracker: &mut Tracker, context: &mut Context) -> Result<()> {
        let rule = decision["rule"].as_str().unwrap_or("policy");
        show(
            &mut context.out,
            &format!(
                "{}
",
                style().faint(&format!("policy allows it ({})", harmless(rule)))
            ),
        )?;
        if console.agrees("Run it? [y/N] ") {
            tracker.confirmed();
            return Ok(());
        }
        tracker.denied();
        Err(Error::new(Code::Forbidden, "cancelled: nothing was run").hint("a yes at a terminal runs it"))
    }

    /// A yes, and the token that it gives: none where cp-exec keeps the yes of the policy's owner itself.
    fn confirmed(
        &self,
        decision: &Value,
        console: &Console,
        tracker: &mut Tracker,
        context: &mut Context,
    ) -> Result<Option<String>> {
        let reason = decision["reason"].as_str().unwrap_or("policy asks");
        let rule = decision["rule"].as_str().unwrap_or("policy");
        if !console.is_terminal() {
            tracker.denied();
            let message = format!("cancelled: policy requires approval ({rule}), and there is no terminal to ask at");
            return Err(Error::new(Code::ConfirmationRequired, message)
                .hint("the next line of a script is never taken as an answer"));
        }
        let preview = self.ask(&["--dry-run", "-c", self.command])?;
        let Some(token) = preview["confirm_token"].as_str() else {
            // It was not run: the request is what can be approved.
            let stop = self.ask(&["-c", self.command]).err().and_then(|stop| stop.details().remove("resume"));
            if !stop.as_ref().and_then(Value::as_str).map_or(Ok(false), owner_approves)? {
                tracker.denied();
                return Err(Error::new(Code::Forbidden, "cancelled: nothing was run"));
            }
            tracker.confirmed();
            return Ok(None);
        };
        show(&mut context.out, &format!("{}\n", style().warning(&harmless(reason))))?;
        if !console.agrees(&format!("Run {}? [y/N] ", harmless(self.command))) {
            tracker.denied();
            return Err(Error::new(Code::Forbidden, "cancelled: nothing was run"));
        }
        tracker.confirmed();
        Ok(Some(token.to_owned()))
    }

    /// Lets it run with our own output. It reads nothing: the lines that follow are ours.
    fn run(&self, token: Option<&str>) -> Result<Option<i32>> {
        let mut exec = Command::new(coprocess::find("cp-exec")?);
        exec.args(&self.flags)
            .args(["--format", "raw"])
            .args(token.iter().flat_map(|token| ["--confirm", token]))
            .args(["-c", self.command]);
        let status = exec.stdin(Stdio::null()).status().map_err(|e| Error::io("starting cp-exec", e))?;
        Ok(status.code())
    }
}
