//! `doctor`: checks the setup and reports how to fix it. One check is that this version is new enough for the installed
//! skills, by `minimum-version` in their front matter.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::changelog::number;
use super::reference::readiness;
use crate::context::Context;
use crate::home::config::Config;
use crate::program::identity::{Check, Program, Status, VERSION};
use crate::signals;
use crate::wire::record::SCHEMA_VERSION;
use crate::wire::{Code, Error, Reply, Result};

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

    /// Writes the result; fails with [`Code::Partial`] if a check failed.
    pub fn report(self, context: &mut Context) -> Result<()> {
        let failed: Vec<&Check> = self.checks.iter().filter(|check| check.status == Status::Fail).collect();
        let Some(first) = failed.first() else { return context.out.answer(&self) };
        let names = failed.iter().map(|check| check.check.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("{} of {} checks failed: {names}", failed.len(), self.checks.len());
        let error = Error::new(Code::Partial, message)
            .with("checks", serde_json::to_value(&self.checks).unwrap_or_default())
            .with("summary", self.summary.clone());
        let error = error.hint(first.fix.as_deref().unwrap_or("each failed check has its own hint"));
        context.out.refuse(&self, error)
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

/// Runs the checks.
pub(super) fn doctor(program: &Program, context: &mut Context) -> Result<Doctor> {
    let mut checks = vec![home_check(context), config_check(context)];
    checks.extend((program.checks)(context));
    // An interrupted check has no result.
    signals::check()?;
    checks.push(version_check(context));
    checks.push(readiness_check());
    Ok(Doctor::of(checks))
}

fn readiness_check() -> Check {
    let readiness = readiness();
    let words = |name: &str| readiness[name].as_str().unwrap_or_default();
    let message = format!("{}: {}", words("level"), words("reason"));
    let status = match words("level") {
        "stable" => return Check::pass("release_readiness", message),
        "beta" => Status::Warn,
        _ => Status::Fail,
    };
    let fix = "record a run of scripts/conformance against hosted model services in common/contract/live.jsonl";
    Check::not_fine("release_readiness", status, message, fix)
}

fn home_check(context: &Context) -> Check {
    use rustix::fs::{Access, access};
    let is_writable = |place: &&Path| {
        let existing = place.ancestors().find(|place| place.exists());
        existing.is_some_and(|place| place.is_dir() && access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok())
    };
    let [data, config, state] = context.home.places();
    if let Some(place) = [data, config, state].iter().find(|place| !is_writable(place)) {
        let message = format!("{} cannot be written", place.display());
        return Check::not_fine("home", Status::Fail, message, "give --home DIR, or set CP_HOME");
    }
    let is_single = config.starts_with(data) && state.starts_with(data);
    let elsewhere = format!(", configuration in {}, state in {}", config.display(), state.display());
    Check::pass("home", format!("{}{}", data.display(), if is_single { "" } else { &elsewhere }))
}

fn config_check(context: &Context) -> Check {
    match Config::load(&context.home.config_file()) {
        Ok(_) => Check::pass("config", "settings can be read"),
        Err(e) => Check::not_fine("config", Status::Fail, e.message(), e.hint_text().unwrap_or("correct the file")),
    }
}

/// Directories of skills, below the home, a project and the user's home directory.
const PLACES: [&str; 3] = ["skills", ".claude/skills", ".agents/skills"];

/// Makes the check that no installed skill needs a newer version.
fn version_check(context: &Context) -> Check {
    let current = format!("version {VERSION}, envelope {SCHEMA_VERSION}");
    let roots = [Some(context.home.root().to_owned()), std::env::current_dir().ok(), std::env::home_dir()];
    let files = roots.iter().flatten().flat_map(|root| PLACES.map(|place| root.join(place).join("cp-tools/SKILL.md")));
    // Reading a named pipe would block.
    let files = files.filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
    let mut needed = files.filter_map(|file| Some((minimum_of(&std::fs::read_to_string(&file).ok()?)?, file)));
    let Some((minimum, skill)) = needed.find(|(minimum, _)| number(minimum) > number(VERSION)) else {
        return Check::pass("version", current);
    };
    let message = format!("{current}, but {} needs at least {minimum}", skill.display());
    let fix = "run cp-shell update, or install the skill that belongs to this version";
    Check::not_fine("version", Status::Fail, message, fix)
}

/// Returns the minimum version in the front matter of a skill.
fn minimum_of(skill: &str) -> Option<String> {
    let front = skill.strip_prefix("---\n")?.split("\n---").next()?;
    let value = front.lines().find_map(|line| line.trim_start().strip_prefix("minimum-version:"))?;
    let version = value.trim().trim_matches(['"', '\'']);
    number(version).map(|_| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_version_is_read_from_front_matter() {
        let own = include_str!("../../../../../skills/cp-tools/SKILL.md");
        assert!(minimum_of(own).is_some_and(|minimum| number(&minimum) <= number(VERSION)));
        assert_eq!(minimum_of("---\nmetadata:\n  minimum-version: '1.2.3'\n---\n").as_deref(), Some("1.2.3"));
        assert_eq!(minimum_of("---\nname: x\n---\nminimum-version: 1.2.3\n"), None);
    }
}
