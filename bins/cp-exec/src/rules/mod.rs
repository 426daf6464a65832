//! Rules about arguments: the command lines that destroy, publish, discard or escalate. The strictest verdict wins.
//!
//! - `rules.toml`: the rules, and how their programs read arguments; [`mod@data`] loads it.
//! - [`Arguments`]: a command line, read by the grammar of its program.
//! - [`judge()`]: the verdict on a command, from the clauses of rules that hold for it.

mod arguments;
mod data;
mod judge;

#[cfg(test)]
mod spellings;

pub(crate) use self::arguments::{Arguments, Operand, is_multicall};
use self::data::{DATA, Kind, is_named, rules_of};
pub(crate) use self::data::{Rule as BuiltIn, Served};
pub(crate) use self::judge::{Finding, Scope, judge};

/// The rule that refuses a program under any policy, because it gains privileges, leaves the sandbox, or changes the
/// machine.
pub(crate) fn escalation(name: &str) -> Option<&'static BuiltIn> {
    let is_escalation = |rule: &&BuiltIn| rule.kind == Kind::Escalates && rule.holds(|_| false);
    rules_of(name).find(is_escalation)
}

/// True if a program starts the program that its operands name.
pub(crate) fn is_wrapper(name: &str) -> bool {
    is_named(&DATA.wrappers, name)
}

/// True if a program is a shell.
pub(crate) fn is_shell(name: &str) -> bool {
    is_named(&DATA.shells, name)
}

/// The tool call that replaces a command.
pub(crate) fn served(arguments: &Arguments<'_>) -> Option<&'static Served> {
    DATA.served.iter().find(|served| is_named(&served.commands, arguments.name()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::judge::Places;
    use super::*;
    use crate::policy::Verdict;

    /// Every built-in rule.
    fn built_in() -> impl Iterator<Item = &'static BuiltIn> {
        DATA.rule.iter()
    }

    /// Rules that do not match their own examples, with the command line.
    fn wrong_examples() -> impl Iterator<Item = (&'static str, &'static str)> {
        let places = Places { cwd: Path::new("/project"), project: Path::new("/project"), home: "/home/me" };
        let is_about = move |rule: &BuiltIn, line: &str| {
            cp_common::words::split(line).is_ok_and(|words| {
                let arguments = Arguments::read(&words.argv);
                is_named(&rule.commands, arguments.name()) && rule.holds(|clause| clause.holds(&arguments, &places))
            })
        };
        built_in().flat_map(move |rule| {
            let missed = rule.examples.iter().filter(move |line| !is_about(rule, line));
            let wrong = missed.chain(rule.counterexamples.iter().filter(move |line| is_about(rule, line)));
            wrong.map(|line| (rule.id.as_str(), line.as_str()))
        })
    }

    #[test]
    fn rules_match_examples_and_not_counterexamples() {
        assert_eq!(wrong_examples().collect::<Vec<_>>(), []);
        for rule in built_in() {
            assert!(!rule.examples.is_empty() && !rule.counterexamples.is_empty(), "{}", rule.id);
        }
    }

    #[test]
    fn rule_ids_are_unique() {
        let mut ids: Vec<&str> = built_in().map(|rule| rule.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), built_in().count());
    }

    #[test]
    fn manual_lists_every_rule_with_its_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/cp-policy.5");
        let page = fs::read_to_string(page).unwrap().replace("\\-", "-").replace("\\e", "\\").replace("\\&", "");
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut listed = 0;
        for rule in built_in() {
            let entry = words.split(".It Li ").find(|entry| entry.split(' ').next() == Some(&rule.id));
            let entry = entry.unwrap_or_else(|| panic!("{} is not in the manual", rule.id));
            let verdict = if rule.decision == Verdict::Deny { ": denied; " } else { ": asked; " };
            assert!(entry.contains(&format!("{verdict}{}.", rule.reason)), "{}: {entry}", rule.id);
            listed += 1;
        }
        let rules = words.matches(": denied; ").count() + words.matches(": asked; ").count();
        assert!(rules <= listed, "the manual lists {rules} rules, and there are {listed}");
    }
}
