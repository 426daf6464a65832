//! One question: composes the prompt, sends it, stores the turn and prints the answer.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, Grace, ask_with, find};
use cp_common::home::Home;
use cp_common::output::{Output, to_stderr};
use cp_common::stream::lines::Next;
use cp_common::wire::quoted;
use cp_common::wire::record::{Kind, closed_line};
use cp_common::{Code, Error, Result, signals};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, Signal, kill_process};
use rustix::stdio::stdin;
use serde_json::value::RawValue;

use crate::answer::Printer;
use crate::arguments::Question;
use crate::conversation::{Agent, query, reopened};
use crate::environment::variable;
use crate::templates::Template;
use crate::tools::Tools;

/// Sends a question and prints the answer. Returns the exit status of the first program that failed.
pub(crate) fn ask(mut question: Box<Question>, home: &Home, out: &mut Output) -> Result<u8> {
    check_options(&question)?;
    let system = question.system.take().map(|system| system_text(&system)).transpose()?;
    let template = question.template.as_deref().map(|name| Template::find(name, home)).transpose()?;
    let input = if question.attaches_input() { Vec::new() } else { read_input(&question)? };
    let agent = Agent::of(question.agent.as_deref(), home)?;
    let session_named = question.session.as_deref().map(reopened).transpose()?.or_else(|| variable("CP_SESSION"));
    let goes_on = question.goes_on || question.session.is_some();
    let session = match &session_named {
        Some(session) => session.clone(),
        None if goes_on => agent.continued()?,
        None => agent.single()?,
    };
    let is_new = session_named.is_none() && !goes_on;
    let call = Call { question: &question, session: &session, agent: &agent };
    let agent_named = if session_named.is_some() { question.agent.as_deref() } else { Some(agent.id.as_str()) };
    let outcome = call
        .name()
        .and_then(|()| call.compose(agent_named, system.as_deref(), template.as_ref(), &input, goes_on))
        .and_then(|prompt| call.answer(&prompt, out));
    if is_new {
        if matches!(outcome, Ok(0)) {
            agent.keep(&session)?;
        } else if !matches!(outcome, Ok(9)) {
            // The failure is reported, not that of the cleaning.
            let _effect = signals::effect();
            let _ = agent.discard(&session);
        }
    }
    outcome
}

/// Fails if two options exclude each other.
fn check_options(question: &Question) -> Result<()> {
    if question.extract && question.tools.is_some() {
        return Err(Error::usage("-x does not apply to --tools").hint("leave one of them out"));
    }
    if question.tool_backend.is_some() && question.tools.is_none() {
        return Err(Error::usage("--tool-backend requires --tools"));
    }
    if !question.param.is_empty() && question.template.is_none() {
        return Err(Error::usage("-p requires a template").hint("add -t NAME"));
    }
    Ok(())
}

/// Returns the argument of `-s` in the form of `cp-compose`. An argument that names a file is read from the file.
fn system_text(given: &str) -> Result<String> {
    let file = Path::new(given);
    if given.starts_with('@') {
        return Ok(given.to_owned());
    }
    let has_space = given.contains(char::is_whitespace);
    if file.is_file() || !has_space && file.exists() && !file.is_dir() {
        return Ok(format!("@{given}"));
    }
    if !has_space && (given.contains('/') || [".md", ".txt"].iter().any(|end| given.ends_with(end))) && !file.is_dir() {
        return Err(
            Error::not_found(format!("{given}: no such file")).hint(format!("write @@{given} to send it as text"))
        );
    }
    Ok(given.to_owned())
}

/// Time without input after which a notice explains the wait.
const SILENCE: Duration = Duration::from_secs(2);
/// The longest text on standard input, in bytes.
const LONGEST: u64 = 64 << 20;

/// Reads standard input if it is requested, if there is no other text, or if it is a pipe, a socket or a file.
pub(crate) fn read_input(question: &Question) -> Result<Vec<u8>> {
    let kind = fstat(stdin()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let is_data = matches!(kind, Ok(FileType::Fifo | FileType::RegularFile | FileType::Socket));
    let is_needed = question.text.is_empty() && question.template.is_none();
    if !is_data && !is_needed && !question.reads_input {
        return Ok(Vec::new());
    }
    if is_data && !signals::wait_readable(stdin(), Some(SILENCE))? {
        to_stderr("cp-ask: waiting for the end of standard input; write </dev/null if there is none\n");
    }
    cp_common::context::given::bytes(Path::new("-"), LONGEST)
}

/// A question in its conversation.
struct Call<'a> {
    question: &'a Question,
    session: &'a str,
    agent: &'a Agent,
}

impl Call<'_> {
    fn name(&self) -> Result<()> {
        self.question.name.as_deref().map_or(Ok(()), |name| query(&["rename", self.session, name]).map(drop))
    }

    /// Composes the prompt, with the history if the conversation is continued.
    fn compose(
        &self,
        agent: Option<&str>,
        system: Option<&str>,
        template: Option<&Template>,
        input: &[u8],
        goes_on: bool,
    ) -> Result<Vec<u8>> {
        let mode = if goes_on { "persistent" } else { "isolated" };
        let mut words: Vec<String> =
            ["--session", self.session, "--mode", mode, "--input", "text"].map(str::to_owned).into();
        let mut option = |name: &str, value: Option<&str>| words.extend(value.map(|value| format!("{name}={value}")));
        option("--agent", agent);
        option("--system", system);
        option("--prompt", self.question.prompt.as_deref());
        for file in &self.question.file {
            option("--context", Some(file));
        }
        for file in &self.question.attach {
            option("--attach", Some(file));
        }
        for variable in &self.question.param {
            option("--var", Some(variable));
        }
        let mut texts: Vec<&str> = self.question.text.iter().map(String::as_str).collect();
        if let Some(template) = template {
            let has_text = !texts.is_empty() || !input.trim_ascii().is_empty();
            match template.instruction(has_text, !self.question.param.is_empty())? {
                Some(instruction) => texts.insert(0, instruction),
                None => option("--template", template.file.to_str()),
            }
        }
        let text = texts.join("\n\n");
        let is_piped = !input.trim_ascii().is_empty() || texts.is_empty() && template.is_none();
        words.push("--".to_owned());
        // An argument is shorter than a pipe can be.
        let has_operand = !text.is_empty() && text.len() < 100 << 10;
        let mut piped = if has_operand || text.is_empty() { Vec::new() } else { text.clone().into_bytes() };
        if has_operand || !is_piped {
            words.push(if has_operand { text } else { String::new() });
        }
        if is_piped {
            piped.extend_from_slice(if piped.is_empty() { b"" } else { b"\n\n" });
            piped.extend_from_slice(input);
        }
        if is_piped || !piped.is_empty() {
            words.push("-".to_owned());
        }
        let piped = if self.question.attaches_input() { read_input(self.question)? } else { piped };
        let prompt: Box<RawValue> = ask_with("cp-compose", &words, &piped, [])?.data()?;
        closed_line(Kind::Prompt.name(), &prompt)
    }

    /// Returns the program that answers, with its arguments.
    fn program(&self, streams: bool, tools: Option<&Tools>) -> Result<Command> {
        let question = self.question;
        let mut request: Vec<String> = question.option.iter().map(|option| format!("--option={option}")).collect();
        request.extend(question.schema.as_ref().map(|schema| format!("--schema={schema}")));
        let mut command = match tools {
            Some(tools) => {
                let mut command = Command::new(find("cp-toolloop")?);
                command.args(tools.words());
                let backend = question.tool_backend.clone().or_else(|| variable("CP_TOOL_BACKEND"));
                command.args(backend.map(|backend| format!("--tool-backend={backend}")));
                if !request.is_empty() {
                    let words: Vec<String> = request.iter().map(|word| quoted(word)).collect();
                    command.arg(format!("--llm=cp-llm {}", words.join(" ")));
                }
                command
            }
            None => {
                let mut command = Command::new(find("cp-llm")?);
                command.args(request).args(question.extract.then_some("--extract"));
                command
            }
        };
        command.args(question.model.iter().map(|model| format!("--model={model}")));
        command.args(question.backend.iter().map(|backend| format!("--backend={backend}")));
        command.args((streams && !question.extract).then_some("--stream"));
        command.args(["--session", self.session, "--format", "json"]);
        Ok(command)
    }

    /// Lets the model answer, stores the turn and prints the answer. Returns the exit status.
    fn answer(&self, prompt: &[u8], out: &mut Output) -> Result<u8> {
        let mut printer = Printer::new(out);
        let tools = self.question.tools.as_deref().map(|tools| Tools::of(Path::new(tools))).transpose()?;
        let mut command = self.program(printer.streams(), tools.as_ref())?;
        let mut store = Command::new(find("cp-session")?);
        store.args(["tee", "--session", self.session, "--format", "json"]);
        let mut store = Child::start(&mut store, Grace::default())?;
        let Some((input, mut records)) = store.take_pipes() else { return Err(store.gone()) };
        let input = input.into_inner().map_err(|e| Error::io("opening a pipe", e.into_error()))?;
        let mut model = Model::start(command.stdin(Stdio::piped()).stdout(Stdio::from(input)))?;
        // The parent's copy of the pipe would keep it open.
        drop(command);
        model.feed(prompt)?;
        while let Next::Line(line) = records.next(&mut || Ok(()))? {
            printer.print(records.bytes(&line))?;
        }
        let stored = store.wait()?;
        model.wait()?;
        signals::check()?;
        drop(tools);
        printer.finish(status_of(stored), &self.agent.id)
    }
}

fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(Code::Io.row().exit)
}

/// The process that answers. It is stopped if this call ends early.
struct Model(std::process::Child);

impl Model {
    fn start(command: &mut Command) -> Result<Self> {
        command.spawn().map(Self).map_err(|e| Error::io("starting the model's program", e))
    }

    /// Writes the prompt in a thread, because the program may answer before it has read everything.
    fn feed(&mut self, prompt: &[u8]) -> Result<()> {
        let Some(mut input) = self.0.stdin.take() else { return Ok(()) };
        let prompt = prompt.to_vec();
        // The answer reports why the program did not read the prompt.
        let write = move || drop(input.write_all(&prompt));
        std::thread::Builder::new().spawn(write).map_err(|e| Error::io("starting a thread", e)).map(drop)
    }

    fn wait(&mut self) -> Result<()> {
        self.0.wait().map(drop).map_err(|e| Error::io("waiting", e))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(2);
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.0.try_wait(), pid) {
            let _ = kill_process(pid, Signal::TERM);
        }
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
