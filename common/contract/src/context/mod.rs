//! What a verb gets to work with: options, home, settings, and the way out.

pub mod given;
pub mod options;
pub mod pages;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use crate::context::options::{Origin, Shared};
use crate::home::Home;
use crate::home::config::Config;
use crate::output::{Format, Output, line_to_stderr};
use crate::wire::{Result, quoted};

/// One run of a program.
pub struct Context {
    /// The name of the program that runs.
    pub program: &'static str,
    /// The options that every program has.
    pub options: Shared,
    /// Where everything lies.
    pub home: Home,
    /// The settings.
    pub config: Config,
    /// Standard output.
    pub out: Output,
}

impl Context {
    /// The tier that sessions and runs are made in.
    pub fn tier(&self) -> String {
        self.config.text("tier", None).unwrap_or_default()
    }

    /// The agent, given the option of the command line.
    pub fn agent(&self, flag: Option<&str>) -> String {
        self.config.text("agent", flag).unwrap_or_default()
    }

    /// On whose behalf this runs.
    pub fn origin(&self) -> Origin {
        self.options.origin.unwrap_or_default()
    }

    /// The session that is meant: the option, else `CP_SESSION`.
    pub fn session(&self) -> Option<String> {
        self.config.text("session", self.options.session.as_deref())
    }

    /// The directory that `.` means in policy: handed on by the outermost program, else where this one was started.
    pub fn base(&self) -> Result<PathBuf> {
        match &self.options.base {
            Some(base) => {
                Ok(base.canonicalize().map_err(|e| crate::Error::io("opening the base directory", e).in_file(base))?)
            }
            None => Ok(std::env::current_dir()?),
        }
    }

    /// A line for people on standard error, unless `--quiet`.
    pub fn warn(&self, message: &str) {
        self.out.warn(message);
    }

    /// Lines for people on standard error, unless `--quiet`. What they quote is escaped already.
    pub fn explain(&self, text: &str) {
        self.out.explain(text);
    }

    /// A line of progress on standard error, only on a terminal.
    pub fn progress(&self, line: &str) {
        if !self.options.quiet && std::io::stderr().is_terminal() {
            line_to_stderr(line);
        }
    }

    /// Names the command that makes the page of a run or a session, on a terminal.
    pub fn name_page(&self, option: &str, id: &str) {
        let is_named = self.home.origin() == "flag";
        let home = is_named.then(|| format!(" --home {}", quoted(&self.home.root().display().to_string())));
        self.progress(&format!("cp-log{} bundle {option} {id} | cp-report >{id}.html", home.unwrap_or_default()));
    }

    /// The flags that hand this context on to a part that is run.
    pub fn handed_on(&self) -> Vec<OsString> {
        let mut flags = vec!["--home".into(), self.home.root().into()];
        let mut flag = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                flags.extend([name.into(), value]);
            }
        };
        flag("--ledger", self.options.ledger.as_ref().map(OsString::from));
        flag("--session", self.options.session.as_ref().map(OsString::from));
        flag("--run", self.options.run.as_ref().map(OsString::from));
        flag("--base", self.base().ok().map(OsString::from));
        flag("--origin", Some(self.origin().name().into()));
        if self.options.quiet {
            flags.push("--quiet".into());
        }
        flags
    }

    /// Whether results are words for people.
    pub fn is_text(&self) -> bool {
        self.out.format() == Format::Text
    }
}
