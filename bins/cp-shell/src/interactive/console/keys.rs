//! The keys that are pressed while a turn is answered: Esc alone stops it as Ctrl-C does, and what is typed waits for the next prompt.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use cp_common::{Context, Result, coprocess, signals};
use rustix::fs::OFlags;
use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use serde_json::Value;

use super::render::Page;
use super::{Console, goes_on};

const ESC: u8 = 0x1b;
/// How long what belongs to an Esc may take to follow it.
const PAUSE: Duration = Duration::from_millis(40);

/// The terminal while nobody asks at it: it also ends a line at an Esc, and is as it was otherwise. Whoever asks for a secret changes
/// it, and what is typed then is left to them.
pub(crate) struct Keys<'a> {
    console: &'a Console,
    terminal: File,
    before: &'a Termios,
    /// How we have set it.
    now: Termios,
    escaped: bool,
}

impl<'a> Keys<'a> {
    /// Takes the terminal, where there is one that nobody else has changed.
    fn open(console: &'a Console) -> Option<Self> {
        let before = console.before.as_ref()?;
        Page::of_terminal().filter(|_| before.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO))?;
        // Not as standard input, which others have too and must not find non-blocking.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let terminal = OpenOptions::new().read(true).custom_flags(flags).open("/dev/tty").ok()?;
        let mut keys = Self { console, terminal, before, now: before.clone(), escaped: false };
        // What has been typed by now is not held back until the line ends.
        keys.is_held().then(|| keys.set(false)).map(|()| keys)
    }

    /// Looks at the keys, which are taken where they can be; an Esc is an error.
    pub(crate) fn look(keys: &mut Option<Self>, console: &'a Console) -> Result<()> {
        *keys = keys.take().or_else(|| Self::open(console));
        if keys.as_mut().is_some_and(Self::escape) { signals::check() } else { Ok(()) }
    }

    /// Whether Esc was pressed alone, which has the effect of Ctrl-C. Takes what was typed.
    fn escape(&mut self) -> bool {
        if !self.is_held() {
            return false;
        }
        let mut typed = Vec::new();
        while self.read(&mut typed) {}
        while !plain(&typed).1.is_empty() {
            self.set(false);
            let follows = signals::wait_readable(self.terminal.as_fd(), Some(PAUSE));
            if !matches!(follows, Ok(true)) || !self.read(&mut typed) {
                break;
            }
        }
        if !self.now.local_modes.contains(LocalModes::ICANON) && self.is_held() {
            self.set(true);
        }
        let (text, open) = plain(&typed);
        self.console.ahead.borrow_mut().0.extend(text);
        if open == [ESC] {
            // The programs at work are of this group, and Ctrl-C reaches them too.
            self.escaped = kill_current_process_group(Signal::INT).is_ok();
        }
        self.escaped
    }

    fn read(&self, typed: &mut Vec<u8>) -> bool {
        let mut piece = [0; 1024];
        let read = (&self.terminal).read(&mut piece).unwrap_or(0);
        typed.extend_from_slice(&piece[..read]);
        read > 0
    }

    /// Has it give what is typed line by line, or at once.
    fn set(&mut self, by_line: bool) {
        self.now.clone_from(self.before);
        self.now.local_modes.set(LocalModes::ICANON, by_line);
        if by_line {
            self.now.special_codes[SpecialCodeIndex::VEOL] = ESC;
        }
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.now);
    }

    /// Whether it is as we have set it, and we are in the foreground.
    fn is_held(&mut self) -> bool {
        let Ok(found) = tcgetattr(&self.terminal) else { return false };
        if !is_foreground(&self.terminal) {
            return false;
        }
        // After Ctrl-Z the shell that started us has set it back.
        if !is_same(&found, &self.now) && is_same(&found, self.before) {
            self.set(true);
            return true;
        }
        is_same(&found, &self.now)
    }
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        // From the background that would stop us; and where we have set nothing it is for somebody else to do.
        if is_foreground(&self.terminal) && !is_same(&self.now, self.before) {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, self.before);
        }
        if signals::interrupted() && !self.escaped {
            // A terminal forgets at Ctrl-C what was typed before it.
            self.console.ahead.take();
        }
    }
}

/// The data of the answer of one of our programs that asks a model: Esc stops it as it does a turn.
pub(crate) fn ask_model(console: &Console, context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    let mut keys = None;
    coprocess::ask_each(program, words, b"", context.handed_on(), &mut |_| Keys::look(&mut keys, console))?.data()
}

fn is_foreground(terminal: &File) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}

fn is_same(one: &Termios, other: &Termios) -> bool {
    let of =
        |termios: &Termios| (termios.local_modes, termios.input_modes, termios.special_codes[SpecialCodeIndex::VEOL]);
    of(one) == of(other)
}

/// What was typed without escape sequences, and the one at its end that may go on.
fn plain(typed: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut text, mut rest) = (Vec::new(), typed);
    while let Some((&byte, after)) = rest.split_first() {
        let length = match (byte, after) {
            (ESC, []) => None,
            (ESC, [ESC, ..]) => Some(1),
            (ESC, [b'[', after @ ..]) => after.iter().position(|byte| (b'@'..=b'~').contains(byte)).map(|end| end + 3),
            (ESC, [b'O', after @ ..]) => (!after.is_empty()).then_some(3),
            (ESC, _) => Some(2),
            _ => {
                text.extend((!byte.is_ascii_control() || byte == b'\n').then_some(byte));
                Some(1)
            }
        };
        let Some(length) = length else { break };
        rest = &rest[length..];
    }
    (text, rest)
}

/// What was typed before it was asked for.
#[derive(Default)]
pub(super) struct Ahead(Vec<u8>);

impl Ahead {
    /// What comes next of it, and whether it is a whole line.
    pub(super) fn next(&mut self) -> (String, bool) {
        let mut text = String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned();
        let mut ends = text.match_indices('\n').map(|(end, _)| end);
        let Some(end) = ends.find(|end| !goes_on(&text[..*end])) else { return (text, false) };
        self.0 = text.split_off(end + 1).into_bytes();
        text.pop();
        (text, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_escape_that_nothing_follows_stays_open() {
        let cases: [(&str, &str, &str); 10] = [
            ("ab\x1b", "ab", "\x1b"),
            ("\x1b\x1b", "", "\x1b"),
            ("a\x1b[Ab\x1bOPc", "abc", ""),
            ("\x1b[1;5Ca", "a", ""),
            ("\x1b[1;5", "", "\x1b[1;5"),
            ("\x1bO", "", "\x1bO"),
            ("\x1bxy", "y", ""),
            ("\x1b[200~one\ntwo\x1b[201~", "one\ntwo", ""),
            ("é\u{7f}\t\x01日", "é日", ""),
            ("", "", ""),
        ];
        for (typed, text, open) in cases {
            assert_eq!(plain(typed.as_bytes()), (text.as_bytes().to_vec(), open.as_bytes()), "{typed:?}");
        }
    }

    #[test]
    fn each_line_is_for_itself_and_one_that_goes_on_takes_the_next() {
        let mut ahead = Ahead(b"one\ntwo \\\nmore\nthr".to_vec());
        assert_eq!(ahead.next(), ("one".to_owned(), true));
        assert_eq!(ahead.next(), ("two \\\nmore".to_owned(), true));
        assert_eq!(ahead.next(), ("thr".to_owned(), false));
        assert_eq!(ahead.next(), (String::new(), false));
    }
}
