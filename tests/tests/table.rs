//! One table: what `reference` says is what the pages, the environment and the ledgers say.

use std::collections::BTreeSet;
use std::path::Path;

use cp_testkit::{PROGRAMS, Place, repository};
use cp_tests::{check_contract, reference, verbs};
use serde_json::Value;

fn page(name: &str) -> String {
    std::fs::read_to_string(repository().join("man").join(name)).unwrap()
}

/// The options in these lines of a page, as they are typed.
fn options<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let flags = lines.flat_map(|line| {
        let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_start_matches('.')).collect();
        let named = words.windows(2).filter(|pair| pair[0] == "Fl");
        // A line of one macro names several: `.Fl s , m`.
        let more = words.iter().filter(|word| words.contains(&"Fl") && word.starts_with('-') && word.len() > 1);
        named.map(|pair| format!("-{}", pair[1])).chain(more.map(|word| format!("-{word}"))).collect::<Vec<_>>()
    });
    // Two dashes alone end the options.
    flags.map(|flag| flag.trim_end_matches([',', '.', ';']).to_owned()).filter(|flag| flag != "--").collect()
}

/// The options that a page has an item for, or in its synopsis.
fn described(page: &str) -> BTreeSet<String> {
    let synopsis = page.split("\n.Sh ").filter(|section| section.starts_with("SYNOPSIS")).flat_map(str::lines);
    options(page.lines().filter(|line| line.starts_with(".It Fl ")).chain(synopsis))
}

fn names<'a>(reference: &'a Value, member: &'a str) -> impl Iterator<Item = &'a str> {
    let commands = reference["commands"].as_array().unwrap().iter();
    commands.flat_map(|command| command["params"].as_array().unwrap()).filter_map(move |param| param[member].as_str())
}

#[test]
fn a_page_describes_the_options_of_its_program_and_no_others() {
    let overview = options(page("cp-options.7").lines());
    for program in PROGRAMS {
        let reference = reference(program);
        let text = page(&format!("{program}.1"));
        let (named, own) = (options(text.lines()), described(&text));
        let table: BTreeSet<&str> =
            names(&reference, "name").chain(names(&reference, "short")).filter(|name| name.starts_with('-')).collect();
        let missing: Vec<_> =
            table.iter().filter(|name| !named.contains(**name) && !overview.contains(**name)).collect();
        assert!(missing.is_empty(), "neither {program}(1) nor cp-options(7) has {missing:?}");
        let unknown: Vec<_> = own.iter().filter(|name| !table.contains(name.as_str())).collect();
        assert!(unknown.is_empty(), "{program}(1) describes unknown options: {unknown:?}");
    }
}

/// The variables of the items under ENVIRONMENT: the words after `Ev`, up to the next macro of a word.
fn variables(page: &str) -> BTreeSet<String> {
    let section = page.split(".Sh ENVIRONMENT\n").nth(1).unwrap_or_default().split("\n.Sh ").next().unwrap();
    let mut names = BTreeSet::new();
    for line in section.lines().filter(|line| line.starts_with(".It ")) {
        let mut is_name = false;
        for word in line.split_whitespace() {
            match word {
                "Ev" => is_name = true,
                "Ta" | "No" | "Fl" => is_name = false,
                "," => {}
                name if is_name => drop(names.insert(name.to_owned())),
                _ => {}
            }
        }
    }
    names
}

#[test]
fn a_page_has_the_variables_that_its_program_reads() {
    let overview = page("cp-tools.7");
    for program in PROGRAMS {
        let reference = reference(program);
        let rows = reference["environment"].as_object().unwrap();
        let table: BTreeSet<&str> = rows.keys().map(String::as_str).collect();
        assert!(rows.values().all(|description| !description.as_str().unwrap().is_empty()), "{program}");
        let own = variables(&page(&format!("{program}.1")));
        let missing: Vec<_> =
            table.iter().filter(|name| !own.contains(**name) && !overview.contains(&format!("Ev {name}"))).collect();
        assert!(missing.is_empty(), "{program}(1) does not name {missing:?}");
        let unknown: Vec<_> = own.iter().filter(|name| !table.contains(name.as_str())).collect();
        assert!(unknown.is_empty(), "{program} does not read {unknown:?}");
    }
}

/// The events of a ledger that any program may write: its own life, and the audit.
const OF_EVERY_LEDGER: [&str; 5] = ["ledger.open", "ledger.made", "ledger.recovered", "command", "error"];

fn events_below(directory: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            events_below(&path, into);
        } else if path.extension().is_some_and(|end| end == "jsonl") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            into.extend(
                lines.filter(|line| line["seq"].is_u64()).filter_map(|line| Some(line["event"].as_str()?.to_owned())),
            );
        }
    }
}

#[test]
fn what_the_examples_write_on_ledgers_are_the_events_of_the_table() {
    let references: Vec<Value> = PROGRAMS.iter().map(|program| reference(program)).collect();
    let commands: Vec<&Value> = references.iter().flat_map(|all| all["commands"].as_array().unwrap()).collect();
    let list = |command: &Value, member: &str| -> Vec<String> {
        command[member].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let table: BTreeSet<String> = commands.iter().flat_map(|command| list(command, "events")).collect();
    let mut written = BTreeSet::new();
    for command in commands.iter().filter(|command| command["type"] != "query") {
        for example in list(command, "examples") {
            let place = Place::new();
            place.sh(&example);
            events_below(&place.home, &mut written);
        }
    }
    // Chosen by --event in the examples.
    let chosen = ["deploy", "tick"];
    let known = |event: &&String| {
        table.contains(*event) || OF_EVERY_LEDGER.contains(&event.as_str()) || chosen.contains(&event.as_str())
    };
    let unknown: Vec<_> = written.iter().filter(|event| !known(event)).collect();
    assert!(unknown.is_empty(), "no verb says that it writes {unknown:?}");
    assert!(written.intersection(&table).count() >= 15, "{written:?}");
}

#[test]
fn the_table_has_the_short_names_the_defaults_and_what_standard_input_is() {
    let reference = reference("cp-llm");
    let send = &reference["commands"][0];
    let param = |name: &str| {
        send["params"]
            .as_array()
            .unwrap()
            .iter()
            .find(|param| param["name"] == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(param("--system")["short"], "-s");
    assert_eq!(param("--timeout")["default"], "600s");
    assert!(param("--cache").get("default").is_none());
    assert_eq!(param("TEXT")["required"], false);
    assert_eq!(send["stdin"], serde_json::json!(["text", "records", "rows"]));
    for (words, verb) in verbs() {
        let reads = verb["params"].as_array().unwrap().iter().any(|param| param["name"] == "--input");
        assert!(!reads || verb["stdin"] != serde_json::json!([]), "{words}");
    }
}

#[test]
fn reference_can_be_asked_for_one_verb_and_for_some_members() {
    let place = Place::new();
    for program in PROGRAMS {
        let whole = place.sh(&format!("{program} reference"));
        let one = place.sh(&format!("{program} reference --verb doctor"));
        check_contract(&one);
        let data = &one.closing()["data"];
        assert_eq!(
            (data["commands"].as_array().unwrap().len(), data["commands"][0]["path"].as_str()),
            (1, Some("doctor"))
        );
        let schemas: Vec<_> = data["schemas"].as_object().unwrap().keys().collect();
        assert_eq!(schemas, ["doctor", "error"], "{program}");
        assert!(one.stdout.len() * 3 < whole.stdout.len(), "{program}: {} of {}", one.stdout.len(), whole.stdout.len());
        let codes = place.sh(&format!("{program} reference --fields exit_codes"));
        assert_eq!(codes.closing()["data"].as_object().unwrap().keys().collect::<Vec<_>>(), ["exit_codes"]);
    }
    let policy = place.sh("cp-exec reference --verb policy --fields commands").closing();
    assert_eq!(policy["data"]["commands"].as_array().unwrap().len(), 2);
    let main = place.sh("cp-llm reference --verb '' --fields commands").closing();
    assert_eq!(main["data"]["commands"].as_array().unwrap().len(), 1);
    let none = place.sh("cp-log reference --verb qurey");
    check_contract(&none);
    assert_eq!(none.closing()["error"]["details"]["nearest"], "query");
    assert_eq!(place.sh("cp-log reference --fields nonsense").closing()["error"]["code"], "E_USAGE");
}
