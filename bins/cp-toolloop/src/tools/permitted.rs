//! What the policy of a home lets commands do, in words for a model. cp-exec decides; this spares the model to find out by refusals.

use cp_common::coprocess::ask;
use cp_common::{Context, Result};
use serde_json::Value;

/// How many commands or directories are named.
const MOST: usize = 60;

/// The names that may run, and where may be written.
#[derive(Debug, Default)]
pub(super) struct Permitted {
    commands: Vec<String>,
    write: Vec<String>,
}

impl Permitted {
    /// What the policy in force says.
    pub(super) fn of(context: &Context) -> Result<Self> {
        let shown: Value = ask("cp-exec", &["policy", "show"], b"", context)?.data()?;
        let list = |pointer: &str| -> Vec<String> {
            let items = shown.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let restricted = list("/policy/exec/restricted_commands");
        let mut commands = list("/policy/exec/allowed_commands");
        commands.retain(|name| !restricted.contains(name));
        Ok(Self { commands, write: list("/policy/paths/write") })
    }

    pub(super) fn may_run(&self) -> String {
        if self.commands.is_empty() {
            return "The policy allows no command.".to_owned();
        }
        format!("Allowed: {}; some of their arguments are refused.", named(&self.commands))
    }

    pub(super) fn may_write(&self) -> String {
        if self.write.is_empty() {
            return "Nothing can be written.".to_owned();
        }
        let place = |path: &String| if path == "." { "the working directory".to_owned() } else { path.clone() };
        let directories: Vec<String> = self.write.iter().map(place).collect();
        format!("Files can be written below {}.", named(&directories))
    }
}

fn named(names: &[String]) -> String {
    let (first, rest) = names.split_at(names.len().min(MOST));
    let first = first.join(", ");
    if rest.is_empty() { first } else { format!("{first} and {} more", rest.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_and_an_empty_one_said() {
        let names = |count: usize| Permitted { commands: vec!["x".to_owned(); count], write: vec![".".to_owned()] };
        assert_eq!(names(2).may_run(), "Allowed: x, x; some of their arguments are refused.");
        assert!(names(MOST + 3).may_run().contains("x and 3 more"));
        assert_eq!(names(1).may_write(), "Files can be written below the working directory.");
        assert_eq!(Permitted::default().may_run(), "The policy allows no command.");
        assert_eq!(Permitted::default().may_write(), "Nothing can be written.");
    }
}
