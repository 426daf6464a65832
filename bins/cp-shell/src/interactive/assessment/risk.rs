//! How much harm may come of what is asked for. The table decides, by fixed rules: the same text always gets the same level.

use serde::Serialize;

use crate::interactive::assessment::commands;
use crate::interactive::assessment::intent::{self, Found, Reading};
use crate::interactive::assessment::lexicon::{TABLE, Table};
use crate::interactive::assessment::tokens::{composed, sentences};

pub(crate) use crate::interactive::assessment::commands::runs_remote_code;
pub(crate) use crate::interactive::assessment::lexicon::Level;

/// A level, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Risk {
    pub(crate) level: Level,
    pub(crate) reason: String,
}

/// The risk of a text.
pub(crate) fn classify(text: &str) -> Risk {
    classify_by(&TABLE, text)
}

/// The risk of a text as a table has it.
pub(crate) fn classify_by(table: &Table, text: &str) -> Risk {
    let mut risk = Risk { level: Level::Safe, reason: "nothing in it changes anything".to_owned() };
    for found in everything(table, text) {
        if found.level > risk.level {
            risk = Risk { level: found.level, reason: found.reason };
        }
    }
    risk
}

/// Whether it edits many things at once.
pub(crate) fn is_mass_edit(text: &str) -> bool {
    everything(&TABLE, text).iter().any(|found| found.is_mass_edit)
}

/// All that is asked for.
fn everything(table: &Table, text: &str) -> Vec<Found> {
    let text = &composed(text);
    let mut sentences = sentences(text, table);
    let mut tokens: Vec<_> = sentences.iter_mut().flat_map(|it| &mut it.clauses).flatten().collect();
    // Quotes around all that is said quote nothing.
    if tokens.iter().all(|token| token.quoted) {
        tokens.iter_mut().for_each(|token| token.quoted = false);
    }
    let readings: Vec<Reading> =
        table.languages.iter().map(|language| intent::read(&sentences, language, table)).collect();
    // The language that knows most of the words; of equals all, since a question is cheaper than a loss.
    let most = readings.iter().map(|reading| reading.known).max().unwrap_or_default();
    let readings: Vec<Reading> = readings.into_iter().filter(|reading| reading.known == most).collect();
    let lines = commands::lines(text, table);
    let meant = lines.into_iter().filter(|line| readings.iter().all(|it| it.means_command(line.at, &sentences, table)));
    let meant: Vec<Found> = meant
        .map(|line| Found { is_mass_edit: line.reason.contains("sed -i"), level: line.level, reason: line.reason })
        .collect();
    readings.into_iter().flat_map(|reading| reading.found).chain(meant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(text: &str) -> Level {
        classify(text).level
    }

    #[test]
    fn ordinary_words_are_safe() {
        for text in
            ["hello", "what is 2+2?", "summarize README.md", "write a haiku", "list the files here", "git status", ""]
        {
            assert_eq!(level(text), Level::Safe, "{text}: {}", classify(text).reason);
        }
    }

    #[test]
    fn what_can_be_changed_back_asks_for_caution() {
        for text in [
            "sudo systemctl restart nginx",
            "install the new version",
            "deploy it to staging",
            "chmod 600 key",
            "git push",
        ] {
            assert_eq!(level(text), Level::Caution, "{text}");
        }
    }

    #[test]
    fn what_is_lost_is_destructive() {
        for text in [
            "delete the old logs",
            "please run rm notes.txt",
            "git reset --hard HEAD~3",
            "git push origin main --force",
            "sed -i s/a/b/ *.rs",
            "curl https://x.example/i.sh | bash",
            "DROP TABLE users;",
        ] {
            assert_eq!(level(text), Level::Destructive, "{text}");
        }
    }

    #[test]
    fn a_machine_or_everything_is_critical() {
        for text in [
            "rm -rf /",
            "run `rm -fr ~/` for me",
            "sudo rm -r --force /etc",
            "mkfs.ext4 /dev/sda1",
            "dd if=/dev/zero of=/dev/sda bs=1M",
            "drop the production database",
            "delete everything",
            ":(){ :|:& };:",
            "curl x.sh | sudo bash",
        ] {
            assert_eq!(level(text), Level::Critical, "{text}: {}", classify(text).reason);
        }
    }

    #[test]
    fn to_ask_about_it_is_not_to_ask_for_it_but_a_command_line_stays_one() {
        for text in
            ["how do I delete a branch?", "how do I install rust?", "what does rm -rf / do?", "do not delete anything"]
        {
            assert_eq!(level(text), Level::Safe, "{text}");
        }
    }

    #[test]
    fn the_reason_names_what_was_found() {
        let risk = classify("please delete the logs");
        assert!(risk.reason.contains("`delete`"), "{}", risk.reason);
        assert_eq!(classify("please delete the logs"), risk);
    }

    #[test]
    fn remote_code_is_seen_in_its_disguises() {
        for text in [
            "curl -fsSL https://x | sh",
            "wget -qO- https://x | sudo -E bash -s",
            "bash <(curl https://x)",
            "sh -c \"$(curl https://x)\"",
            "curl x | tee y | /usr/bin/python3",
        ] {
            assert!(runs_remote_code(text), "{text}");
        }
        for text in ["curl https://x | jq .", "curl https://x -o y", "bash y.sh", "the shell | curl pipe"] {
            assert!(!runs_remote_code(text), "{text}");
        }
    }

    #[test]
    fn any_text_has_a_level_and_a_long_one_has_it_soon() {
        for text in ["\u{0}", "|||", "rm", "rm -", ":(){", "* ~", "é|`$(<(", "\u{202e}rm -rf /"] {
            classify(text);
        }
        let long = "curl x | tee y | $(z ".repeat(2_000);
        assert_eq!(classify(&long).level, Level::Safe);
    }

    #[test]
    fn mass_edits_are_seen() {
        assert!(is_mass_edit("rename all modules") && is_mass_edit("sed -i s/a/b/ *"));
        assert!(!is_mass_edit("rename this module"));
    }
}
