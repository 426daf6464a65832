//! The context of a verb: options, home, settings, and standard output.

pub mod given;
pub mod options;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use crate::context::given::directory;
use crate::context::options::{Origin, Shared};
use crate::home::config::{self, Config};
use crate::home::{Home, TIERS};
use crate::output::{Format, Output, line_to_stderr};
use crate::wire::{Error, Result, quoted};

/// One run of a program.
pub struct Context {
    /// The name of the program that runs.
    pub program: &'static str,
    /// The options that every program has.
    pub options: Shared,
    /// The home directory.
    pub home: Home,
    /// The settings.
    pub config: Config,
    /// Standard output.
    pub out: Output,
}

impl Context {
    /// Returns the tier that sessions and runs are created in; `flag` is the option of the command line. Another word
    /// than those of [`TIERS`] is an error: it would become a directory that no program searches.
    pub fn tier(&self, flag: Option<&str>) -> Result<String> {
        let tier = self.config.text("tier", flag).unwrap_or_default();
        if TIERS.contains(&tier.as_str()) {
            return Ok(tier);
        }
        let message = format!("`{tier}` is not a valid tier");
        let error = if flag.is_some() { Error::usage(message) } else { Error::config(message) };
        Err(error.hint(format!("use one of {}, in --tier, CP_TIER or the setting tier", TIERS.join(", "))))
    }

    /// Returns the agent; `flag` is the option of the command line.
    pub fn agent(&self, flag: Option<&str>) -> String {
        self.config.text("agent", flag).unwrap_or_default()
    }

    /// Returns the agent of a session: that of the command line or the settings, else the one that the session has.
    pub fn agent_of(&self, flag: Option<&str>, session: Option<&str>) -> String {
        let session = session.filter(|agent| !agent.is_empty());
        let asked = self.config.get("agent", flag);
        let asked = asked.filter(|asked| session.is_none() || asked.origin != config::Origin::Default);
        asked.map(|asked| asked.text).or(session.map(str::to_owned)).unwrap_or_default()
    }

    /// Returns the origin of this run.
    pub fn origin(&self) -> Origin {
        self.options.origin.unwrap_or_default()
    }

    /// Returns the session: the option, else `CP_SESSION`.
    pub fn session(&self) -> Option<String> {
        self.config.text("session", self.options.session.as_deref())
    }

    /// Returns the real path of the directory that `.` means in policy: `--base` from the outermost program, else the working directory.
    pub fn base(&self) -> Result<PathBuf> {
        self.options.base.as_ref().map_or_else(|| Ok(std::env::current_dir()?), |base| directory("--base", base))
    }

    /// Returns the real path of the governed tree that `--root` names, which must be a directory.
    pub fn root(&self) -> Result<Option<PathBuf>> {
        self.options.root.as_ref().map(|root| directory("--root", root)).transpose()
    }

    /// Prints a warning on standard error, unless `--quiet`.
    pub fn warn(&self, message: &str) {
        self.out.warn(message);
    }

    /// Prints a line for a person on standard error, only on a terminal.
    pub fn progress(&self, line: &str) {
        if !self.options.quiet && std::io::stderr().is_terminal() {
            line_to_stderr(line);
        }
    }

    /// Prints the command that makes the page of a run or a session, only on a terminal.
    pub fn name_page(&self, id: &str) {
        let is_named = self.home.origin == "flag";
        let home = is_named.then(|| format!(" --home {}", quoted(&self.home.root().display().to_string())));
        self.progress(&format!("the record: cp-log{} page {id} >{id}.html", home.unwrap_or_default()));
    }

    /// Returns the options that pass this context to another program of the suite.
    pub fn handed_on(&self) -> Vec<OsString> {
        let home = ["--home".into(), self.home.root().into()];
        home.into_iter().chain(self.handed_on_without_home(self.options.ledger.as_deref())).collect()
    }

    /// The same for a program with a home of its own, whose ledger is this one.
    pub fn handed_on_without_home(&self, ledger: Option<&Path>) -> Vec<OsString> {
        let options = &self.options;
        // The directory of the other program may be another one.
        let root = options.root.as_ref().map(|root| std::path::absolute(root).unwrap_or_default());
        let given = [
            ("--ledger", ledger.map(OsString::from)),
            ("--session", options.session.as_ref().map(OsString::from)),
            ("--run", options.run.as_ref().map(OsString::from)),
            ("--base", self.base().ok().map(OsString::from)),
            ("--root", root.map(OsString::from)),
            ("--origin", Some(self.origin().name().into())),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some([name.into(), value?])).flatten();
        given.chain(options.quiet.then(|| "--quiet".into())).collect()
    }

    /// True if results are text for people.
    pub fn is_text(&self) -> bool {
        self.out.format() == Format::Text
    }
}
