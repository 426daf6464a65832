//! The verdict on a command: the policy's own rules, then the built-in rules, and the finding that they lead to.

use std::path::Path;

use cp_common::Result;
use cp_common::home::resolved;

use super::arguments::{Arguments, has_option, values_of};
use super::data::{self, Clause, DATA, Kind, Place, Rule as BuiltIn};
use crate::policy::{Policy, Rule, Verdict, expand};
use crate::refusal::refuse;
use cp_common::glob::name_matches;

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A request for this one command: all rules apply.
    Single,
    /// A command line: removed files are kept for undo, so that removing them needs no confirmation.
    Line,
    /// Another program, such as make or npm: only rules about destruction, publication and escalation apply.
    Child,
}

impl Scope {
    fn includes(self, rule: &BuiltIn) -> bool {
        match self {
            Self::Single => true,
            Self::Line => rule.kind != Kind::Removes,
            Self::Child => matches!(rule.kind, Kind::Destroys | Kind::Publishes | Kind::Escalates),
        }
    }
}

/// Judges the arguments of a command whose name is allowed. In [`Scope::Child`] the policy's own rules apply too.
pub(crate) fn judge(policy: &Policy, argv: &[String], cwd: &Path, scope: Scope) -> Finding {
    let arguments = Arguments::read(argv);
    let home = policy.home_text();
    let places = Places { cwd, project: &policy.base, home: &home };
    let own = policy.exec().rule.iter().filter_map(|rule| of_policy(rule, &arguments, &places));
    let (is_server, publishes) = (policy.is_of_server, !policy.exec().network.is_closed());
    let holds = |rule: &BuiltIn| {
        scope.includes(rule)
            && (!is_server || rule.kind == Kind::Escalates)
            && (publishes || rule.kind != Kind::Publishes)
    };
    own.chain(of_data(&arguments, &places, holds)).fold(Finding::allowed(), Finding::or)
}

/// The findings of the built-in rules that apply.
pub(super) fn of_data<'a>(
    arguments: &'a Arguments<'_>,
    places: &'a Places<'_>,
    holds: impl Fn(&BuiltIn) -> bool + 'a,
) -> impl Iterator<Item = Finding> + 'a {
    let rules = data::rules_of(arguments.name())
        .filter(move |rule| holds(rule) && rule.holds(|clause| clause.holds(arguments, places)));
    rules.map(|rule| Finding {
        verdict: rule.decision,
        rule: rule.id.clone(),
        reason: format!("`{}`: {}", arguments.name(), rule.reason),
        is_final: rule.is_final && rule.decision == Verdict::Ask,
        hint: rule.hint.clone(),
    })
}

/// The finding of a rule of the policy, if it applies to a command line.
fn of_policy(rule: &Rule, arguments: &Arguments<'_>, places: &Places<'_>) -> Option<Finding> {
    let applies = name_matches(&rule.command, arguments.name())
        && (rule.subcommands.is_empty() || arguments.is_command(&rule.subcommands))
        && (rule.options.is_empty() || has_option(arguments.options(false), &rule.options));
    applies.then(|| Finding {
        verdict: rule.decision,
        rule: format!("policy.{}", rule.command),
        reason: rule.reason.clone().unwrap_or_else(|| format!("a rule of the policy about `{}`", rule.command)),
        is_final: arguments.is_command(&DATA.final_commands)
            || of_data(arguments, places, |_| true).any(|it| it.is_final),
        hint: None,
    })
}

/// The result of the rules about a command.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The strictest verdict.
    pub verdict: Verdict,
    /// The rule that gave it.
    pub rule: String,
    pub reason: String,
    /// The command deletes or publishes: a confirmation holds for one run.
    pub is_final: bool,
    /// The recommended alternative.
    pub hint: Option<String>,
}

impl Finding {
    /// The finding for a line. Its programs are decided about when they start.
    pub(crate) fn contained(reason: &str) -> Self {
        Self { rule: "shell".to_owned(), reason: reason.to_owned(), ..Self::allowed() }
    }

    pub(crate) fn allowed() -> Self {
        let reason = "allowed by allowed_commands, and no rule is against it".to_owned();
        let rule = "allowed_commands".to_owned();
        Self { verdict: Verdict::Allow, rule, reason, is_final: false, hint: None }
    }

    /// The stricter of two.
    pub(crate) fn or(self, other: Self) -> Self {
        let is_final = self.is_final || other.is_final;
        let stricter = if other.verdict > self.verdict { other } else { self };
        Self { is_final, ..stricter }
    }

    /// The finding, or the error of a denial.
    pub(crate) fn or_refused(self) -> Result<Self> {
        if self.verdict != Verdict::Deny {
            return Ok(self);
        }
        let hint = self.hint.unwrap_or_else(|| "remove the argument, or ask the owner to run it outside".to_owned());
        Err(refuse(&self.rule, self.reason).hint(hint))
    }
}

/// The directories that words are resolved against.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub cwd: &'a Path,
    pub project: &'a Path,
    pub home: &'a str,
}

impl Place {
    fn contains(self, path: &Path, places: &Places<'_>) -> bool {
        match self {
            Self::Root => [places.project, Path::new(places.home)].iter().any(|root| root.starts_with(path)),
            Self::Repository => {
                path.iter().any(|part| part == ".git") && path.extension().is_none_or(|extension| extension != "lock")
                    || path.join(".git").is_dir()
            }
        }
    }
}

impl Clause {
    pub(super) fn holds(&self, arguments: &Arguments<'_>, places: &Places<'_>) -> bool {
        let of_form = |forms: &[String], word: &str| forms.iter().any(|form| name_matches(form, word));
        let is_of_command = !self.command.is_empty();
        let options = arguments.options(is_of_command);
        let operands = if is_of_command { arguments.operands_of_command() } else { arguments.operands() };
        let values = options.iter().filter_map(|(_, value)| *value);
        let mut words = values.chain(arguments.operands().iter().map(|operand| operand.word));
        let is_off = |off: &[String]| values_of(options, off).any(|value| ["false", "none"].contains(&value));
        // The working directory, after the options that change it.
        let directory = arguments.directories().fold(places.cwd.to_owned(), |path, next| path.join(next));
        let exists = |word: &str| {
            word != "-" && (word.contains(['*', '?', '[']) || directory.join(word).symlink_metadata().is_ok())
        };
        let is_in =
            |place: Place, word: &str| place.contains(&resolved(&directory.join(expand(word, places.home))), places);
        (!is_of_command || arguments.is_command(&self.command))
            && !arguments.is_command(&self.not_command)
            && (self.options.is_empty() || has_option(options, &self.options))
            && (!has_option(options, &self.no_options) || is_off(&self.no_options))
            && (self.operands.is_empty() || operands.iter().any(|operand| of_form(&self.operands, operand.word)))
            && (self.words.is_empty() || words.any(|word| of_form(&self.words, &word.to_ascii_lowercase())))
            && (self.at_least == 0 || operands.len() >= self.at_least)
            && (!self.after_dashes || operands.iter().any(|operand| operand.after_dashes))
            && (!self.existing || operands.iter().any(|operand| exists(operand.word)))
            && self.place.is_none_or(|place| operands.iter().any(|operand| is_in(place, operand.word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict of the built-in rules in each scope.
    fn verdicts(line: &str) -> [Verdict; 3] {
        let argv = cp_common::words::split(line).unwrap().argv;
        let places = Places { cwd: Path::new("/project/sub"), project: Path::new("/project"), home: "/home/me" };
        let arguments = Arguments::read(&argv);
        [Scope::Single, Scope::Line, Scope::Child].map(|scope| {
            let found = of_data(&arguments, &places, |rule| scope.includes(rule));
            found.fold(Finding::allowed(), Finding::or).verdict
        })
    }

    #[test]
    fn rules_apply_in_scopes_of_their_kind() {
        use Verdict::{Allow, Ask, Deny};
        for (expected, lines) in [
            ([Deny; 3], ["sudo id", "busybox su", "mkfs.ext4 x", "git branch -M x"]),
            ([Ask; 3], ["git push", "npm publish", "git branch -D x", "rm -rf .."]),
            (
                [Ask; 3],
                ["/usr/bin/git -C a push -f", "rm -r ../.git", "sqlite3 a 'drop table x'", "git gc --prune=now"],
            ),
            ([Ask, Ask, Allow], ["git clean -fd", "git reset --hard", "git restore .", "ssh host"]),
            (
                [Deny, Deny, Allow],
                ["git config a.b c", "git config --unset a.b", "git submodule init", "git remote add a b"],
            ),
            ([Ask, Allow, Allow], ["rm -rf x", "dd of=x", "find . -delete", "rsync --delete a b"]),
            ([Allow; 3], ["cp a b", "sed -i s/a/b/ x", "git stash pop", "git commit -m push"]),
            ([Allow; 3], ["python3 -c x", "bash -c 'rm x'", "env git push", "find . -exec rm {} +"]),
        ] {
            for line in lines {
                assert_eq!(verdicts(line), expected, "{line}");
            }
        }
    }
}
