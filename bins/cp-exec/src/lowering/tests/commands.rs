//! The share of what agents type that is lowered, and the same lines, changed, against bash.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::super::refusal::Rule;
use super::super::{Environment, lower};
use super::lines::{Dice, mutated};

/// Commands as agents type them, by kind of session: with those of `built` the parser was made, those of `held` were put aside.
pub(super) fn commands(part: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/commands").join(part).with_extension("jsonl");
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<BTreeMap<String, String>>(line).unwrap());
    rows.map(|mut row| row.remove("command").unwrap()).collect()
}

/// The share of commands that are lowered, and what the others ask for.
fn share(part: &str) -> f64 {
    let variables = BTreeMap::from(["PATH", "TMPDIR", "USER"].map(|name| (name.to_owned(), "/tmp/x".to_owned())));
    let environment = Environment { home: "/home/ann", directory: "/work", variables: &variables };
    let commands = commands(part);
    let mut refused: BTreeMap<Rule, Vec<&str>> = BTreeMap::new();
    for command in &commands {
        if let Err(refusal) = lower(command, &environment) {
            refused.entry(refusal.rule).or_default().push(command);
        }
    }
    let count: usize = refused.values().map(Vec::len).sum();
    #[expect(clippy::cast_precision_loss, reason = "hundreds of commands")]
    let share = 1.0 - count as f64 / commands.len() as f64;
    println!("{part}: {:.1} % of {} commands are lowered", share * 100.0, commands.len());
    for (rule, lines) in refused {
        println!("    {} {}: {lines:?}", lines.len(), rule.name());
    }
    share
}

#[test]
fn nearly_all_that_agents_type_is_lowered() {
    let (built, held) = (share("built"), share("held"));
    assert!(
        built >= 0.95 && held >= 0.95,
        "lowered: {built:.3} of those it was built with, {held:.3} of those held back"
    );
}

#[test]
fn what_agents_type_does_what_bash_does_changed_or_not() {
    // Without slashes no line can name a file outside, and no program.
    let all = [commands("built"), commands("held")].concat();
    let safe: Vec<String> =
        all.iter().map(|command| command.replace('/', "_").replace("_dev_null", "/dev/null")).collect();
    super::differential::compare(3000, 5, |seed| {
        let mut dice = Dice::new(seed + 7);
        let line = &safe[dice.below(safe.len())];
        (0..dice.below(3)).fold(line.clone(), |line, _| mutated(&mut dice, &line))
    });
}
