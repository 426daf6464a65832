//! `doctor`: checks the setup and reports how to fix it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::minimum::version_check;
use super::reference::readiness;
use crate::context::Context;
use crate::home::config::Config;
use crate::program::identity::{Check, Program, Status};
use crate::signals;
use crate::wire::{Reply, Result};

/// The result of `doctor`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doctor {
    /// The checks.
    pub checks: Vec<Check>,
    /// Number of checks by status.
    pub summary: Map<String, Value>,
}

impl Doctor {
    /// Makes the result of these checks.
    pub fn of(checks: Vec<Check>) -> Self {
        let count = |status: Status| checks.iter().filter(|check| check.status == status).count().into();
        let summary = [("pass", count(Status::Pass)), ("warn", count(Status::Warn)), ("fail", count(Status::Fail))];
        Self { summary: summary.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(), checks }
    }
}

impl Reply for Doctor {
    fn text(&self) -> String {
        let line = |check: &Check| {
            let mark = match check.status {
                Status::Pass => "✓",
                Status::Warn => "!",
                Status::Fail => "✗",
            };
            let fix =
                check.fix.as_ref().map(|fix| format!("\n  Hint: {}", fix.replace('\n', "\n  "))).unwrap_or_default();
            format!("{mark} {}: {}{fix}", check.check, check.message)
        };
        let count = |(word, n): (&String, &Value)| format!("{n} {word}");
        let counts = self.summary.iter().map(count).collect::<Vec<_>>().join(", ");
        self.checks.iter().map(line).chain([counts]).collect::<Vec<_>>().join("\n")
    }
}

pub(super) fn doctor(program: &Program, context: &mut Context) -> Result<Doctor> {
    let mut checks = vec![home_check(context), config_check(context)];
    checks.extend((program.checks)(context));
    // An interrupted check has no result.
    signals::check()?;
    let readiness = readiness();
    checks.push(version_check(context));
    checks.push(Check::not_fine(
        "release_readiness",
        Status::Warn,
        format!("{}: {}", readiness.level, readiness.reason),
        "try the services that you use with scripts/conformance, and keep what it prints",
    ));
    Ok(Doctor::of(checks))
}

fn home_check(context: &Context) -> Check {
    use rustix::fs::{Access, access};
    let root = context.home.root();
    let found = root.display().to_string();
    let existing = root.ancestors().find(|place| place.exists());
    match existing {
        Some(place) if access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok() && place.is_dir() => {
            Check::pass("home", found)
        }
        _ => Check::not_fine(
            "home",
            Status::Fail,
            format!("{found} cannot be written"),
            "give --home DIR, or set CP_HOME",
        ),
    }
}

fn config_check(context: &Context) -> Check {
    match Config::load(&context.home.config_file()) {
        Ok(_) => Check::pass("config", "settings can be read"),
        Err(e) => Check::not_fine("config", Status::Fail, e.message(), e.hint_text().unwrap_or("correct the file")),
    }
}
