//! The console: reads lines from a terminal with an editor, or from a script, and asks for confirmation. A thread reads, so that a signal
//! ends the wait. It reads only on request, so that a line of a script is never used as an answer.

pub(crate) mod markdown;
pub(crate) mod render;

use std::io::{BufRead as _, IsTerminal as _, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

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

/// The command for Ctrl-O.
const EDIT: &str = ":edit ";

/// The longest line of a script.
const LONGEST: usize = 16 << 20;

/// An input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A line, or several continued lines.
    Line(String),
    /// A line that was typed before the prompt was shown; the editor has not shown it.
    Early(String),
    /// Ctrl-C in the editor, which discarded its line.
    Interrupted,
    /// SIGINT; the editor keeps its line.
    Signalled,
    /// The end of the input.
    End,
    /// SIGTERM, or the terminal was closed.
    Terminated,
    /// An invalid line.
    Wrong(String),
}

/// A request for input.
enum Question {
    /// A line at the prompt, which is added to the history.
    Line(String),
    /// An answer, which is not added to the history.
    Answer(String),
}

/// Reads from a terminal or a script.
pub(crate) struct Console {
    questions: Sender<Question>,
    typed: Receiver<Typed>,
    /// Receives a byte for each input, so that a wait for it also ends on a signal.
    ready: PipeReader,
    /// The original settings of the terminal.
    before: Option<Termios>,
}

impl Console {
    /// Starts the thread. `known` are the lines of earlier sessions.
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
        Ok(Self { questions, typed, ready, before })
    }

    /// True if the input is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.before.is_some()
    }

    /// Shows the prompt. [`Console::wait`] returns the input.
    pub(crate) fn ask(&self, prompt: &str) {
        let _ = self.questions.send(Question::Line(prompt.to_owned()));
    }

    /// Waits for an input.
    pub(crate) fn wait(&self) -> Typed {
        match signals::wait_readable(self.ready.as_fd(), None) {
            Ok(_) => self.take(),
            Err(_) if signals::ending() => Typed::Terminated,
            // A line that arrived before the signal comes first, and the signal is for its command.
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

    /// Consumes the byte of an input.
    fn woken(&self) {
        let _ = (&self.ready).read_exact(&mut [0]);
    }

    /// Asks a person. `None` without a terminal or an answer.
    pub(crate) fn answer(&self, prompt: &str) -> Option<String> {
        if !self.is_terminal() {
            return None;
        }
        // Text that was typed before the question is discarded.
        let _ = rustix::termios::tcflush(std::io::stdin(), QueueSelector::IFlush);
        let _ = self.questions.send(Question::Answer(prompt.to_owned()));
        loop {
            match self.wait() {
                Typed::Line(text) => return Some(text.trim().to_owned()),
                Typed::Signalled => {}
                _ => return None,
            }
        }
    }

    /// Asks for confirmation. Only `y` and `yes` confirm.
    pub(crate) fn confirm(&self, prompt: &str) -> bool {
        self.answer(prompt).is_some_and(|answer| matches!(answer.to_lowercase().as_str(), "y" | "yes"))
    }
}

impl Drop for Console {
    /// Restores the terminal, even while a line is being read.
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            restore(before);
        }
    }
}

fn restore(before: &Termios) {
    let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
}

/// The thread's end of the channel.
struct Answers {
    sender: Sender<Typed>,
    wake: PipeWriter,
}

impl Answers {
    /// False if the console was dropped.
    fn give(&mut self, typed: Typed) -> bool {
        self.sender.send(typed).is_ok() && self.wake.write_all(&[0]).is_ok()
    }
}

/// Ctrl-O: opens the line in the person's own editor.
struct InEditor(Arc<AtomicBool>);

impl ConditionalEventHandler for InEditor {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext) -> Option<Cmd> {
        self.0.store(true, Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

/// The line editor, on standard output, or on the terminal if the output is redirected.
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

/// Reads lines from a terminal.
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
        let (prompt, is_line) = match question {
            Question::Line(prompt) => (prompt, true),
            Question::Answer(prompt) => (prompt, false),
        };
        let early = if is_line { early_line() } else { String::new() };
        let complete = early.strip_suffix('\n').filter(|line| !is_continued(line));
        // An answer is one line, without completion.
        editor.set_helper(is_line.then(|| Helper { completions: Arc::clone(completions) }));
        let read = match complete {
            Some(line) => Ok(line.to_owned()),
            None => editor.readline_with_initial(&prompt, (&early, "")),
        };
        // An earlier signal was not for a turn. A later signal is for the command on this line.
        signals::forget_interrupt();
        let typed = match read {
            Ok(line) if wants_editor.swap(false, Ordering::Relaxed) && is_line => Typed::Line(format!("{EDIT}{line}")),
            Ok(line) => {
                if is_line && !line.trim().is_empty() {
                    let _ = editor.add_history_entry(line.as_str());
                }
                if complete.is_some() { Typed::Early(line) } else { Typed::Line(line) }
            }
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            // Ctrl-D, or the terminal was closed or cannot be read.
            Err(_) => Typed::End,
        };
        if !answers.give(typed) {
            return;
        }
    }
}

/// Returns the next line that was typed at the terminal while the editor was not reading, with its line feed; empty if there is none. The
/// editor would read the line feed as Ctrl-J, which does not end a line.
fn early_line() -> String {
    let stdin = rustix::stdio::stdin();
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while matches!(signals::wait_readable(stdin, Some(Duration::ZERO)), Ok(true)) {
        // A terminal returns at most one line for each read.
        let read = rustix::io::read(stdin, &mut piece).unwrap_or(0);
        text.extend_from_slice(&piece[..read]);
        let is_line = String::from_utf8_lossy(&text).strip_suffix('\n').is_some_and(|line| !is_continued(line));
        if read == 0 || is_line {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads lines from a script.
fn read(asked: &Receiver<Question>, answers: &mut Answers) {
    let mut stdin = std::io::stdin().lock();
    while asked.recv().is_ok() {
        let mut whole: Vec<u8> = Vec::new();
        let typed = loop {
            match stdin.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut whole) {
                // A read error ends the input.
                Err(_) => break Typed::End,
                Ok(0) if whole.is_empty() => break Typed::End,
                Ok(_) if whole.len() > LONGEST => {
                    // The rest of it must not be run as lines.
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
                    if ended || !is_continued(text) {
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

/// The helper of the line editor: completion and continued lines.
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
        Ok(if is_continued(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}

impl rustyline::Helper for Helper {}

/// True if the text continues on the next line: it ends with a backslash, or a fence of three backquotes or quotes is open.
pub(crate) fn is_continued(text: &str) -> bool {
    let is_open = |fence: &str| text.matches(fence).count() % 2 == 1;
    let backslashes = text.len() - text.trim_end_matches('\\').len();
    backslashes % 2 == 1 || is_open("```") || is_open("\"\"\"")
}

/// Joins continued lines: removes backslashes at the ends of lines, and three quotes around the text.
pub(crate) fn join_lines(text: &str) -> String {
    let text = text.replace("\\\n", "\n");
    let inside = text.trim().strip_prefix("\"\"\"").and_then(|text| text.strip_suffix("\"\"\""));
    inside.map_or_else(|| text.clone(), |inside| inside.trim_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslash_and_open_fence_continue_line() {
        assert!(is_continued("one \\") && is_continued("```sh\nls") && is_continued("\"\"\"a"));
        assert!(
            !is_continued("one \\\\")
                && !is_continued("```sh\nls\n```")
                && !is_continued("\"\"\"a\"\"\"")
                && !is_continued("x")
        );
        assert_eq!(join_lines("one \\\ntwo"), "one \ntwo");
        assert_eq!(join_lines("\"\"\"\na\n\nb\n\"\"\""), "a\n\nb");
    }
}
