//! A home, a working directory, a script or a terminal, and a hub on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The longest wait for anything; only a broken program needs it.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) code: Option<i32>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for below in ["home", "work", "user"] {
            std::fs::create_dir(directory.path().join(below)).unwrap();
        }
        Self { directory }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    pub(crate) fn write(&self, below: &str, text: &str) -> PathBuf {
        let path = self.path(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn surroundings(&self, command: &mut Command) {
        let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CP_"));
        for (name, _) in ours {
            command.env_remove(name);
        }
        for name in ["HISTFILE", "NO_COLOR", "COLUMNS", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"] {
            command.env_remove(name);
        }
        command
            .env("CP_HOME", self.path("home"))
            .env("HOME", self.path("user"))
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh");
        command.current_dir(self.path("work"));
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cp-shell"));
        self.surroundings(&mut command);
        command.arg("--interactive").args(arguments);
        command
    }

    /// A session that a script holds.
    pub(crate) fn script(&self, arguments: &[&str], lines: &str) -> Output {
        finished(self.command(arguments), lines)
    }

    /// As [`Place::script`], with the stub to answer.
    pub(crate) fn stub(&self, lines: &str) -> Output {
        self.script(&["--backend", "stub"], lines)
    }

    /// A session at a terminal of so many columns.
    pub(crate) fn terminal(&self, arguments: &[&str], columns: u16) -> Terminal {
        self.terminal_with("", arguments, columns)
    }

    /// As [`Place::terminal`], with variables set: `NAME=value`.
    pub(crate) fn terminal_with(&self, variables: &str, arguments: &[&str], columns: u16) -> Terminal {
        let program = env!("CARGO_BIN_EXE_cp-shell");
        let line = format!("tty; stty rows 24 cols {columns}; {variables} {program} {}", arguments.join(" "));
        let mut command = Command::new("script");
        self.surroundings(&mut command);
        command.args(["-qefc", &line, "/dev/null"]);
        Terminal::start(command)
    }

    /// The one session of the home.
    pub(crate) fn session(&self) -> PathBuf {
        let mut sessions: Vec<PathBuf> = std::fs::read_dir(self.path("home/planes/ho1/sessions"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        sessions.sort();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        sessions.remove(0)
    }

    /// Whether a model was asked in a session of the home.
    pub(crate) fn asked(&self) -> bool {
        let sessions = std::fs::read_dir(self.path("home/planes/ho1/sessions"));
        sessions.into_iter().flatten().flatten().any(|entry| {
            let ledger = std::fs::read_to_string(entry.path().join("ledger/llm.jsonl"));
            ledger.is_ok_and(|text| text.contains("llm.request"))
        })
    }

    /// The entries of its ledger.
    pub(crate) fn entries(&self) -> Vec<Value> {
        entries(&self.session().join("session.jsonl"))
    }

    /// The data of its entries of one event.
    pub(crate) fn data(&self, event: &str) -> Vec<Value> {
        self.entries().into_iter().filter(|entry| entry["event"] == event).map(|entry| entry["data"].clone()).collect()
    }

    /// Where the hub is said to be.
    pub(crate) fn hub_at(&self, url: &str, timeout_ms: u64) {
        let text = format!("[hub]\nurl = \"{url}\"\ntopic = \"T 1\"\nagent = \"me\"\ntimeout_ms = {timeout_ms}\n");
        self.write("home/config/shell.toml", &text);
    }
}

pub(crate) fn entries(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command with this input to its end.
pub(crate) fn finished(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // A shell that has left reads no more.
        let _ = stdin.write_all(input.as_bytes());
    });
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    let code = left(&mut child);
    writer.join().unwrap();
    Output { stdout: reader.join().unwrap(), code }
}

/// Waits for the end, and for no longer than is bearable.
pub(crate) fn left(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A terminal, seen from outside.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<(Mutex<String>, Condvar)>,
    /// The same with all that moves the cursor and sets colours.
    raw: Arc<Mutex<Vec<u8>>>,
    seen: usize,
    /// The device.
    pub(crate) tty: String,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) of util-linux makes the terminal");
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let screen = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let (shared, whole) = (Arc::clone(&screen), Arc::clone(&raw));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut piece) {
                let mut raw = whole.lock().unwrap();
                raw.extend_from_slice(&piece[..read]);
                *shared.0.lock().unwrap() = plain(&String::from_utf8_lossy(&raw));
                shared.1.notify_all();
            }
        });
        let mut terminal = Self { child, keys, screen, raw, seen: 0, tty: String::new() };
        let tty = terminal.sees("\n");
        tty.trim().clone_into(&mut terminal.tty);
        terminal
    }

    /// Presses keys.
    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for these words, and gives all that came up to their end.
    pub(crate) fn sees(&mut self, words: &str) -> String {
        let (screen, changed) = &*self.screen;
        let from = self.seen;
        let there = |text: &String| text[from.min(text.len())..].find(words).map(|at| from + at + words.len());
        let (text, waited) =
            changed.wait_timeout_while(screen.lock().unwrap(), PATIENCE, |text| there(text).is_none()).unwrap();
        assert!(!waited.timed_out(), "no `{words}` in:\n{}", &text[from.min(text.len())..]);
        self.seen = there(&text).unwrap();
        text[from..self.seen].to_owned()
    }

    /// Waits for the prompt.
    pub(crate) fn prompted(&mut self) -> String {
        self.sees("cp> ")
    }

    /// Says a line at the prompt and gives what came of it, up to the next prompt.
    pub(crate) fn says(&mut self, line: &str) -> String {
        self.types(&format!("{line}\r"));
        // The editor shows the line as it is typed; what comes after it is the answer.
        self.sees(&format!("{line}\n"));
        self.prompted()
    }

    /// Sends a signal to the process that holds the session, and to no other.
    pub(crate) fn signals(&self, signal: rustix::process::Signal) {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = |pid: &i32| {
            let is_shell = std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "cp-shell\n");
            is_shell
                && std::fs::read_link(format!("/proc/{pid}/fd/0")).is_ok_and(|device| device == Path::new(&self.tty))
        };
        let pid = pids.into_iter().find(ours).expect("the shell runs at the terminal");
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        // It is pending until one of the threads takes it.
        let is_pending = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status
                .lines()
                .any(|line| line.starts_with("ShdPnd:") && line.contains(|digit| ('1'..='9').contains(&digit)))
        };
        while is_pending() {
            std::thread::yield_now();
        }
    }

    /// Waits for the end, and gives the exit status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        left(&mut self.child)
    }

    /// Whether it was ever told to show a colour, or faint or strong letters.
    pub(crate) fn has_colour(&self) -> bool {
        let raw = self.raw.lock().unwrap();
        String::from_utf8_lossy(&raw).split("\x1b[").skip(1).any(|rest| {
            rest.find(|letter: char| letter.is_ascii_alphabetic()).is_some_and(|at| rest[at..].starts_with('m'))
        })
    }

    /// All that was ever shown.
    pub(crate) fn all(&self) -> String {
        self.screen.0.lock().unwrap().clone()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text without what moves the cursor and sets colours, its lines ended in one way.
fn plain(raw: &str) -> String {
    let (mut text, mut letters) = (String::new(), raw.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => {
                if letters.next() == Some('[') {
                    for letter in letters.by_ref() {
                        if letter.is_ascii_alphabetic() {
                            break;
                        }
                    }
                }
            }
            '\r' | '\x07' => {}
            _ => text.push(letter),
        }
    }
    text
}

/// A hub on loopback: it answers with what `answer` gives, and with nothing at all where that is nothing.
pub(crate) struct Hub {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    pub(crate) fn start(answer: fn(&str) -> Option<(u16, &'static str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            // Connections that get no answer stay open, as those to a hub that hangs.
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = request(&stream);
                let answered = answer(&request);
                seen.lock().unwrap().push(request);
                match answered {
                    Some((status, body)) => {
                        let head = format!(
                            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                            body.len()
                        );
                        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                    }
                    None => silent.push(stream),
                }
            }
        });
        Self { url, requests }
    }

    /// The requests so far: the first line, then the body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let first = first.rsplit_once(" HTTP").map_or(first.clone(), |(first, _)| first.to_owned());
    format!("{first} {}", String::from_utf8(body).unwrap()).trim().to_owned()
}
