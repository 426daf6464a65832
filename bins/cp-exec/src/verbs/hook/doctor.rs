//! `cp-exec hook doctor`: checks which hosts have the hook, if it fails closed, and if the host really calls it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use cp_common::coprocess::{ask_with, on_path};
use cp_common::home::resolved;
use cp_common::program::describe::Doctor;
use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::{Code, Context, Error, Result};
use cp_hosts::Host;
use serde::Deserialize;

use super::install::person;
use crate::hosts::{Canary, Command, add_hook, file_of, lines, program_in, run_canary, shell};
use crate::sandbox::SUPERVISOR;
use crate::verbs::doctor::policy_check;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook doctor",
    class: Class::Query,
    output: "doctor",
    examples: &["{} hook doctor"],
    ..VerbDoc::EMPTY
};

/// The time limit of `--version`.
const LIMIT: Duration = Duration::from_secs(20);

/// Test that the hosts call the hook: run each of them once with a local model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this one (default: those that are installed or configured)
    #[arg(value_name = "HOST", value_enum)]
    host: Option<Host>,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut checks = vec![policy_check(context)];
    let person = person(context)?;
    let here = context.base()?;
    for host in args.host.map_or_else(|| Host::value_variants().to_vec(), |host| vec![host]) {
        let files = [("person", file_of(host, None, &person)), ("project", file_of(host, Some(&here), &person))];
        let program = on_path(host.name());
        if args.host.is_some() || program.is_some() || files.iter().any(|(_, file)| has_hook(host, file)) {
            host_checks(host, program.as_deref(), &files, &here, context, &mut checks)?;
        }
    }
    if checks.len() == 1 {
        let message = "none of claude, codex, gemini, copilot and opencode is on the path or has the hook";
        checks.push(Check::not_fine("hosts", Status::Warn, message, "`cp-exec hook install HOST` puts the hook in"));
    }
    context.out.answer(&Doctor::of(checks))
}

fn has_hook(host: Host, file: &Path) -> bool {
    let text = std::fs::read_to_string(file);
    text.is_ok_and(|text| lines(host, &text).map_or(true, |lines| !lines.is_empty()))
}

fn host_checks(
    host: Host,
    program: Option<&Path>,
    files: &[(&str, PathBuf); 2],
    here: &Path,
    context: &Context,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let name = host.name();
    checks.push(match program {
        Some(program) => Check::pass(name, format!("{} {}", program.display(), version(program))),
        None => Check::not_fine(name, Status::Warn, "not on the path", "install it, or add its directory to PATH"),
    });
    let there: Vec<&(&str, PathBuf)> = files.iter().filter(|(_, file)| has_hook(host, file)).collect();
    if there.is_empty() {
        let fix = format!("`cp-exec hook install {name}` puts it in, with --project DIR for one project");
        checks.push(Check::not_fine(&format!("{name}_hook"), Status::Fail, "has no hook: its tools run freely", fix));
        return Ok(());
    }
    for (whose, file) in there {
        let (check, place) = (format!("{name}_{whose}"), file.display().to_string());
        checks.push(match configured(host, file, context) {
            Ok(()) => Check::pass(&check, place),
            Err(why) => {
                let fix = format!("`cp-exec hook install {name}` replaces it");
                Check::not_fine(&check, Status::Fail, format!("{place}: {why}"), fix)
            }
        });
    }
    if let Some(program) = program {
        let check = format!("{name}_canary");
        checks.push(match canary(&check, host, program, &files[0].1, here, context) {
            Err(error) if error.code() == Code::Interrupted => return Err(error),
            Err(error) => {
                Check::not_fine(&check, Status::Fail, error.message(), error.hint_text().unwrap_or("try again"))
            }
            Ok(check) => check,
        });
    }
    Ok(())
}

/// The first line of a program's `--version`.
fn version(program: &Path) -> String {
    let asked = duct::cmd(program, ["--version"]).stdin_null().stderr_null().stdout_capture().unchecked().start();
    let text = asked.and_then(|child| {
        let output = child.wait_timeout(LIMIT)?.map(|output| output.stdout.clone());
        child.kill()?;
        Ok(output.unwrap_or_default())
    });
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("says no version").to_owned()
}

/// Checks that the hook in a file is the one that would be installed now.
fn configured(host: Host, file: &Path, context: &Context) -> std::result::Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let found = lines(host, &text).map_err(|e| e.message().to_owned())?;
    let own = std::env::current_exe().and_then(|own| own.canonicalize()).map_err(|e| e.to_string())?;
    for line in &found {
        let program = program_in(host, line).unwrap_or_default();
        match program.canonicalize() {
            Err(e) => return Err(format!("{}: {e}", program.display())),
            Ok(there) if there != own => return Err(format!("{} is not this cp-exec", program.display())),
            Ok(_) => {}
        }
    }
    let home = resolved(context.home.root());
    let command = Command { host, program: &own.to_string_lossy(), home: &home.to_string_lossy() };
    let same = add_hook(&command, Some(&text)).map_err(|e| e.message().to_owned())? == text;
    if host == Host::Claude && !shell::is_written(&command) {
        return Err("the program of CLAUDE_CODE_SHELL_PREFIX is missing or changed, so no command runs".to_owned());
    }
    if same { Ok(()) } else { Err("not as this cp-exec writes it, so it may not close".to_owned()) }
}

/// Runs the host with a model that requests a command line that creates a file. With the hook, the model receives the
/// refusal of the line, or the output from our sandbox, in which the file is discarded.
fn canary(check: &str, host: Host, program: &Path, file: &Path, here: &Path, context: &Context) -> Result<Check> {
    #[derive(Deserialize)]
    struct Decision {
        decision: String,
        reason: String,
    }
    let mark = format!("cp-exec-canary-{}", std::process::id());
    // The name of the directory does not contain the mark, because a host tells its model the working directory.
    let place = std::env::temp_dir().join(format!("cp-exec-{}-hook", std::process::id()));
    std::fs::create_dir(&place).map_err(|e| Error::io("creating the directory", e).in_file(&place))?;
    let file_of_mark = cp_common::wire::quoted(&place.join(&mark).to_string_lossy());
    let string = format!("echo ran > {file_of_mark}; test -S {SUPERVISOR} && printf %s-%s contained {mark}");
    let canary = Canary { host, program, cwd: here, file, place: &place, mark: &mark, string: &string };
    let home = ["--home".into(), context.home.root().into()];
    let seen = ask_with("cp-exec", &["check", "-c", &string], b"", home)
        .and_then(|answer| answer.data::<Decision>())
        .and_then(|decision| Ok((decision, run_canary(&canary)?)));
    std::fs::remove_dir_all(&place).map_err(|e| Error::io("removing the directory", e).in_file(&place))?;
    let (decision, seen) = seen?;
    let answer = if decision.decision == "allow" { format!("contained-{mark}") } else { decision.reason };
    // Hosts quote the messages of a hook, and some show its command line, including the word for a failure.
    let plain = |text: &str| text.replace(['\\', '"', '\n', ' '], "").replace("'cp-exechookfailed'", "");
    let says = |what: &str| seen.tool_results.iter().any(|text| plain(text).contains(&plain(what)));
    let refused = |status, message: String, fix: &str| Check::not_fine(check, status, message, fix);
    Ok(if seen.ran {
        let fix = match host {
            Host::Codex => {
                "start codex and trust the hook (/hooks): it passes over one that was not trusted, and says nothing"
            }
            _ => "look whether the host has its hooks switched off, or does not trust this directory",
        };
        refused(Status::Fail, "a command ran outside the sandbox: the hook was not asked".to_owned(), fix)
    } else if says(&answer) {
        Check::pass(check, "the hook was asked, and the command was refused or ran in the sandbox")
    } else if says("cp-exec hook failed") {
        refused(Status::Fail, "the hook was asked and fails, so nothing runs".to_owned(), "run `cp-exec doctor`")
    } else if let Some(last) = seen.tool_results.iter().find(|text| text.contains(' ')) {
        let message = format!(
            "the command neither ran in the sandbox nor was refused by the hook: {}",
            last.chars().take(300).collect::<String>()
        );
        refused(Status::Warn, message, "look whether the host refuses commands by itself")
    } else {
        let message = format!("the host did not ask its model: {}", seen.last_error_line);
        refused(Status::Warn, message, "start the host once by itself, and see what it says")
    })
}
