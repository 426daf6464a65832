//! The console: asks for lines and for yes or no, on a terminal with an editor, else from a script. A thread reads, so that a signal
//! ends the wait; it reads only when it is asked, so that a script's next line is never an answer.

pub(crate) mod keys;
pub(crate) mod markdown;
pub(crate) mod render;

use std::cell::RefCell;
use std::io::{BufRead as _, IsTerminal as _, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use cp_common::{Code, Result, signals};
use rustix::termios::{OptionalActions, QueueSelector, Termios};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Behavior, Cmd, ColorMode, CompletionType, ConditionalEventHandler, Config, Editor, Event, EventContext,
    EventHandler, KeyEvent, RepeatCount,
};

use self::keys::Ahead;

/// The command that a line becomes with Ctrl-O.
const EDIT: &str = ":edit ";

/// The longest line of a script.
const LONGEST: usize = 16 << 20;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A line, or several that belong together.
    Line(String),
    /// The same, typed before it was asked for.
    Ahead(String),
    /// Ctrl-C at the editor, which has given up its line.
    Interrupted,
    /// SIGINT: the wait goes on.
    Signalled,
    /// The end of the input.
    End,
    /// The session is to end: SIGTERM, or the terminal has gone.
    Terminated,
    /// A line that cannot be taken.
    Wrong(String),
}

/// What is asked.
enum Question {
    /// A line at the prompt, which goes to the history; with what was typed ahead, and whether that is all of it.
    Line(String, (String, bool)),
    /// An answer, which does not.
    Answer(String),
}

/// Asks and waits.
pub(crate) struct Console {
    questions: Sender<Question>,
    typed: Receiver<Typed>,
    /// Has a byte for each thing that was typed: a wait for it is one for a signal as well.
    ready: PipeReader,
    /// How the terminal was before us.
    before: Option<Termios>,
    ahead: RefCell<Ahead>,
}

impl Console {
    /// Begins to listen. `known` are the lines of earlier sessions.
    pub(crate) fn open(completions: Completions, known: Vec<String>) -> Result<Self> {
        let stdin = std::io::stdin();
        let before = stdin.is_terminal().then(|| rustix::termios::tcgetattr(&stdin).ok()).flatten();
        if let Some(before) = before.clone() {
            let report = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore(&before);
                report(panic);
            }));
        }
        let (questions, asked) = channel();
        let (sender, typed) = channel();
        let (ready, wake) = std::io::pipe()?;
        let mut answers = Answers { sender, wake };
        let is_terminal = before.is_some();
        std::thread::Builder::new().name("console".to_owned()).spawn(move || {
            if is_terminal { edit(&asked, &mut answers, &completions, &known) } else { read(&asked, &mut answers) }
        })?;
        Ok(Self { questions, typed, ready, before, ahead: RefCell::default() })
    }

    /// Whether a person sits at a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.before.is_some()
    }

    /// Shows the prompt. [`Console::wait`] gives what came.
    pub(crate) fn ask(&self, prompt: &str) {
        let _ = self.questions.send(Question::Line(prompt.to_owned(), self.ahead.borrow_mut().next()));
    }

    /// Waits for what was asked.
    pub(crate) fn wait(&self) -> Typed {
        match signals::wait_readable(self.ready.as_fd(), None) {
            Ok(_) => self.take(),
            Err(_) if signals::ending() => Typed::Terminated,
            // A line that was there before the signal comes first: the signal is for what it begins.
            Err(error) if error.code() == Code::Interrupted => match self.typed.try_recv() {
                Ok(typed) if self.is_terminal() => {
                    self.woken();
                    typed
                }
                _ => {
                    signals::forget_interrupt();
                    Typed::Signalled
                }
            },
            Err(_) => Typed::End,
        }
    }

    fn take(&self) -> Typed {
        self.woken();
        self.typed.recv().unwrap_or(Typed::End)
    }

    /// Takes the byte of what was typed.
    fn woken(&self) {
        let _ = (&self.ready).read_exact(&mut [0]);
    }

    /// Asks a person. `None` where there is none, or they gave no answer.
    pub(crate) fn answer(&self, prompt: &str) -> Option<String> {
        if !self.is_terminal() {
            return None;
        }
        // What was typed before the question was shown does not answer it.
        let _ = rustix::termios::tcflush(std::io::stdin(), QueueSelector::IFlush);
        self.ahead.take();
        let _ = self.questions.send(Question::Answer(prompt.to_owned()));
        loop {
            match self.wait() {
                Typed::Line(text) => return Some(text.trim().to_owned()),
                Typed::Signalled => {}
                _ => return None,
            }
        }
    }

    /// Asks a person for a yes. Anything else is a no.
    pub(crate) fn agrees(&self, prompt: &str) -> bool {
        self.answer(prompt).is_some_and(|answer| matches!(answer.to_lowercase().as_str(), "y" | "yes"))
    }
}

impl Drop for Console {
    /// Leaves the terminal as it was, also while a line is being read.
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            restore(before);
        }
    }
}

fn restore(before: &Termios) {
    let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
}

/// The thread's end of what is typed.
struct Answers {
    sender: Sender<Typed>,
    wake: PipeWriter,
}

impl Answers {
    /// False when nobody waits any more.
    fn give(&mut self, typed: Typed) -> bool {
        self.sender.send(typed).is_ok() && self.wake.write_all(&[0]).is_ok()
    }
}

/// Ctrl-O: what was typed so far goes on in the person's own editor.
struct InEditor(Arc<AtomicBool>);

impl ConditionalEventHandler for InEditor {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext) -> Option<Cmd> {
        self.0.store(true, Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

/// The editor: on standard output, or on the terminal itself where the output goes elsewhere.
fn editor(wants_editor: &Arc<AtomicBool>) -> rustyline::Result<Editor<Helper, MemHistory>> {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let shown = rustix::termios::isatty(rustix::stdio::stdout());
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .color_mode(if plain { ColorMode::Disabled } else { ColorMode::Enabled })
        .behavior(if shown { Behavior::Stdio } else { Behavior::PreferTerm })
        .history_ignore_space(true)
        .build();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history)?;
    for key in [KeyEvent::ctrl('j'), KeyEvent::alt('\r')] {
        editor.bind_sequence(key, Cmd::Newline);
    }
    let handler = EventHandler::Conditional(Box::new(InEditor(Arc::clone(wants_editor))));
    editor.bind_sequence(KeyEvent::ctrl('o'), handler);
    Ok(editor)
}

/// Lines from a terminal.
fn edit(asked: &Receiver<Question>, answers: &mut Answers, completions: &Completions, known: &[String]) {
    let wants_editor = Arc::new(AtomicBool::new(false));
    let mut editor = match editor(&wants_editor) {
        Ok(editor) => editor,
        Err(e) => {
            let message = format!("the line editor does not work on this terminal: {e}");
            if asked.recv().is_ok() && answers.give(Typed::Wrong(message)) {
                read(asked, answers);
            }
            return;
        }
    };
    for line in known {
        let _ = editor.add_history_entry(line.as_str());
    }
    while let Ok(question) = asked.recv() {
        let (prompt, (ahead, is_whole), is_line) = match question {
            Question::Line(prompt, ahead) => (prompt, ahead, true),
            Question::Answer(prompt) => (prompt, (String::new(), false), false),
        };
        // An answer is one line, and no id is offered for it.
        editor.set_helper(is_line.then(|| Helper { completions: Arc::clone(completions) }));
        let read = if is_whole { Ok(ahead) } else { editor.readline_with_initial(&prompt, (&ahead, "")) };
        // A signal that came before was for no turn. One that comes from here on is for what the line begins.
        signals::forget_interrupt();
        let typed = match read {
            Ok(line) if wants_editor.swap(false, Ordering::Relaxed) && is_line => Typed::Line(format!("{EDIT}{line}")),
            Ok(line) => {
                if is_line && !line.trim().is_empty() {
                    let _ = editor.add_history_entry(line.as_str());
                }
                if is_whole { Typed::Ahead(line) } else { Typed::Line(line) }
            }
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            // Ctrl-D; or the terminal has gone, or cannot be read any more.
            Err(_) => Typed::End,
        };
        if !answers.give(typed) {
            return;
        }
    }
}

/// Lines from a script.
fn read(asked: &Receiver<Question>, answers: &mut Answers) {
    let mut stdin = std::io::stdin().lock();
    while asked.recv().is_ok() {
        let mut whole: Vec<u8> = Vec::new();
        let typed = loop {
            match stdin.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut whole) {
                // What cannot be read has ended.
                Err(_) => break Typed::End,
                Ok(0) if whole.is_empty() => break Typed::End,
                Ok(_) if whole.len() > LONGEST => {
                    // The rest of it must not be taken for lines.
                    answers.give(Typed::Wrong(format!("a line is longer than {LONGEST} bytes: the script ends here")));
                    let _ = asked.recv();
                    break Typed::End;
                }
                Ok(read) => {
                    let ended = read == 0 || !whole.ends_with(b"\n");
                    let Ok(text) = std::str::from_utf8(&whole) else {
                        break Typed::Wrong("the line is not UTF-8".to_owned());
                    };
                    let text = text.strip_suffix('\n').unwrap_or(text);
                    let text = text.strip_suffix('\r').unwrap_or(text);
                    if ended || !goes_on(text) {
                        break Typed::Line(text.to_owned());
                    }
                }
            }
        };
        if !answers.give(typed) {
            return;
        }
    }
}

/// Returns where the word at a position of a line begins, and its completions.
pub(crate) type Completions = Arc<dyn Fn(&str, usize) -> (usize, Vec<String>) + Send + Sync>;

/// The helper of the line editor: completion, and whether a line is continued.
pub(super) struct Helper {
    pub(super) completions: Completions,
}

impl Completer for Helper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &rustyline::Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((self.completions)(line, at))
    }
}

impl Validator for Helper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if goes_on(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}

impl rustyline::Helper for Helper {}

/// Whether more lines belong to it: it ends with a backslash, or a fence of three backquotes or quotes is open.
pub(crate) fn goes_on(text: &str) -> bool {
    let is_open = |fence: &str| text.matches(fence).count() % 2 == 1;
    let backslashes = text.len() - text.trim_end_matches('\\').len();
    backslashes % 2 == 1 || is_open("```") || is_open("\"\"\"")
}

/// The text of one or more lines: a backslash at the end of a line, and quotes that only hold the lines together, are gone.
pub(crate) fn joined(text: &str) -> String {
    let text = text.replace("\\\n", "\n");
    let inside = text.trim().strip_prefix("\"\"\"").and_then(|text| text.strip_suffix("\"\"\""));
    inside.map_or_else(|| text.clone(), |inside| inside.trim_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_and_an_open_fence_ask_for_more() {
        assert!(goes_on("one \\") && goes_on("```sh\nls") && goes_on("\"\"\"a"));
        assert!(!goes_on("one \\\\") && !goes_on("```sh\nls\n```") && !goes_on("\"\"\"a\"\"\"") && !goes_on("x"));
        assert_eq!(joined("one \\\ntwo"), "one \ntwo");
        assert_eq!(joined("\"\"\"\na\n\nb\n\"\"\""), "a\n\nb");
    }
}
