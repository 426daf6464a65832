//! Lists, pipelines and groups: the grammar of a line, in one pass.

use super::check::DEEPEST;
use super::command::Reader;
use super::known::{Environment, Known, Outcome};
use super::redirects::{self, AWAITED, Documents};
use super::refusal::{Refusal, Rule};
use super::scan::{self, Scanner};
use super::steps::{Action, Join, Part, Redirect, Step, Target, Word};

/// What a string is lowered to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lowered {
    pub steps: Vec<Step>,
    /// What a person should know of it.
    pub notices: Vec<String>,
}

/// Where a list ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Text,
    /// `)`
    Parenthesis,
    /// `}`
    Brace,
}

/// Lowers a command line.
pub(crate) fn lower(text: &str, environment: &Environment) -> Result<Lowered, Box<Refusal>> {
    let mut reader = Reader {
        scanner: Scanner { text, at: 0, printed: false },
        environment: *environment,
        known: Known::at_start(),
        documents: Documents::default(),
        understood: Vec::new(),
        notices: Vec::new(),
    };
    let read = scan::check(text)
        .and_then(|()| reader.list(End::Text, 0))
        .and_then(|(steps, _)| reader.documents.check().map(|()| steps));
    match read {
        Ok(mut steps) => {
            let mut bodies = std::mem::take(&mut reader.documents.bodies).into_iter();
            if bodies.len() > 0 {
                fill(&mut steps, &mut bodies);
            }
            Ok(Lowered { steps, notices: reader.notices })
        }
        Err(refusal) => Err(Box::new(Refusal { understood: reader.understood, ..refusal.within(text) })),
    }
}

/// Puts the texts of here-documents where they are awaited.
fn fill(steps: &mut [Step], bodies: &mut impl Iterator<Item = Word>) {
    for step in steps {
        match &mut step.action {
            Action::Pipeline(parts) => {
                let targets =
                    parts.iter_mut().flat_map(|part| &mut part.redirects).map(|redirect| &mut redirect.target);
                for target in targets {
                    if let Target::Text { text } = target
                        && *text == AWAITED
                    {
                        *text = bodies.next().unwrap_or(AWAITED);
                    }
                }
            }
            Action::Group(steps) | Action::Block(steps) => fill(steps, bodies),
            Action::Cd(_) | Action::Exit(_) => {}
        }
    }
}

impl Reader<'_> {
    /// Reads steps up to the end that is asked for, and what is certain after them.
    fn list(&mut self, end: End, depth: usize) -> Result<(Vec<Step>, Outcome), Refusal> {
        if depth > DEEPEST {
            return self.refused(Rule::TooLong, "groups stand too deep in each other");
        }
        let (mut steps, mut so_far, mut join) = (Vec::new(), self.known.either(), Join::Start);
        loop {
            self.skip_lines()?;
            if matches!(join, Join::Start | Join::Then) && self.at_end(end) {
                break;
            }
            self.known = match join {
                Join::Start | Join::Then => so_far.zero.merged(&so_far.other),
                Join::And => so_far.zero.clone(),
                Join::Or => so_far.other.clone(),
            };
            let (step, outcome) = self.step(join, depth)?;
            steps.push(step);
            so_far = match join {
                Join::Start | Join::Then => outcome,
                Join::And => Outcome { other: so_far.other.merged(&outcome.other), ..outcome },
                Join::Or => Outcome { zero: so_far.zero.merged(&outcome.zero), ..outcome },
            };
            self.scanner.skip_blanks();
            join = if self.scanner.takes("&&") {
                Join::And
            } else if self.scanner.takes("||") {
                Join::Or
            } else if self.scanner.rest().starts_with(";;") || self.scanner.rest().starts_with(";&") {
                return self.refused(Rule::Syntax, "this belongs to `case`");
            } else if self.scanner.takes(";") || self.scanner.rest().starts_with('\n') {
                Join::Then
            } else if self.scanner.rest().starts_with('&') {
                return self.refused(Rule::Background, "`&` would let the command run on in the background");
            } else if self.at_end(end) {
                break;
            } else {
                return self.refused(Rule::Syntax, "a command cannot go on like this");
            };
        }
        if steps.is_empty() {
            return self.refused(Rule::Empty, "there is no command");
        }
        Ok((steps, so_far))
    }

    /// Goes over blanks and empty lines, and takes the texts that stand below a line.
    fn skip_lines(&mut self) -> Result<(), Refusal> {
        loop {
            self.scanner.skip_blanks();
            if !self.scanner.takes("\n") {
                return Ok(());
            }
            self.documents.read(&mut self.scanner, &self.environment)?;
        }
    }

    fn at_end(&self, end: End) -> bool {
        match end {
            End::Text => self.scanner.rest().is_empty(),
            End::Parenthesis => self.scanner.rest().starts_with(')'),
            End::Brace => self.bare() == "}",
        }
    }

    fn step(&mut self, join: Join, depth: usize) -> Result<(Step, Outcome), Refusal> {
        let start = self.scanner.at;
        let negated = self.bare() == "!";
        if negated {
            self.scanner.at += 1;
            self.scanner.skip_blanks();
        }
        if self.bare() == "time" && !negated {
            self.scanner.at += 4;
            self.scanner.skip_blanks();
            self.notices.push("`time` says nothing: how long a command took is in the answer".to_owned());
            if self.bare().starts_with('-') || matches!(self.bare(), "!" | "time") {
                return self.refused(Rule::Compound, "`time` is understood before a command");
            }
        }
        let (action, outcome) = match self.bare() {
            "{" => self.group(End::Brace, depth)?,
            "" if self.scanner.peek() == Some('(') => self.group(End::Parenthesis, depth)?,
            _ => self.pipeline()?,
        };
        let outcome = match negated {
            true if matches!(action, Action::Exit(_)) => {
                return Err(
                    Refusal::new(Rule::Builtin, start, "`exit` has no status to turn round").hint("leave the `!` out")
                );
            }
            true => Outcome { zero: outcome.other, other: outcome.zero },
            false => outcome,
        };
        Ok((Step { join, negated, action }, outcome))
    }

    fn group(&mut self, end: End, depth: usize) -> Result<(Action, Outcome), Refusal> {
        if self.scanner.rest().starts_with("((") {
            return self.refused(Rule::Arithmetic, "a shell would calculate here");
        }
        self.scanner.at += 1;
        let before = self.known.clone();
        let (steps, after) = self.list(end, depth + 1)?;
        self.scanner.at += 1;
        self.scanner.skip_blanks();
        let rest = self.scanner.rest();
        if redirects::begins(rest) || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return self.refused(Rule::Group, "a group has no redirections of its own");
        }
        if rest.starts_with('|') && !rest.starts_with("||") {
            return self.refused(Rule::Group, "a group cannot be part of a pipeline");
        }
        Ok(match end {
            End::Brace => (Action::Block(steps), after),
            End::Parenthesis | End::Text => (Action::Group(steps), before.either()),
        })
    }

    fn pipeline(&mut self) -> Result<(Action, Outcome), Refusal> {
        let (mut action, outcome) = self.simple()?;
        loop {
            self.scanner.skip_blanks();
            let rest = self.scanner.rest();
            if !rest.starts_with('|') || rest.starts_with("||") {
                return Ok((action, outcome));
            }
            let Some(parts) = stages(&mut action) else { return self.refused_in_pipeline() };
            if rest.starts_with("|&") {
                let both = Redirect { fd: 2, target: Target::Dup { to: 1 } };
                parts.last_mut().into_iter().for_each(|part| part.redirects.push(both.clone()));
            }
            self.scanner.at += if rest.starts_with("|&") { 2 } else { 1 };
            self.skip_lines()?;
            if self.bare() == "{" || self.scanner.rest().starts_with('(') {
                return self.refused(Rule::Group, "a group cannot be part of a pipeline");
            }
            let (mut next, _) = self.simple()?;
            let Some(more) = stages(&mut next) else { return self.refused_in_pipeline() };
            let more = std::mem::take(more);
            parts.extend(more);
        }
    }

    fn refused_in_pipeline<T>(&self) -> Result<T, Refusal> {
        self.refused(Rule::Group, "only programs can be part of a pipeline")
    }
}

/// The commands of a pipeline that may have more of them.
fn stages(action: &mut Action) -> Option<&mut Vec<Part>> {
    match action {
        Action::Pipeline(parts) if parts.iter().all(|part| !part.argv.is_empty()) => Some(parts),
        Action::Pipeline(_) | Action::Cd(_) | Action::Group(_) | Action::Block(_) | Action::Exit(_) => None,
    }
}
