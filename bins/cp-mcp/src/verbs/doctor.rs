//! What `doctor` looks at: the server is started as each host would that has it, and a tool is called.

use std::path::Path;

use clap::ValueEnum as _;
use cp_common::Context;
use cp_common::program::{Check, Status};
use cp_hosts::Host;

use super::install::{argv, person};
use crate::hosts::{Seen, file_of, server, visit};

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

/// What is to be said of a host's file; nothing of one that does not have us. What a project has written is started only if it is what
/// we would write: it may be the project of a stranger, whose servers the host starts once its person has agreed.
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
        let fix = format!("look at it; `cp-mcp install {} --project DIR` replaces it", host.name());
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
        Err(error) => failed(error.message(), format!("see what it says: {} </dev/null", words(&server.argv))),
    }
}

fn words(argv: &[String]) -> String {
    argv.iter().map(|word| cp_common::wire::quoted(word)).collect::<Vec<_>>().join(" ")
}
