//! `doctor`: checks the setup and reports how to fix it. One check is that this version is new enough for the installed
//! skills, by `minimum-version` in their front matter.

use std::path::Path;

use serde_json::json;

use super::changelog::number;
use super::readiness;
use crate::context::Context;
use crate::home::config::Config;
use crate::program::identity::{Check, Program, Status, VERSION};
use crate::signals;
use crate::wire::record::SCHEMA_VERSION;
use crate::wire::{Built, Code, Error, Result};

/// Prints the result of checks; fails with [`Code::Partial`] if one failed.
pub fn report(checks: &[Check], context: &mut Context) -> Result<()> {
    let with = |status: Status| checks.iter().filter(move |check| check.status == status);
    let [pass, warn, fail] = [Status::Pass, Status::Warn, Status::Fail].map(|status| with(status).count());
    let line = |check: &Check| {
        let mark = match check.status {
            Status::Pass => "✓",
            Status::Warn => "!",
            Status::Fail => "✗",
        };
        let fix = check.fix.as_ref().map(|fix| format!("\n  Hint: {}", fix.replace('\n', "\n  ")));
        format!("{mark} {}: {}{}", check.check, check.message, fix.unwrap_or_default())
    };
    let counts = format!("{pass} pass, {warn} warn, {fail} fail");
    let text = checks.iter().map(line).chain([counts]).collect::<Vec<_>>().join("\n");
    let data = json!({"checks": checks, "summary": {"pass": pass, "warn": warn, "fail": fail}});
    let answer = Built { data, text };
    let Some(first) = with(Status::Fail).next() else { return context.out.answer(&answer) };
    let names = with(Status::Fail).map(|check| check.check.as_str()).collect::<Vec<_>>().join(", ");
    let error = Error::new(Code::Partial, format!("{fail} of {} checks failed: {names}", checks.len()))
        .with("checks", answer.data["checks"].clone())
        .with("summary", answer.data["summary"].clone())
        .hint(first.fix.as_deref().unwrap_or("each failed check has its own hint"));
    context.out.refuse(&answer, error)
}

/// Runs the checks and prints their result.
pub(super) fn doctor(program: &Program, context: &mut Context) -> Result<()> {
    let mut checks = vec![home_check(context), config_check(context)];
    checks.extend((program.checks)(context));
    // An interrupted check has no result.
    signals::check()?;
    checks.push(version_check(context));
    checks.push(readiness_check());
    report(&checks, context)
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
    // Nobody can mend a release on their machine.
    Check { status, ..Check::pass("release_readiness", message) }
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
