//! Where a person sits: asks for lines and for yes or no, on a terminal with an editor, else from a script. A thread reads, so that
//! a signal ends the wait; it reads only when it is asked, so that a script's next line is never an answer.

use std::cell::Cell;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use cp_common::{Code, Error, Result};
use rustix::termios::{OptionalActions, QueueSelector, Termios};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Behavior, ColorMode, CompletionType, Config, Editor};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::interactive::completion::{Helper, Ids};
use crate::interactive::interrupt;
use crate::interactive::parse;

/// The longest line of a script.
const LONGEST: usize = 16 << 20;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// A line, or several that belong together.
    Line(String),
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
    /// A line at the prompt, which goes to the history.
    Line(String),
    /// An answer, which does not.
    Answer(String),
}

/// Asks and waits.
pub(crate) struct Desk {
    questions: Sender<Question>,
    typed: Receiver<Typed>,
    /// The session is to end: said while something else was asked.
    terminated: Cell<bool>,
    /// How the terminal was before us.
    before: Option<Termios>,
}

impl Desk {
    /// Sits down. `known` are the lines of earlier sessions.
    pub(crate) fn open(ids: Ids, known: Vec<String>) -> Result<Self> {
        let stdin = std::io::stdin();
        let before = stdin.is_terminal().then(|| rustix::termios::tcgetattr(&stdin).ok()).flatten();
        let (questions, asked) = channel();
        let (sender, typed) = channel();
        watch(sender.clone())?;
        let is_terminal = before.is_some();
        std::thread::Builder::new()
            .name("desk".to_owned())
            .spawn(move || if is_terminal { edit(&asked, &sender, &ids, &known) } else { read(&asked, &sender) })?;
        Ok(Self { questions, typed, terminated: Cell::new(false), before })
    }

    /// Whether a person sits at a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.before.is_some()
    }

    /// Shows the prompt. [`Desk::wait`] gives what came.
    pub(crate) fn ask(&self, prompt: &str) {
        let _ = self.questions.send(Question::Line(prompt.to_owned()));
    }

    /// Waits for what was asked.
    pub(crate) fn wait(&self) -> Typed {
        if self.terminated.get() {
            return Typed::Terminated;
        }
        let typed = self.typed.recv().unwrap_or(Typed::End);
        self.terminated.set(typed == Typed::Terminated);
        typed
    }

    /// Asks a person. `None` where there is none, or they gave no answer.
    pub(crate) fn answer(&self, prompt: &str) -> Option<String> {
        if !self.is_terminal() {
            return None;
        }
        // What was typed before the question was there is no answer to it.
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

    /// Asks a person for a yes. Anything else is a no.
    pub(crate) fn agrees(&self, prompt: &str) -> bool {
        self.answer(prompt).is_some_and(|answer| matches!(answer.to_lowercase().as_str(), "y" | "yes"))
    }

    /// Takes the interruption of a turn that is over away: it was meant for the turn, not for what comes next.
    pub(crate) fn forget_interruption(&self) {
        let mut wait = Duration::from_millis(500);
        while let Ok(typed) = self.typed.recv_timeout(wait) {
            self.terminated.set(self.terminated.get() || typed == Typed::Terminated);
            // It has come; there may be more of them.
            wait = Duration::from_millis(1);
        }
    }
}

impl Drop for Desk {
    /// Leaves the terminal as it was, also while a line is being read.
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Tells of signals as of anything that is typed.
fn watch(sender: Sender<Typed>) -> Result<()> {
    let (mine, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (end_reader, end_writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let failed = |e: std::io::Error| Error::new(Code::Io, format!("noticing signals: {e}"));
    signal_hook::low_level::pipe::register(SIGINT, theirs).map_err(failed)?;
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, end_writer.try_clone().map_err(failed)?).map_err(failed)?;
    }
    let tell = |pipe: OwnedFd, sender: Sender<Typed>, what: fn() -> Typed| {
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut pipe = std::fs::File::from(pipe);
            while pipe.read(&mut [0]).is_ok_and(|read| read > 0) {
                if sender.send(what()).is_err() {
                    return;
                }
            }
        })
    };
    tell(mine, sender.clone(), || Typed::Signalled).map_err(failed)?;
    tell(end_reader, sender, || Typed::Terminated).map_err(failed)?;
    Ok(())
}

/// The editor: on standard output, or on the terminal itself where the output goes elsewhere.
fn editor() -> rustyline::Result<Editor<Helper, MemHistory>> {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let shown = rustix::termios::isatty(rustix::stdio::stdout());
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .color_mode(if plain { ColorMode::Disabled } else { ColorMode::Enabled })
        .behavior(if shown { Behavior::Stdio } else { Behavior::PreferTerm })
        .history_ignore_space(true)
        .build();
    let history = MemHistory::with_config(&config);
    Editor::with_history(config, history)
}

/// Lines from a terminal.
fn edit(asked: &Receiver<Question>, sender: &Sender<Typed>, ids: &Ids, known: &[String]) {
    let mut editor = match editor() {
        Ok(editor) => editor,
        Err(e) => {
            let told = asked.recv().is_ok()
                && sender.send(Typed::Wrong(format!("the terminal cannot be edited on: {e}"))).is_ok();
            if told {
                read(asked, sender);
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
        // An answer is one line, and no id is offered for it.
        editor.set_helper(is_line.then(|| Helper { ids: ids.clone() }));
        let read = editor.readline(&prompt);
        // A signal that came before was for no turn. One that comes from here on is for what the line begins.
        interrupt::forget();
        let typed = match read {
            Ok(line) => {
                if is_line && !line.trim().is_empty() {
                    let _ = editor.add_history_entry(line.as_str());
                }
                Typed::Line(line)
            }
            Err(ReadlineError::Interrupted) => Typed::Interrupted,
            // Ctrl-D; or the terminal has gone, or cannot be read any more.
            Err(_) => Typed::End,
        };
        if sender.send(typed).is_err() {
            return;
        }
    }
}

/// Lines from a script.
fn read(asked: &Receiver<Question>, sender: &Sender<Typed>) {
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
                    let _ = sender
                        .send(Typed::Wrong(format!("a line is longer than {LONGEST} bytes: the script ends here")));
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
                    if ended || !parse::goes_on(text) {
                        break Typed::Line(text.to_owned());
                    }
                }
            }
        };
        if sender.send(typed).is_err() {
            return;
        }
    }
}
