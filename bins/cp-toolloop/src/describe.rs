//! Asking executables what they are: through cp-exec, each once, in the tightest sandbox.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cp_common::coprocess;
use cp_common::wire::record::Record;
use cp_common::{Context, Error, Result};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Request<'a> {
    tool: &'a str,
    operation: &'static str,
}

#[derive(Deserialize)]
struct Answer {
    stdout: String,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

/// The descriptions of some files, in their order: what each printed, or why it did not.
pub(crate) fn ask(names: &[String], directories: &[PathBuf], context: &Context) -> Result<Vec<Result<String, String>>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut child = Command::new(coprocess::find("cp-exec")?)
        .args(["--rows", "--closed"])
        .args(context.handed_on())
        .args(directories.iter().flat_map(|directory| ["--tools".into(), directory.as_os_str().to_owned()]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // What is wrong with a tool is reported once, by us.
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Error::io("starting cp-exec", e).fatal())?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let answers = std::thread::scope(|scope| {
        // Written beside the reading: neither pipe can fill up and stop both.
        scope.spawn(|| {
            let Some(mut stdin) = stdin else { return };
            for name in names {
                let mut line = serde_json::to_vec(&Request { tool: name, operation: "describe" }).unwrap_or_default();
                line.push(b'\n');
                if stdin.write_all(&line).is_err() {
                    return;
                }
            }
        });
        let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n'));
        lines.map_while(Result::ok).filter_map(|line| answer_of(&line)).take(names.len()).collect::<Vec<_>>()
    });
    child.wait().map_err(|e| Error::io("waiting for cp-exec", e))?;
    let missing = names.len() - answers.len();
    let silent = std::iter::repeat_with(|| Err("cp-exec gave no answer about it".to_owned())).take(missing);
    Ok(answers.into_iter().chain(silent).collect())
}

/// The answer in a line; `None` for a closing summary.
fn answer_of(line: &[u8]) -> Option<Result<String, String>> {
    let record = Record::parse(line).ok()?;
    if record.kind == Some(cp_common::wire::record::Kind::Summary) {
        return None;
    }
    if record.ok {
        return Some(record.read::<Answer>().map(|answer| answer.stdout).map_err(|e| e.message().to_owned()));
    }
    let failure = record.error.and_then(|error| serde_json::from_str::<Failure>(error.get()).ok());
    Some(Err(failure.map_or_else(|| "cp-exec refused it".to_owned(), |failure| failure.message)))
}
