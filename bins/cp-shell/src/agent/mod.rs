//! Agents: who answers a turn. The built-in one composes the filters; any executable that speaks the records can be one.

mod capability;
mod external;

use cp_common::Result;
use cp_common::wire::{Message, ToolCall, ToolResult};
use serde_json::{Map, Value};

pub(crate) use capability::Capability;
pub(crate) use external::External;

/// Something that goes with a turn: recalled memory, a brief, a piece of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it comes from, in a word.
    pub(crate) name: String,
    /// What it says.
    pub(crate) text: String,
}

/// A turn to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    /// What the person said.
    pub(crate) text: &'a str,
    /// The session it belongs to.
    pub(crate) session: &'a str,
    /// Whether the conversation so far stays out.
    pub(crate) isolated: bool,
    /// What goes with it.
    pub(crate) context: &'a [Piece],
}

/// What can be told before a turn is over.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// Some words of the answer.
    Delta(&'a str),
    /// A tool is called.
    ToolCall(&'a ToolCall),
    /// A tool has answered.
    ToolResult(&'a ToolResult),
}

/// Takes what is told; an error ends the turn.
pub(crate) type Sink<'a> = dyn FnMut(Event<'_>) -> Result<()> + 'a;

/// What a turn came to: the messages of the model, the last of them the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    /// In order. Each goes to the session.
    pub(crate) messages: Vec<Message>,
}

/// Who answers.
pub(crate) trait Agent {
    /// Its name.
    fn name(&self) -> &str;

    /// Its version.
    fn version(&self) -> &str;

    /// What it can do: decides which commands the shell has.
    fn capabilities(&self) -> &[Capability];

    /// Answers a turn.
    fn process(&mut self, turn: &Turn<'_>, sink: &mut Sink<'_>) -> Result<Reply>;

    /// How it stands, as it sees it. Members that the shell computes itself are the shell's.
    fn signals(&mut self) -> Result<Map<String, Value>>;

    /// What it knows of itself, for `:state`.
    fn state(&mut self) -> Result<Value>;
}
