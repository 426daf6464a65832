//! `cp-exec hook shell`: runs a command line of a host in the sandbox. Claude Code starts it for each line of tools,
//! skills, hooks and servers, because `hook install` names it in `CLAUDE_CODE_SHELL_PREFIX`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use cp_common::home::config::variable;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::{Context, Error, Result, words};

use super::enter;
use crate::hook::WrappedLine;
use crate::hosts::{Command, Host};
use crate::nofollow;
use crate::policy::{Access, HostCall, Policy};
use crate::run::Engine;
use crate::tools::filesystem;
use crate::verbs::run::{self, replaced_by};

pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &[
        "{} policy init && export CLAUDE_CODE_SESSION_ID=s CLAUDE_CODE_CHILD_SESSION=1 && {} hook shell claude 'echo hi'",
    ],
    input: &[Input::Bytes],
    exits: run::DOC.exits,
    events: run::DOC.events,
    ..VerbDoc::new("hook shell", Class::Governed, "exec_result")
};

/// Run a line of another agent's shell in the sandbox
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent
    #[arg(value_name = "HOST", value_parser = Host::hooked())]
    host: Host,
    /// The line, as the agent writes it for its shell
    #[arg(value_name = "LINE", allow_hyphen_values = true)]
    pub(in crate::verbs) line: String,
}

/// The longest path that a command can leave as the new working directory.
const LONGEST: u64 = 4096;

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let ours = Command::of(args.host, context)?;
    if args.line == ours.line() {
        return replaced_by("/bin/sh", &["-c", &args.line], &BTreeMap::new());
    }
    let Some(session) = variable("CLAUDE_CODE_SESSION_ID").filter(|id| !id.contains(['/', '\n'])) else {
        return Err(Error::usage("CLAUDE_CODE_SESSION_ID is not set").hint("only an agent starts `cp-exec hook shell`"));
    };
    if variable("CLAUDE_CODE_CHILD_SESSION").is_none() {
        let (gate, given) = (Path::new(&ours.program).with_file_name("cp-mcp"), words::split(&args.line)?.argv);
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        // Our own server programs are started as they are, and others behind our gate.
        let words = match &given[..] {
            [first, "--home", own_home, ..] if Path::new(first) == gate && *own_home == ours.home => {
                given[1..].to_vec()
            }
            _ => [&["--home", &ours.home, "proxy", "--"], &given[..]].concat(),
        };
        return replaced_by(&gate, &words, &BTreeMap::new());
    }
    let cwd = std::env::current_dir().map_err(|e| Error::io("the working directory", e))?;
    enter(args.host, &session, Some(&cwd), context)?;
    let mut engine = Engine::new(context, &[])?;
    let wrapped = WrappedLine::of(&args.line);
    let command = wrapped.as_ref().map_or(&args.line, |wrapped| &wrapped.command);
    let call = |call: String| HostCall { host: args.host.name().to_owned(), session: session.clone(), call };
    engine.serve(call(String::new()));
    let decision = engine.journal.host_decision(command)?;
    if let Some(decision) = &decision {
        engine.serve(call(decision.host_call.clone()));
    }
    let shell_text = wrapped.as_ref().map(|wrapped| wrapped.text(&format!("/tmp/{}", wrapped.cwd_name)).into());
    let line = run::Args {
        string: Some(command.clone()),
        cwd: Some(cwd.display().to_string()),
        timeout: decision.and_then(|decision| decision.timeout).map(|milliseconds| milliseconds / 1000.0),
        shell_text,
        hosted: engine.policy.actor.host.as_ref().map(HostCall::word),
        stdin: wrapped.is_none().then(|| "-".to_owned()),
        ..run::Args::default()
    };
    run::begin(&mut engine, false, context)?;
    run::command(&mut engine, &line, context)?;
    if let Some(wrapped) = &wrapped {
        // Without the file, the host keeps its working directory.
        drop(pass_cwd_on(&engine.policy, wrapped));
    }
    Ok(())
}

/// Copies the working directory at the end of a command from the session's `/tmp` to the file of the host, if the
/// policy lets tools read the directory.
fn pass_cwd_on(policy: &Policy, wrapped: &WrappedLine) -> Result<()> {
    let Some(from) = policy.session_tmp().map(|directory| directory.join(&wrapped.cwd_name)) else { return Ok(()) };
    let file = nofollow::open_file(&from);
    let file = file.map_err(|e| Error::io("the working directory", std::io::Error::from(e)))?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    std::fs::remove_file(&from)?;
    let cwd = PathBuf::from(text.trim_end_matches('\n'));
    filesystem::check(policy, Access::Read, &cwd.to_string_lossy())?;
    if cwd.is_absolute() && cwd.is_dir() {
        File::create_new(&wrapped.cwd_file)?.write_all(text.as_bytes())?;
    }
    Ok(())
}
