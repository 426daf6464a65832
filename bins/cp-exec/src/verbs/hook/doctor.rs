//! `cp-exec hook doctor`: checks which hosts have the hook, if it fails closed, and if the host really calls it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use cp_common::coprocess::{ask_with, on_path};
use cp_common::home::{resolved, write_whole};
use cp_common::program::describe::Doctor;
use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::{Code, Context, Error, Result};
use serde::Deserialize;

use crate::hosts::facts::RouteFacts;
use crate::hosts::{
    Call, Canary, CanaryResult, Command, HookHost, add_hook, lines, program_in, run_canary, server_script, shell,
};
use crate::policy;
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

/// Test each route of the hosts: run each of them once with a local model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this one (default: those that are installed or configured)
    #[arg(value_name = "HOST", value_enum)]
    host: Option<HookHost>,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut checks = vec![policy_check(context)];
    let person = person(context)?;
    let here = context.base()?;
    for host in args.host.map_or_else(|| HookHost::value_variants().to_vec(), |host| vec![host]) {
        let files = [("person", host.file(None, &person)), ("project", host.file(Some(&here), &person))];
        let program = on_path(host.name());
        if args.host.is_some() || program.is_some() || files.iter().any(|(_, file)| has_hook(host, file)) {
            host_checks(host, program.as_deref(), &files, &here, context, &mut checks)?;
        }
    }
    if checks.len() == 1 {
        let message = "neither claude nor codex is on the path or has the hook";
        checks.push(Check::not_fine("hosts", Status::Warn, message, "`cp-exec hook install HOST` puts the hook in"));
    }
    Doctor::of(checks).report(context)
}

fn has_hook(host: HookHost, file: &Path) -> bool {
    let text = std::fs::read_to_string(file);
    text.is_ok_and(|text| lines(host, &text).map_or(true, |lines| !lines.is_empty()))
}

fn host_checks(
    host: HookHost,
    program: Option<&Path>,
    files: &[(&str, PathBuf); 2],
    here: &Path,
    context: &Context,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let name = host.name();
    checks.push(match program {
        Some(program) => Check::pass(name, installed(host, program)),
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
        match routes(host, program, here, context) {
            Err(error) if error.code() == Code::Interrupted => return Err(error),
            Err(error) => {
                let fix = error.hint_text().unwrap_or("try again").to_owned();
                checks.push(Check::not_fine(&format!("{name}_shell"), Status::Fail, error.message(), fix));
            }
            Ok(routes) => checks.extend(routes),
        }
    }
    Ok(())
}

/// Tests the routes of a host that is on the path, in a project or here.
pub(super) fn test_routes(host: HookHost, project: Option<PathBuf>, context: &Context) -> Result<()> {
    let Some(program) = on_path(host.name()) else { return Ok(()) };
    let here = project.map_or_else(|| context.base(), Ok)?;
    let checks = routes(host, &program, &here, context)?;
    let open: Vec<Check> = checks.into_iter().filter(|check| check.status == Status::Fail).collect();
    let Some(first) = open.first() else { return Ok(()) };
    let named: Vec<String> = open.iter().map(|Check { check, message, .. }| format!("{check}: {message}")).collect();
    let message = format!("the hook is in the configuration, but not all routes meet it: {}", named.join("; "));
    Err(Error::new(Code::Partial, message).hint(first.fix.clone().unwrap_or_default()))
}

/// The home directory of the user, as the hosts determine it.
pub(super) fn person(context: &Context) -> Result<PathBuf> {
    cp_hosts::person().map_or_else(|| policy::load(&context.home.policy_file()).map(|loaded| loaded.home), Ok)
}

/// The program and its version, and the version with which the routes were tried if it is another one.
fn installed(host: HookHost, program: &Path) -> String {
    let (own, tried) = (version(program), &host.facts().version);
    let other = if own.contains(tried.as_str()) { String::new() } else { format!(" (tried with {tried})") };
    format!("{} {own}{other}", program.display())
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
fn configured(host: HookHost, file: &Path, context: &Context) -> std::result::Result<(), String> {
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
    if host == HookHost::Claude && !shell::is_written(&command) {
        return Err("the program of CLAUDE_CODE_SHELL_PREFIX is missing or changed, so no command runs".to_owned());
    }
    if same { Ok(()) } else { Err("not as this cp-exec writes it, so it may not close".to_owned()) }
}

/// Runs the host with a model that tries each of its routes. With the hook, no call has an effect outside of the project,
/// and the model receives the output of a line from our sandbox, or the refusal.
fn routes(host: HookHost, program: &Path, here: &Path, context: &Context) -> Result<Vec<Check>> {
    #[derive(Deserialize)]
    struct Decision {
        decision: String,
        reason: String,
    }
    // The name of the directory does not contain a mark, because a host tells its model the working directory.
    let place = std::env::temp_dir().join(format!("cp-exec-{}-hook", std::process::id()));
    std::fs::create_dir(&place).map_err(|e| Error::io("creating the directory", e).in_file(&place))?;
    let facts = host.facts();
    let tried: Vec<Route> = facts.routes.iter().map(|route| Route::of(route, &place, here)).collect();
    let line = |name: &str| tried.iter().find(|route| route.facts.name == name).map_or("", |route| &route.line);
    let skill = place.join(".claude/skills/canary/SKILL.md");
    write_whole(&skill, format!("---\nname: canary\ndescription: a test\n---\n!`{}`\n", line("skill")).as_bytes())?;
    let server = server_script(line("mcp tool"));
    let canary = Canary { host, program, cwd: here, place: &place, denied: DENIED, server: &server };
    let home = ["--home".into(), context.home.root().into()];
    let shell = tried.last().map(|route| route.line.clone()).unwrap_or_default();
    let seen = ask_with("cp-exec", &["check", "-c", &shell], b"", home)
        .and_then(|answer| answer.data::<Decision>())
        .and_then(|decision| Ok((decision, run_canary(&canary, tried.iter().map(Route::call).collect())?)));
    let ran: Vec<bool> = tried.iter().map(|route| route.file.exists()).collect();
    tried
        .iter()
        .filter(|route| !route.file.starts_with(&place))
        .for_each(|route| drop(std::fs::remove_file(&route.file)));
    std::fs::remove_dir_all(&place).map_err(|e| Error::io("removing the directory", e).in_file(&place))?;
    let (decision, seen) = seen?;
    let refusal = (decision.decision != "allow").then_some(decision.reason);
    let check = |(index, route): (usize, &Route)| route.judge(host, ran[index], index, &seen, refusal.as_deref());
    Ok(tried.iter().enumerate().map(check).collect())
}

/// The command that the rules of the user deny during the test.
const DENIED: &str = "true cp-exec-denies";

/// Names of files in a project that another program executes. The first that the project does not have is tried.
const GUARDED: [&str; 4] = [".perldb", ".octaverc", ".lldbinit", ".kshrc"];

/// A route that is tried.
struct Route {
    facts: &'static RouteFacts,
    mark: String,
    /// The command line, which creates the file if it runs outside.
    line: String,
    /// The file that exists afterwards if the route is open.
    file: PathBuf,
}

impl Route {
    fn of(facts: &'static RouteFacts, place: &Path, here: &Path) -> Self {
        let mark = format!("cp-exec-canary-{}-{}", std::process::id(), facts.name.replace(' ', "-"));
        let mut guarded = GUARDED.iter().map(|name| here.join(name)).filter(|file| !file.exists());
        let file = guarded.next().filter(|_| facts.input.contains("GUARDED")).unwrap_or_else(|| place.join(&mark));
        let quoted = cp_common::wire::quoted(&file.to_string_lossy());
        let line = format!("echo ran > {quoted}; test -S {SUPERVISOR} && printf %s-%s contained {mark}");
        Self { facts, mark, line, file }
    }

    fn call(&self) -> Call {
        let denied = format!("{DENIED} && {}", self.line);
        let file = self.file.to_string_lossy();
        let values = [
            ("LINE", self.line.as_str()),
            ("DENIED", &denied),
            ("FILE", &file),
            ("GUARDED", &file),
            ("MARK", &self.mark),
        ];
        let input = values.iter().fold(self.facts.input.clone(), |input, (word, value)| {
            let text = serde_json::Value::from(*value).to_string();
            input.replace(&format!("{{{word}}}"), text.trim_matches('"')).replace(word, &text)
        });
        let arguments = serde_json::from_str(&input).unwrap_or_default();
        Call { tool: self.facts.tool.as_str(), arguments, mark: self.mark.clone() }
    }

    /// Judges the results of the call. `ran`: it had an effect outside. `refusal`: the reason for which the policy refuses
    /// a command line.
    fn judge(&self, host: HookHost, ran: bool, index: usize, seen: &CanaryResult, refusal: Option<&str>) -> Check {
        let name = &self.facts.name;
        let check = format!("{}_{}", host.name(), name.replace(' ', "_"));
        let results = &seen.results[index];
        // Hosts quote the messages of a hook, and some show its command line, including the word for a failure.
        let plain = |text: &str| text.replace(['\\', '"', '\n', ' '], "").replace("'cp-exechookfailed'", "");
        let says = |what: &str| results.iter().any(|text| plain(text).contains(&plain(what)));
        let contained = format!("contained-{}", self.mark);
        let refused = |status, message: String, fix: &str| Check::not_fine(&check, status, message, fix);
        let is_denied = self.facts.input.contains("DENIED");
        let is_tool = name == "mcp tool" || name == "unknown tool";
        if ran || is_denied && says(&contained) {
            let message = match name.as_str() {
                "file" => "OPEN: a file outside of the policy was written, and the hook was not asked",
                "guarded file" => "OPEN: a file was written that another program executes",
                "mcp tool" | "unknown tool" => "OPEN: a tool ran that the policy does not list",
                _ if is_denied => "OPEN: a command ran that a rule of the user denies",
                _ => "OPEN: a command ran outside the sandbox: the hook was not asked",
            };
            let fix = match host {
                _ if is_tool => "write `[tools] allow = [\"@default\"]` in the policy, and add the tools that may run",
                _ if is_denied => "deny the command in the policy, by restricted_commands or a rule",
                HookHost::Codex => {
                    "start codex and trust the hook (/hooks): it passes over one that was not trusted, and says nothing"
                }
                HookHost::Claude => {
                    "look whether the host has its hooks switched off, or does not trust this directory"
                }
            };
            return refused(Status::Fail, message.to_owned(), fix);
        }
        if name != "shell" {
            return match results.iter().find(|text| text.contains(' ')).or(results.first()) {
                // A host that has no tool of the unknown name runs none.
                Some(text) if name == "mcp tool" && !says("Tool not permitted") => {
                    let message = format!("not tried: the host itself refused the call: {}", shortened(text, 100));
                    refused(Status::Warn, message, "look whether the host starts MCP servers in this directory")
                }
                Some(text) => Check::pass(&check, format!("no effect outside: {}", shortened(text, 100))),
                None => refused(Status::Warn, "not tried: the host did not carry out the call".to_owned(), "try again"),
            };
        }
        if says(refusal.unwrap_or(&contained)) {
            Check::pass(&check, "the hook was asked, and the command was refused or ran in the sandbox")
        } else if says("cp-exec hook failed") {
            refused(Status::Fail, "the hook was asked and fails, so nothing runs".to_owned(), "run `cp-exec doctor`")
        } else if let Some(last) = results.iter().find(|text| text.contains(' ')) {
            let message =
                format!("the command neither ran in the sandbox nor was refused by the hook: {}", shortened(last, 300));
            refused(Status::Warn, message, "look whether the host refuses commands by itself")
        } else {
            let message = format!("the host did not ask its model: {}", seen.last_error_line);
            refused(Status::Warn, message, "start the host once by itself, and see what it says")
        }
    }
}

/// The first characters of a text, on one line.
fn shortened(text: &str, most: usize) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(most).collect()
}
