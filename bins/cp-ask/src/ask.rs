//! One question: composes the prompt, sends it, stores the turn and prints the answer.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cp_common::context::given;
use cp_common::coprocess::{Child, Grace, ask_with, find};
use cp_common::home::Home;
use cp_common::output::{Output, printable_line, to_stderr};
use cp_common::stream::filter::text_of;
use cp_common::wire::quoted;
use cp_common::wire::record::{Kind, closed_line};
use cp_common::{Code, Error, Result, signals};
use rustix::fs::{FileType, fstat};
use rustix::stdio::stdin;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::Printer;
use crate::arguments::Question;
use crate::conversation::{Agent, query, reopened};
use crate::environment::variable;
use crate::templates::Template;
use crate::tools::Tools;

/// Sends a question and prints the answer. Returns the exit status of the first program that failed.
pub(crate) fn ask(question: &Question, home: &Home, out: &mut Output) -> Result<u8> {
    let mut words: Vec<String> = ["--input=text".to_owned()].into();
    let mut option = |name: &str, value: &str| words.push(format!("{name}={value}"));
    question.system.as_deref().map(system_text).transpose()?.iter().for_each(|system| option("--system", system));
    question.prompt.iter().for_each(|prompt| option("--prompt", prompt));
    question.file.iter().for_each(|file| option("--context", file));
    question.attach.iter().for_each(|file| option("--attach", file));
    question.param.iter().for_each(|variable| option("--var", variable));
    let template = question.template.as_deref().map(|name| Template::find(name, home)).transpose()?;
    let input = if question.attaches_input() { String::new() } else { read_text(question)? };
    let mut texts: Vec<&str> = question.text.iter().map(String::as_str).collect();
    if !input.trim().is_empty() {
        texts.push(&input);
    }
    if let Some(template) = &template {
        match template.instruction(!texts.is_empty(), !question.param.is_empty())? {
            Some(instruction) => texts.insert(0, instruction),
            None => option("--template", &template.file.display().to_string()),
        }
    }
    let is_empty = texts.is_empty() && template.is_none();
    let text = texts.join("\n\n");
    let agent = Agent::of(question.agent.as_deref(), home)?;
    let named = question.session.as_deref().map(reopened).transpose()?.or_else(|| variable("CP_SESSION"));
    let goes_on = question.goes_on || question.session.is_some();
    // A signal is reported by the steps, and does not interrupt the cleaning.
    let _effect = signals::effect();
    let session = match &named {
        Some(session) => session.clone(),
        None if goes_on => agent.continued()?,
        None => agent.single()?,
    };
    // A session that is named has its own agent.
    if named.is_none() || question.agent.is_some() {
        option("--agent", &agent.id);
    }
    option("--session", &session);
    option("--mode", if goes_on { "persistent" } else { "isolated" });
    let call = || {
        if let Some(name) = &question.name {
            query(&["rename", &session, name])?;
        }
        let prompt = compose(words, text, if is_empty || !input.is_empty() { None } else { Some(question) })?;
        answer(question, &session, &agent, &prompt, out)
    };
    let outcome = call();
    if named.is_none() && !goes_on {
        match outcome {
            Ok(0) => agent.keep(&session)?,
            // A person can go on in this session.
            Ok(status) if status == Code::HumanRequired.row().exit => {}
            // The failure of the call is reported, not that of the cleaning.
            _ => drop(agent.discard(&session)),
        }
    }
    outcome
}

/// Returns the argument of `-s` in the form of `cp-compose`. An argument that names a file is read from the file.
fn system_text(given: &str) -> Result<String> {
    let file = Path::new(given);
    let is_word = !given.contains(char::is_whitespace);
    if given.starts_with('@') || file.is_dir() {
        return Ok(given.to_owned());
    }
    if file.is_file() || is_word && file.exists() {
        return Ok(format!("@{given}"));
    }
    if is_word && (given.contains('/') || [".md", ".txt"].iter().any(|end| given.ends_with(end))) {
        let error = Error::not_found(format!("{given}: no such file"));
        return Err(error.hint(format!("write @@{given} to send it as text")));
    }
    Ok(given.to_owned())
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
    let is_needed = question.text.is_empty() && question.template.is_none() || question.reads_input;
    if !is_data && !is_needed {
        return Ok(Vec::new());
    }
    if is_data && !signals::wait_readable(stdin(), Some(SILENCE))? {
        to_stderr("cp-ask: waiting for the end of standard input; write </dev/null if there is none\n");
    }
    given::bytes(Path::new("-"), LONGEST)
}

/// Reads standard input as text. An explicit `-` with nothing behind it is refused.
pub(crate) fn read_text(question: &Question) -> Result<String> {
    let input = read_input(question)?;
    let text = text_of(&input).map_err(|error| {
        let error = error.in_file(Path::new("standard input"));
        error.hint("attach an image or a PDF with -a -, and convert a text, for example with iconv")
    })?;
    if question.reads_input && text.trim().is_empty() {
        return Err(Error::validation("the input is empty").hint("leave - out if there is none"));
    }
    Ok(text.to_owned())
}

/// Composes the prompt. The text of a person is an argument, so that it is not marked as untrusted; other text is standard input.
fn compose(mut words: Vec<String>, text: String, typed: Option<&Question>) -> Result<Vec<u8>> {
    let is_argument = typed.is_some() && text.len() < LONGEST_ARGUMENT;
    words.push("--".to_owned());
    words.push(if is_argument { text.clone() } else { "-".to_owned() });
    let attached = typed.filter(|question| question.attaches_input()).map(read_input).transpose()?;
    let input = attached.unwrap_or(if is_argument { Vec::new() } else { text.into_bytes() });
    let prompt: Box<RawValue> = ask_with("cp-compose", &words, &input, [])?.data()?;
    let composed: Value = serde_json::from_str(prompt.get()).unwrap_or_default();
    composed["report"]["redacted"].as_array().into_iter().flatten().for_each(say_redacted);
    closed_line(Kind::Prompt.name(), &prompt)
}

/// Says which secrets of a file are not sent.
fn say_redacted(part: &Value) {
    let kinds = part["kinds"].as_object().into_iter().flatten();
    let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
    let source = part["source"].as_str().unwrap_or_default();
    let line = format!("cp-ask: {source}: secrets that are not sent: {}", kinds.join(", "));
    to_stderr(&format!("{}\n", printable_line(&line)));
}

/// Returns the program that answers, with its arguments.
fn program(question: &Question, tools: Option<&Tools>) -> Result<Command> {
    let mut request = question.request();
    request.extend(question.schema.iter().map(|schema| format!("--schema={schema}")));
    let mut command = Command::new(find(if tools.is_some() { "cp-toolloop" } else { "cp-llm" })?);
    if let Some(tools) = tools {
        let backend = question.tool_backend.clone().or_else(|| variable("CP_TOOL_BACKEND"));
        command.args(tools.words()).args(backend.map(|backend| format!("--tool-backend={backend}")));
        if !request.is_empty() {
            let words: Vec<String> = request.iter().map(|word| quoted(word)).collect();
            command.arg(format!("--llm=cp-llm {}", words.join(" ")));
        }
    } else {
        command.args(request).args(question.extract.then_some("--extract"));
    }
    command.args(question.model.iter().map(|model| format!("--model={model}")));
    command.args(question.backend.iter().map(|backend| format!("--backend={backend}")));
    Ok(command)
}

/// Lets the model answer, stores the turn and prints the answer. Returns the exit status.
fn answer(question: &Question, session: &str, agent: &Agent, prompt: &[u8], out: &mut Output) -> Result<u8> {
    let mut printer = Printer::new(out);
    let tools = question.tools.as_deref().map(|tools| Tools::of(Path::new(tools))).transpose()?;
    let mut command = program(question, tools.as_ref())?;
    command.args(["--session", session, "--format", "json"]);
    // A block and JSON are printed when they are complete.
    let streams = printer.is_terminal && !question.extract && question.schema.is_none();
    command.args(streams.then_some("--stream"));
    let mut model = Child::start(&mut command, Grace::default())?;
    model.feed(prompt)?;
    let mut records = Vec::new();
    while let Some(line) = model.next_line()? {
        printer.print(line)?;
        records.extend_from_slice(line);
        records.push(b'\n');
    }
    let status = model.wait()?;
    signals::check()?;
    let stored = ask_with("cp-session", &["tee", "--session", session], &records, []);
    let outcome = if status.success() { stored.and_then(|_| printer.finish()) } else { Ok(()) };
    printer.close(&agent.id)?;
    outcome.map(|()| status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1)))
}
