//! Argument rules: what the arguments of an allowed command make of it. The strictest verdict wins.
//!
//! Most are rules in a table. An interpreter runs scripts of the execute paths and no code from its arguments. What a wrapper
//! (`env`, `nice`, `xargs` …) runs is judged as if it had been requested.

mod discard;
mod finding;
mod git_config;
mod judge;
mod overwrite;
mod script;
mod sed;
mod sqlite;
mod table;

pub(crate) use self::finding::{Finding, Risk};
pub(crate) use self::judge::{has_rules, judge};
pub(crate) use self::table::{rules as built_in, wrong_example};

#[cfg(test)]
mod spellings;

#[cfg(test)]
mod tests {
    use super::table::{rules, wrong_example};
    use crate::policy::Verdict;

    #[test]
    fn every_built_in_rule_is_about_its_examples_and_nothing_else() {
        assert_eq!(wrong_example(), None);
        for rule in rules() {
            assert!(!rule.examples.is_empty() && !rule.counterexamples.is_empty(), "{}", rule.id);
        }
    }

    #[test]
    fn the_names_of_the_rules_are_unique() {
        let mut ids: Vec<&str> = rules().map(|rule| rule.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rules().count());
    }

    #[test]
    fn the_manual_has_every_built_in_rule_with_its_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/cp-policy.5");
        let page = std::fs::read_to_string(page).unwrap().replace("\\-", "-").replace("\\e", "\\").replace("\\&", "");
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for rule in rules() {
            let entry = words.split(".It Li ").find(|entry| entry.split(' ').next() == Some(rule.id));
            let entry = entry.unwrap_or_else(|| panic!("{} is not in the manual", rule.id));
            let verdict = if rule.verdict == Verdict::Deny { "refused; " } else { "to be confirmed; " };
            assert!(entry.contains(&format!("{verdict}{}.", rule.reason)), "{}: {entry}", rule.id);
        }
    }

    #[test]
    fn a_policys_rule_with_a_wrong_example_is_an_error_that_names_it() {
        let e = crate::policy::parse(
            "[[exec.rule]]\ncommand = \"git\"\nsubcommands = [\"push\"]\ndecision = \"confirm\"\nmatch = [\"git pull\"]\n",
        )
        .unwrap_err();
        assert_eq!(e.message(), "exec.rule 1, about `git`: `git pull` should match and does not");
    }
}
