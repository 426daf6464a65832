//! A plan is decided about twice: all of it before anything starts, with what is known then, and each part again right before it
//! starts, with what is there now. The second time may ask for nothing that the first did not.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use cp_common::program::approval::Spent;
use cp_common::{Error, Result};

use super::decide::{Considered, consider_in, timeout_of};
use super::directory::Directory;
use super::environment;
use super::hashes::Hashes;
use super::paths::asked_cwd;
use super::redirects::{self, Redirected};
use super::ruling::Ruling;
use super::words::Expansion;
use crate::digest::sha256;
use crate::lowering::steps::{self, Action, Join, Step};
use crate::policy::{Policy, Verdict};
use crate::refusal::refuse;
use crate::request::{Command, line_of};
use crate::rules::{Finding, Risk};

/// How far the clock that files are dated with may be behind. What was there before the plan was decided about as such.
const CLOCK: Duration = Duration::from_millis(20);

/// A plan that may run: now, or when it is confirmed.
#[derive(Clone)]
pub(crate) struct Line {
    /// Its parts in the order of the line.
    pub parts: Vec<Part>,
    /// Where it begins.
    pub directory: Directory,
    pub timeout: Duration,
    /// The hash of what its first command reads, where that came with the request.
    pub stdin: Option<String>,
    /// The yes that was spent for it.
    pub approved: Option<Spent>,
    /// The hash of the token that was spent for it.
    pub confirmed: Option<String>,
    /// When it was decided about.
    pub since: SystemTime,
}

/// One command of a plan, as it is decided about.
#[derive(Clone)]
pub(crate) struct Part {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub directory: Directory,
    /// None where there are only redirections.
    pub considered: Option<Considered>,
    pub redirected: Redirected,
    /// What has to be confirmed.
    pub asks: Vec<Finding>,
}

impl Line {
    /// Everything that has to be confirmed, with the number of its part.
    pub(crate) fn asks(&self) -> impl Iterator<Item = (usize, &Finding)> {
        self.parts.iter().enumerate().flat_map(|(at, part)| part.asks.iter().map(move |ask| (at, ask)))
    }

    pub(crate) fn risk(&self) -> Risk {
        self.parts.iter().map(Part::risk).max().unwrap_or(Risk::Low)
    }

    pub(crate) fn notices(&self) -> Vec<String> {
        let mut notices: Vec<String> =
            self.parts.iter().filter_map(|part| part.considered.as_ref()).flat_map(|it| it.notices.clone()).collect();
        notices.dedup();
        notices
    }
}

impl Part {
    pub(crate) fn risk(&self) -> Risk {
        let own = self.considered.as_ref().map_or(Risk::Low, |considered| considered.finding.risk);
        self.asks.iter().map(|ask| ask.risk).fold(own, Risk::max)
    }

    /// The rule that decided.
    pub(crate) fn rule(&self) -> &str {
        let own = self.considered.as_ref().map(|considered| &considered.finding);
        self.asks.first().or(own).map_or("paths", |finding| &finding.rule)
    }

    /// The hash of the file that it would be.
    pub(crate) fn program(&self) -> Option<&str> {
        self.considered.as_ref().map(|considered| considered.pinned.sha256.as_str())
    }

    /// Refuses what goes beyond `before`, the same part as it was agreed to.
    pub(crate) fn agreed(&self, before: &Self) -> Result<()> {
        let same = (&self.argv, &self.directory) == (&before.argv, &before.directory);
        if same && self.program() != before.program() {
            return Err(refuse("changed", format!("`{}` is not the program that was checked", self.argv[0]))
                .hint("find out what changes it, then try again"));
        }
        let is_agreed = |ask: &Finding| before.asks.iter().any(|it| (&it.rule, &it.reason) == (&ask.rule, &ask.reason));
        match self.asks.iter().find(|ask| !same || !is_agreed(ask)) {
            None => Ok(()),
            Some(ask) => {
                Err(refuse(&ask.rule, format!("{}, which was not so when the plan was agreed to", ask.reason))
                    .hint("request what is left again"))
            }
        }
    }

    /// The ruling of a part that starts now.
    pub(crate) fn ruling(&self, policy: &Policy, timeout: Duration) -> Result<Option<Ruling>> {
        let Some(considered) = &self.considered else { return Ok(None) };
        let considered = Considered { timeout, ..considered.clone() };
        let command = Command { env: self.env.clone(), ..Command::default() };
        let mut ruling = considered.rule(policy, &command, &self.argv)?;
        ruling.plan.redirects.clone_from(&self.redirected.redirects);
        Ok(Some(ruling))
    }
}

/// Decides about all of a plan. A refusal names the part, and nothing of the plan starts.
pub(crate) fn decide_line(policy: &Policy, hashes: &mut Hashes, command: &Command) -> Result<Line> {
    policy.check_base()?;
    let directory = Directory::first(asked_cwd(policy, command)?);
    let timeout = timeout_of(policy, command.timeout)?;
    environment::check_all(&policy.exec().env_allow, &command.env)?;
    let since = SystemTime::now().checked_sub(CLOCK).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut deciding = Deciding { policy, hashes, command, expansion: Expansion::of(policy), since: None };
    let mut parts = Vec::new();
    deciding.steps(&command.steps, directory.clone(), &mut parts)?;
    let stdin = command.stdin.as_ref().map(|text| sha256(text.as_bytes()));
    Ok(Line { parts, directory, timeout, stdin, approved: None, confirmed: None, since })
}

/// What decisions about the parts of one plan are made from.
pub(crate) struct Deciding<'a> {
    pub policy: &'a Policy,
    pub hashes: &'a mut Hashes,
    pub command: &'a Command,
    pub expansion: Expansion<'a>,
    /// When the plan began, which may write over what it made itself; none while nothing of it has run.
    pub since: Option<SystemTime>,
}

impl Deciding<'_> {
    /// Walks through the steps as if each directory could be entered. Answers with where they end.
    fn steps(&mut self, steps: &[Step], from: Directory, parts: &mut Vec<Part>) -> Result<Directory> {
        let (mut here, mut before) = (from.clone(), from);
        for step in steps {
            // What comes after `||` runs where the step before it did not get on.
            let start = if step.join == Join::Or { before } else { here.clone() };
            before = start.clone();
            here = match &step.action {
                Action::Pipeline(pipeline) => {
                    for part in pipeline {
                        let at = parts.len();
                        let decided = self.part(part, &start, 0);
                        parts.push(decided.map_err(|error| self.in_part(error, at, Some(part)))?);
                    }
                    start
                }
                Action::Cd(word) => {
                    let word = word.with_status(0);
                    start.entered(self.policy, &word).map_err(|error| self.in_part(error, parts.len(), None))?
                }
                Action::Group(steps) => {
                    self.steps(steps, start.clone(), parts)?;
                    start
                }
                Action::Block(steps) => self.steps(steps, start, parts)?,
                Action::Exit(_) => start,
            };
        }
        Ok(here)
    }

    /// Decides about one command, where it would run.
    pub(crate) fn part(&mut self, part: &steps::Part, directory: &Directory, status: u8) -> Result<Part> {
        let argv = self.expansion.words(&part.argv, &directory.real, status);
        let mut env = self.command.env.clone();
        env.extend(part.env.iter().map(|(name, value)| (name.clone(), value.with_status(status))));
        environment::check_all(&self.policy.exec().env_allow, &env)?;
        let redirected = redirects::decide(self.policy, &part.redirects, &directory.real, status, self.since)?;
        let considered = if part.argv.is_empty() {
            None
        } else {
            // A tool can stand in for a plan of one command that no stream of is redirected.
            let alone = part.redirects.is_empty() && is_alone(&self.command.steps);
            let stages = if alone { vec![argv.clone()] } else { Vec::new() };
            let command = Command { stages, env: env.clone(), timeout: self.command.timeout, ..Command::default() };
            Some(consider_in(self.policy, self.hashes, &command, &argv, directory.real.clone())?)
        };
        let own = considered.iter().map(|it| &it.finding).filter(|finding| finding.verdict == Verdict::Confirm);
        let asks = own.chain(&redirected.asks).cloned().collect();
        Ok(Part { argv, env, directory: directory.clone(), considered, redirected, asks })
    }

    /// A refusal with the part that it is about.
    fn in_part(&self, error: Error, at: usize, part: Option<&steps::Part>) -> Error {
        if error.is_fatal() {
            return error;
        }
        let words = part.map(|part| part.argv.iter().map(|word| word.with_status(0)).collect::<Vec<_>>());
        let mut value = error.to_value();
        value["message"] = format!("part {}: {}", at + 1, error.message()).into();
        let error = Error::from_value(&value).with("part", at).with("plan", line_of(&self.command.steps));
        words.into_iter().fold(error, |error, words| error.with("argv", words))
    }
}

fn is_alone(steps: &[Step]) -> bool {
    matches!(steps, [Step { action: Action::Pipeline(parts), .. }] if parts.len() == 1)
}
