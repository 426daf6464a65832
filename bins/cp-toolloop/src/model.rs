//! The model, as a part: a prompt goes in, deltas and a message come out, turn after turn over one process.

use cp_common::part::Part;
use cp_common::record::Kind;
use cp_common::wire::{Delta, Message, Prompt};
use cp_common::{Context, Result, part};

use crate::plan::ModelCommand;
use crate::seam;

/// How the command line says that the model is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// The program, with its arguments; cp-llm if none is named.
    pub(crate) command: Option<String>,
    /// `--backend`
    pub(crate) backend: Option<String>,
    /// `--model`
    pub(crate) model: Option<String>,
    /// `--stub-script`, absolute.
    pub(crate) stub_script: Option<String>,
    /// Whether words are wanted as they come.
    pub(crate) stream: bool,
}

impl Choice {
    /// The command that asks it.
    pub(crate) fn command(&self) -> Result<ModelCommand> {
        let mut argv = match &self.command {
            Some(text) => part::command_line(text)?,
            None => vec![part::find("cp-llm")?.display().to_string()],
        };
        let given = [("--backend", &self.backend), ("--model", &self.model), ("--stub-script", &self.stub_script)];
        for (flag, value) in given {
            if let Some(value) = value {
                argv.extend([flag.to_owned(), value.clone()]);
            }
        }
        if self.stream {
            argv.push("--stream".to_owned());
        }
        Ok(ModelCommand { argv })
    }
}

/// A model that can be asked.
pub(crate) struct Model {
    command: ModelCommand,
    part: Option<Part>,
}

impl Model {
    /// The model behind a command. It is started when first asked.
    pub(crate) fn new(command: ModelCommand) -> Self {
        Self { command, part: None }
    }

    /// Asks for the next turn of a conversation.
    pub(crate) fn ask(&mut self, prompt: &Prompt, context: &mut Context) -> Result<Message> {
        let part = match &mut self.part {
            Some(part) => part,
            none => none.insert(start(&self.command, context)?),
        };
        part.send(Kind::Prompt, prompt)?;
        loop {
            let answer = seam::next(part, |name, record| {
                if !record.ok {
                    return Err(seam::failure(name, record));
                }
                match record.kind {
                    Some(Kind::Message) => record.read::<Message>().map(Some),
                    Some(Kind::Delta) => show(&record.read()?, context).map(|()| None),
                    _ => Err(seam::unexpected(name, record)),
                }
            })?;
            if let Some(message) = answer {
                return Ok(message);
            }
        }
    }

    /// Lets it leave in its own time.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.part.take().map_or(Ok(()), Part::finish)
    }
}

/// Starts the part. Our own programs are told where they belong; another program gets its own arguments and no more.
fn start(command: &ModelCommand, context: &Context) -> Result<Part> {
    let mut argv = command.argv.clone();
    if is_ours(&argv[0]) {
        argv.push("--closed".to_owned());
        argv.extend(context.handed_on());
    }
    Part::start(&argv)
}

fn is_ours(program: &str) -> bool {
    program.rsplit('/').next().is_some_and(|name| name.starts_with("cp-"))
}

fn show(delta: &Delta, context: &mut Context) -> Result<()> {
    if context.is_text() {
        return Ok(());
    }
    context.out.record(Kind::Delta, delta)?;
    context.out.flush()
}
