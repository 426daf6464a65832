//! One question: composes the prompt, sends it, stores the turn and prints the answer.

use std::path::Path;
use std::time::Duration;

use cp_common::context::given::{self, text_of};
use cp_common::coprocess::{Child, ChildOptions, ask_with, cmd, find};
use cp_common::home::Home;
use cp_common::home::config::variable;
use cp_common::output::{Output, printable_line, to_stderr};
use cp_common::program::terminal;
use cp_common::wire::quoted;
use cp_common::wire::record::{Kind, closed_line};
use cp_common::{Code, Error, Result, signals};
use rustix::fs::{FileType, fstat};
use rustix::stdio::{stdin, stdout};
use rustix::termios::isatty;
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use crate::answer::Printer;
use crate::arguments::Question;
use crate::conversation::{Agent, query, reopened};
use crate::files::{Files, tool_words};
use crate::templates::Template;

/// Sends a question and prints the answer. Returns the exit status of the first program that failed.
pub(crate) fn ask(mut question: Question, home: &Home, out: &mut Output) -> Result<u8> {
    let template = question.one("template").map(|name| Template::find(name, home)).transpose()?;
    if let Some(template) = &template {
        question.complete(&template.words()?).map_err(|e| e.in_file(&template.file))?;
    }
    let scratch = TempDir::with_prefix("cp-ask-").map_err(|e| Error::io("making a directory", e))?;
    let mut words = vec!["--input=text".to_owned()];
    words.extend(question.passed("prompt no-redact"));
    let mut option = |name: &str, value: &str| words.push(format!("--{name}={value}"));
    question.one("system").map(system_text).transpose()?.iter().for_each(|text| option("system", text));
    question.all("attach").for_each(|file| option("attach", file));
    let files = Files::of(question.files(), scratch.path())?;
    question.all("param").for_each(|variable| option("var", variable));
    if let Some(template) = &template {
        option("template", &template.file.display().to_string());
    }
    let (text, is_typed) = read_text(&question)?;
    let is_typed = is_typed && (!text.is_empty() || template.is_some());
    let named = question.one("session").map(reopened).transpose()?;
    let agent_id = named.as_ref().map(|(_, agent)| agent.as_str());
    let agent = Agent::of(question.one("agent").or(agent_id), home)?;
    let (is_dry, leaves_nothing) = (question.has("dry-run"), question.has("no-log"));
    let given = variable("CP_SESSION").filter(|_| !leaves_nothing && named.is_none());
    let goes_on = question.has("continue") || named.is_some();
    // A signal is reported by the steps, and does not interrupt the cleaning.
    let _effect = signals::effect();
    let session = match (&given, &named) {
        (Some(session), _) | (_, Some((session, _))) => Some(session.clone()),
        _ if is_dry => agent.current.session().filter(|_| goes_on),
        _ if goes_on => Some(agent.continued()?),
        _ => None,
    };
    // A session that is given has its own agent.
    if given.is_none() || question.one("agent").is_some() {
        option("agent", &agent.id);
    }
    option("mode", if goes_on { "persistent" } else { "isolated" });
    words.extend(session.iter().map(|session| format!("--session={session}")));
    let prompt = compose(words, text, is_typed.then_some(&question), &files)?;
    if is_dry || leaves_nothing {
        return answer(&question, session.as_deref(), scratch.path(), &prompt, out);
    }
    let session = session.map_or_else(|| agent.start(question.one("name")), Ok)?;
    if let Some(name) = question.one("name").filter(|_| goes_on || given.is_some()) {
        query(&["rename", &session, name])?;
    }
    let outcome = answer(&question, Some(&session), scratch.path(), &prompt, out);
    match outcome {
        _ if given.is_some() => {}
        Ok(0) => agent.keep(&session)?,
        // A person can go on in this session.
        _ if goes_on => {}
        Ok(status) if status == Code::HumanRequired.row().exit => {}
        // The failure of the call is reported, not that of the cleaning.
        _ => drop(query(&["end", &session])),
    }
    outcome
}

/// Returns the argument of `-s` in the form of `cp-compose`. An argument that names a file is read from the file.
fn system_text(given: &str) -> Result<String> {
    let file = Path::new(given);
    let is_name = given.contains('/') || [".md", ".txt"].iter().any(|end| given.ends_with(end));
    match given {
        _ if given.starts_with('@') || file.is_dir() => Ok(given.to_owned()),
        _ if file.exists() => Ok(format!("@{given}")),
        _ if is_name && !given.contains(char::is_whitespace) => {
            let error = Error::not_found(format!("{given}: no such file"));
            Err(error.hint(format!("write @@{given} to send it as text")))
        }
        _ => Ok(given.to_owned()),
    }
}

/// Time without input after which a notice explains the wait.
const SILENCE: Duration = Duration::from_secs(2);
/// The longest text on standard input, in bytes.
const LONGEST: u64 = 64 << 20;
/// The longest text that is an argument of a program, in bytes.
const LONGEST_ARGUMENT: usize = 100 << 10;

/// Reads standard input if it is requested, if there is no other text, or if it is a pipe, a socket or a file.
fn read_input(question: &Question) -> Result<Vec<u8>> {
    let kind = fstat(stdin()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let is_data = matches!(kind, Ok(FileType::Fifo | FileType::RegularFile | FileType::Socket));
    if !is_data && !question.needs_input() {
        return Ok(Vec::new());
    }
    if is_data && !signals::wait_readable(stdin(), Some(SILENCE))? {
        to_stderr("cp-ask: waiting for the end of standard input; write </dev/null if there is none\n");
    }
    given::bytes(Path::new("-"), LONGEST)
}

/// Returns the text of the command line, joined to standard input, and true if nothing is on standard input. An explicit
/// `-` with nothing behind it is refused.
pub(crate) fn read_text(question: &Question) -> Result<(String, bool)> {
    let input = if question.attaches_input() { Vec::new() } else { read_input(question)? };
    let input = text_of(&input).map_err(|error| {
        let error = error.in_file(Path::new("standard input"));
        error.hint("attach an image or a PDF with -a -, and convert a text, for example with iconv")
    })?;
    if question.reads_input && input.trim().is_empty() {
        return Err(Error::validation("the input is empty").hint("leave - out if there is none"));
    }
    let typed = question.text.join(" ");
    if question.is_foreign && input.trim().is_empty() {
        let refused = Error::usage(format!("`{typed}` is a command of other programs, and not sent without a text"));
        let refused = refused.hint(format!("to send the word: cp-ask -- {typed}"));
        let asked = format!("`{typed}` is a command of other programs. Send the word to the model? [y/N] ");
        terminal::confirms(&asked)?.filter(|is_yes| *is_yes).ok_or(refused)?;
    }
    let texts = [typed.as_str(), input].into_iter().filter(|text| !text.trim().is_empty());
    Ok((texts.collect::<Vec<_>>().join("\n\n"), input.is_empty()))
}

/// Composes the prompt. The text of a person is an argument, so that it is not marked as untrusted; other text is
/// standard input.
fn compose(mut words: Vec<String>, text: String, typed: Option<&Question>, files: &Files) -> Result<Vec<u8>> {
    let is_argument = typed.is_some() && text.len() < LONGEST_ARGUMENT;
    words.extend(["--".to_owned(), if is_argument { text.clone() } else { "-".to_owned() }]);
    let attached = typed.filter(|question| question.attaches_input()).map(read_input).transpose()?;
    let input = attached.unwrap_or(if is_argument { Vec::new() } else { text.into_bytes() });
    let prompt: Box<RawValue> = ask_with("cp-compose", &words, &input, files.options())?;
    let prompt = files.with_urls(prompt.get());
    let composed: Value = serde_json::from_str(&prompt).unwrap_or_default();
    composed["report"]["redacted"].as_array().into_iter().flatten().for_each(say_redacted);
    closed_line(Kind::Prompt.name(), &RawValue::from_string(prompt).map_err(std::io::Error::from)?)
}

/// Says which secrets of a file are not sent.
fn say_redacted(part: &Value) {
    let kinds = part["kinds"].as_object().into_iter().flatten();
    let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
    let source = part["source"].as_str().unwrap_or_default();
    let line = format!("cp-ask: {source}: secrets that are not sent: {}", kinds.join(", "));
    to_stderr(&format!("{}\n", printable_line(&line)));
}

/// Lets the model answer, stores the turn and prints the answer. Returns the exit status.
fn answer(question: &Question, session: Option<&str>, scratch: &Path, prompt: &[u8], out: &mut Output) -> Result<u8> {
    let (is_dry, leaves_nothing) = (question.has("dry-run"), question.has("no-log"));
    // A block and JSON are printed when they are complete.
    let is_whole = question.has("extract") || question.one("schema").is_some() || is_dry;
    let streams = (question.has("stream") || isatty(stdout())) && !is_whole;
    let mut printer = Printer::new(out, streams);
    let mut words = vec!["--format=json".to_owned()];
    words.extend(question.passed("backend model tool-backend extract dry-run"));
    words.extend(streams.then(|| "--stream".to_owned()).into_iter().chain(session.map(|id| format!("--session={id}"))));
    let mut request = question.passed("option schema retries timeout").peekable();
    let program = if let Some(tools) = question.one("tools") {
        words.extend(tool_words(Path::new(tools))?);
        if request.peek().is_some() {
            words.push(request.fold("--llm=cp-llm".to_owned(), |line, word| format!("{line} {}", quoted(&word))));
        }
        "cp-toolloop"
    } else {
        words.extend(request);
        "cp-llm"
    };
    // The ledger is removed with its directory.
    words.extend(leaves_nothing.then(|| format!("--ledger={}", scratch.join("ledger.jsonl").display())));
    let command = cmd(find(program)?, words).env_remove("CP_SESSION");
    // The lines on standard error come in the order of the records. The loop asks for approval at a terminal there.
    let command = if question.one("tools").is_some() { command } else { command.stderr_to_stdout() };
    let mut model = Child::start(program, &command, ChildOptions::DEFAULT)?;
    model.feed(prompt)?;
    let mut records = Vec::new();
    while let Some(line) = model.next_line()? {
        if !line.starts_with(b"{") {
            printer.say(line);
            continue;
        }
        printer.print(line)?;
        records.extend_from_slice(line);
        records.push(b'\n');
    }
    let status = model.wait()?;
    signals::check()?;
    let session = session.filter(|_| !is_dry);
    let stored = session.map(|session| ask_with::<Value>("cp-session", &["tee", "--session", session], &records, []));
    let outcome = if status.success() { stored.transpose().and_then(|_| printer.finish()) } else { Ok(()) };
    printer.close();
    if question.has("usage") {
        printer.say_usage();
    }
    outcome.map(|()| status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1)))
}
