//! Keys that are pressed while a turn is answered: Esc stops the turn like Ctrl-C, and other text is kept for the next prompt.

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
use super::{Console, is_continued};

const ESC: u8 = 0x1b;
/// The time in which the rest of an escape sequence must follow.
const PAUSE: Duration = Duration::from_millis(40);

/// The terminal while a turn is answered. Esc also ends a line; other settings are unchanged. If another program changes the settings, for
/// example to ask for a secret, its input is not read.
pub(crate) struct Keys<'a> {
    console: &'a Console,
    terminal: File,
    before: &'a Termios,
    /// The settings that we have made.
    now: Termios,
    escaped: bool,
}

impl<'a> Keys<'a> {
    /// Opens the terminal, if its settings are the original ones.
    fn open(console: &'a Console) -> Option<Self> {
        let before = console.before.as_ref()?;
        Page::of_terminal().filter(|_| before.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO))?;
        // Opened separately, because standard input is shared and must not become non-blocking.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let terminal = OpenOptions::new().read(true).custom_flags(flags).open("/dev/tty").ok()?;
        let mut keys = Self { console, terminal, before, now: before.clone(), escaped: false };
        // Text that was typed already is made available before its line ends.
        keys.is_held().then(|| keys.set(false)).map(|()| keys)
    }

    /// Reads the keys, after opening the terminal if possible. Esc is an error.
    pub(crate) fn look(keys: &mut Option<Self>, console: &'a Console) -> Result<()> {
        *keys = keys.take().or_else(|| Self::open(console));
        if keys.as_mut().is_some_and(Self::escape) { signals::check() } else { Ok(()) }
    }

    /// Reads the typed text. True if Esc was pressed alone, which has the effect of Ctrl-C.
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
            // Running programs are in this process group and receive the signal like Ctrl-C.
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

    /// Sets the terminal to return input by line or immediately.
    fn set(&mut self, by_line: bool) {
        self.now.clone_from(self.before);
        self.now.local_modes.set(LocalModes::ICANON, by_line);
        if by_line {
            self.now.special_codes[SpecialCodeIndex::VEOL] = ESC;
        }
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.now);
    }

    /// True if the terminal has our settings and we are in the foreground.
    fn is_held(&mut self) -> bool {
        let Ok(found) = tcgetattr(&self.terminal) else { return false };
        if !is_foreground(&self.terminal) {
            return false;
        }
        // After Ctrl-Z the parent shell has restored the settings.
        if !is_same(&found, &self.now) && is_same(&found, self.before) {
            self.set(true);
            return true;
        }
        is_same(&found, &self.now)
    }
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        // Changing the settings from the background would stop us; and unchanged settings belong to another program.
        if is_foreground(&self.terminal) && !is_same(&self.now, self.before) {
            let _ = tcsetattr(&self.terminal, OptionalActions::Now, self.before);
        }
        if signals::interrupted() && !self.escaped {
            // A terminal discards its input on Ctrl-C.
            self.console.ahead.take();
        }
    }
}

/// Runs one of our programs that calls a model, and returns the data of its answer. Esc stops it.
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

/// The text without escape sequences, and an incomplete sequence at its end.
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

/// Text that was typed ahead of the prompt.
#[derive(Default)]
pub(super) struct TypeAhead(Vec<u8>);

impl TypeAhead {
    /// The next text, and true if it is a complete line.
    pub(super) fn next(&mut self) -> (String, bool) {
        let mut text = String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned();
        let mut ends = text.match_indices('\n').map(|(end, _)| end);
        let Some(end) = ends.find(|end| !is_continued(&text[..*end])) else { return (text, false) };
        self.0 = text.split_off(end + 1).into_bytes();
        text.pop();
        (text, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_escape_sequence_stays_open() {
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
    fn type_ahead_joins_continued_lines() {
        let mut ahead = TypeAhead(b"one\ntwo \\\nmore\nthr".to_vec());
        assert_eq!(ahead.next(), ("one".to_owned(), true));
        assert_eq!(ahead.next(), ("two \\\nmore".to_owned(), true));
        assert_eq!(ahead.next(), ("thr".to_owned(), false));
        assert_eq!(ahead.next(), (String::new(), false));
    }
}
