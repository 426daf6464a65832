//! The console: reads lines from a terminal with an editor, or from a script, and asks for confirmation. A thread
//! reads, so that a signal ends the wait. It reads only on request, so that a line of a script is never used as an
//! answer.

pub(crate) mod render;

use std::io::{BufRead as _, IsTerminal as _, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use cp_common::{Code, Result, signals};
use rustix::termios::{OptionalActions, QueueSelector, Termios};
use rustyline::completion::Completer;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Cmd, ColorMode, CompletionType, Config, Editor, KeyCode, KeyEvent, Modifiers};

/// The time in which the bytes of one key arrive after Esc.
const SEQUENCE_MS: u16 = 100;

/// The longest line of a script.
const LONGEST: usize = 16 << 20;

/// An input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A line, or several continued lines.
    Line(String),
    /// Ctrl-C in the editor, which discarded its line.
    Interrupted,
    /// SIGINT; the editor keeps its line.
    Signalled,
    /// The end of the input.
    End,
    /// SIGTERM, or the terminal was closed.
    Terminated,
    /// An invalid line, and a hint.
    Wrong(String, &'static str),
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
    /// Starts the thread.
    pub(crate) fn open(completions: Completions) -> Result<Self> {
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
            if is_terminal { edit(&asked, &mut answers, completions) } else { read(&asked, &mut answers) }
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
        // Text that was typed during the turn must not answer the question.
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

    /// Asks until an answer can be parsed. `letters` names the possible answers. `None` without a terminal or an
    /// answer.
    pub(crate) fn choose<T>(&self, prompt: &str, letters: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut typed = self.answer(prompt)?;
        loop {
            if let Some(choice) = parse(&typed.to_lowercase()) {
                return Some(choice);
            }
            typed = self.answer(&format!("Type {letters}, then Enter: "))?;
        }
    }

    /// Asks for confirmation. Only `y` and `yes` confirm; Enter declines.
    pub(crate) fn confirm(&self, prompt: &str) -> bool {
        let parse = |typed: &str| match typed {
            "y" | "yes" => Some(true),
            "" | "n" | "no" => Some(false),
            _ => None,
        };
        self.choose(prompt, "y or n", parse) == Some(true)
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

/// The line editor. It keeps the keys that it has read after the end of a line, for the next line.
type LineEditor = Editor<Helper, MemHistory>;

/// An editor on standard output, or on the terminal if the output is redirected.
fn line_editor(history: MemHistory) -> rustyline::Result<LineEditor> {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let shown = rustix::termios::isatty(rustix::stdio::stdout());
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .color_mode(if plain { ColorMode::Disabled } else { ColorMode::Enabled })
        .behavior(if shown { Behavior::Stdio } else { Behavior::PreferTerm })
        .auto_add_history(true)
        .history_ignore_space(true)
        .build();
    let mut editor = Editor::with_history(config, history)?;
    editor.bind_sequence(KeyEvent::alt('\r'), Cmd::Newline);
    Ok(editor)
}

/// Reads an answer. Esc declines like Ctrl-C.
fn answer(prompt: &str) -> rustyline::Result<String> {
    // An editor of its own, because keys that follow an answer must not answer the next question, and keys that follow
    // the line of the turn must not answer this one. An answer is one line, without completion.
    let mut editor = line_editor(MemHistory::new())?;
    editor.set_keyseq_timeout(Some(SEQUENCE_MS));
    editor.bind_sequence(KeyEvent(KeyCode::Esc, Modifiers::NONE), Cmd::Interrupt);
    editor.readline(prompt)
}

/// Reads a line at the prompt. Keys that were read before an interruption are discarded; the history stays.
fn line(
    prompt: &str,
    editor: &mut LineEditor,
    interrupted: bool,
    completions: Completions,
) -> rustyline::Result<String> {
    if interrupted {
        *editor = line_editor(std::mem::take(editor.history_mut()))?;
    }
    editor.set_helper(Some(Helper { completions }));
    editor.readline(prompt)
}

/// Reads lines from a terminal.
fn edit(asked: &Receiver<Question>, answers: &mut Answers, completions: Completions) {
    let mut editor = match line_editor(MemHistory::new()) {
        Ok(editor) => editor,
        Err(e) => {
            let message = format!("the line editor does not work on this terminal: {e}");
            let hint = "lines are read without the editor; TERM names the type of the terminal";
            if asked.recv().is_ok() && answers.give(Typed::Wrong(message, hint)) {
                read(asked, answers);
            }
            return;
        }
    };
    // If this fails, Ctrl-C does not discard keys.
    let interrupted = Arc::new(AtomicBool::new(false));
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted));
    while let Ok(question) = asked.recv() {
        let read = match question {
            Question::Line(prompt) => line(&prompt, &mut editor, interrupted.load(Ordering::Relaxed), completions),
            Question::Answer(prompt) => answer(&prompt),
        };
        // An earlier signal was not for a turn. A later signal is for the command on this line.
        interrupted.store(false, Ordering::Relaxed);
        signals::forget_interrupt();
        let typed = match read {
            Ok(line) => Typed::Line(line),
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            // Ctrl-D, or the terminal was closed or cannot be read.
            Err(_) => Typed::End,
        };
        if !answers.give(typed) {
            return;
        }
    }
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
                    let message = format!("a line is longer than {LONGEST} bytes: the script ends here");
                    answers.give(Typed::Wrong(message, "attach a long text as a file: @PATH"));
                    let _ = asked.recv();
                    break Typed::End;
                }
                Ok(read) => {
                    let ended = read == 0 || !whole.ends_with(b"\n");
                    let Ok(text) = std::str::from_utf8(&whole) else {
                        break Typed::Wrong("the line is not UTF-8".to_owned(), "convert the script: iconv -t UTF-8");
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
pub(crate) type Completions = fn(&str, usize) -> (usize, Vec<String>);

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

/// True if the text continues on the next line: it ends with a backslash, or a fence of three backquotes or quotes is
/// open.
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
