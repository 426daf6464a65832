//! `sqlite3`: a line that begins with a dot is a command of the shell, and any beginning of its name will do.

use crate::arguments::Arguments;

/// Commands that show something, or how it is shown.
const HARMLESS: &[&str] = &[
    "bail",
    "changes",
    "databases",
    "dbinfo",
    "echo",
    "eqp",
    "exit",
    "explain",
    "fullschema",
    "headers",
    "help",
    "indexes",
    "limit",
    "lint",
    "mode",
    "nullvalue",
    "parameter",
    "print",
    "quit",
    "schema",
    "separator",
    "show",
    "stats",
    "tables",
    "timeout",
    "timer",
    "version",
    "width",
];

/// Words of SQL that load code, or touch files of any name.
const SQL: &[&str] = &["load_extension", "edit(", "writefile", "readfile", "fts3_tokenizer"];

/// Why this `sqlite3` may not run, if it may not.
pub(super) fn objection(arguments: &Arguments<'_>) -> Option<String> {
    if arguments.name() != "sqlite3" {
        return None;
    }
    if arguments.has_option(&["-init"]) {
        return Some("`sqlite3`: a file of commands cannot be checked".to_owned());
    }
    let operands = arguments.operands().map(|operand| operand.word).skip(1);
    let texts: Vec<&str> = operands.chain(arguments.values_of(&["-cmd"])).collect();
    // A database alone, with its commands on standard input.
    if texts.is_empty() && arguments.operands().next().is_some() {
        return Some("`sqlite3` without a statement runs its standard input".to_owned());
    }
    for line in texts.iter().flat_map(|text| text.lines()) {
        let Some(command) = line.trim_start().strip_prefix('.') else { continue };
        let name = command.split_ascii_whitespace().next().unwrap_or_default();
        if !HARMLESS.contains(&name) {
            return Some(format!("`sqlite3`: `.{name}` is a command that can run a program or write a file"));
        }
        if command.contains('|') {
            return Some("`sqlite3`: a `|` runs a program".to_owned());
        }
    }
    let called = SQL.iter().find(|word| texts.iter().any(|text| text.to_ascii_lowercase().contains(**word)));
    called.map(|word| format!("`sqlite3`: `{word}` loads code, or touches files of any name"))
}

#[cfg(test)]
mod tests {
    use super::objection;
    use crate::arguments::Arguments;

    #[test]
    fn what_leaves_the_database_is_found_by_any_beginning_of_its_name() {
        let objects = |line: &str| objection(&Arguments::read(&cp_common::words::split(line).unwrap().argv)).is_some();
        for line in [
            "sqlite3 a '.shell id'",
            "sqlite3 a '.sh id'",
            "sqlite3 a ' .sy id'",
            "sqlite3 a 'select 1;\n.once |id'",
            "sqlite3 a -cmd '.sh id' 'select 1'",
            "sqlite3 -cmd '.sh id' a",
            "sqlite3 a .read\\ x",
            "sqlite3 a 'select LOAD_EXTENSION(1)'",
            "sqlite3 a \"select writefile('x', 1)\"",
            "sqlite3 -init x a",
            "sqlite3 a",
        ] {
            assert!(objects(line), "{line}");
        }
        for line in
            ["sqlite3 a 'select 1'", "sqlite3 -header a .tables", "sqlite3 -version", "sqlite3 -csv a 'select .5'"]
        {
            assert!(!objects(line), "{line}");
        }
    }
}
