//! Asking executables what they are: through cp-exec, each once, in the tightest sandbox.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use cp_common::coprocess::{self, Child, Grace};
use cp_common::wire::record::{Kind, Record};
use cp_common::{Code, Context, Error, Result};
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

/// The descriptions of some files, in their order: what each printed, or why it did not.
pub(crate) fn ask(names: &[String], directories: &[PathBuf], context: &Context) -> Result<Vec<Result<String, String>>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = Command::new(coprocess::find("cp-exec")?);
    command.args(["--rows", "--closed"]).args(context.handed_on());
    command.args(directories.iter().flat_map(|directory| ["--tools".into(), directory.as_os_str().to_owned()]));
    // What is wrong with a tool is reported once, by us.
    let mut child = Child::start(command.stderr(Stdio::null()), Grace::default())?;
    let answers = names.iter().map(|name| describe(&mut child, name)).collect::<Result<_>>()?;
    child.wait()?;
    Ok(answers)
}

/// Asks about one file.
fn describe(child: &mut Child, name: &str) -> Result<Result<String, String>> {
    let mut row = serde_json::to_vec(&Request { tool: name, operation: "describe" })
        .map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    row.push(b'\n');
    // One that takes no more input says why in its last answer.
    let _ = child.write(&row);
    while let Some(line) = child.next_line()? {
        let Ok(record) = Record::parse(line) else { continue };
        if record.kind == Some(Kind::Summary) {
            continue;
        }
        if record.ok {
            return Ok(record.read::<Answer>().map(|answer| answer.stdout).map_err(|e| e.message().to_owned()));
        }
        return Ok(Err(record.failure().message().to_owned()));
    }
    Ok(Err("cp-exec did not answer".to_owned()))
}
