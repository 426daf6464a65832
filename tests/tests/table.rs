//! One table: what `reference` says is what the pages, the environment and the ledgers say.

use std::collections::BTreeSet;

use cp_testkit::{PROGRAMS, Place, repository};
use cp_tests::{check_contract, reference, verbs, verbs_of};
use serde_json::json;

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

#[test]
fn a_page_describes_the_options_of_its_program_and_no_others() {
    let overview = options(page("cp-options.7").lines());
    for program in PROGRAMS {
        let text = page(&format!("{program}.1"));
        let (named, own) = (options(text.lines()), described(&text));
        let both = verbs_of(program).flat_map(|verb| verb.names("name").chain(verb.names("short")));
        let table: BTreeSet<&str> = both.filter(|name| name.starts_with('-')).collect();
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
        let rows = reference(program)["environment"].as_object().unwrap();
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

#[test]
fn the_table_has_the_short_names_the_defaults_and_what_standard_input_is() {
    let send = verbs_of("cp-llm").next().unwrap();
    for (name, member, value) in [
        ("--system", "short", json!("-s")),
        ("--timeout", "default", json!("600s")),
        ("--cache", "default", json!(null)),
        ("TEXT", "required", json!(false)),
    ] {
        let param = send.params().iter().find(|param| param["name"] == name).unwrap();
        assert_eq!(param[member], value, "{name}");
    }
    assert_eq!(send.texts("stdin"), ["text", "records", "rows"]);
    for verb in verbs() {
        assert!(!verb.has("--input") || !verb.texts("stdin").is_empty(), "{verb:?}");
    }
}

/// With an optional value, `--option FILE` would take FILE for an operand.
#[test]
fn an_option_with_a_value_is_refused_without_one() {
    let place = Place::new();
    let mut refused = 0;
    for verb in verbs() {
        let options = verb.params().iter().filter(|param| param["name"].as_str().unwrap().starts_with("--"));
        for option in options.filter(|param| param["type"] != "flag").map(|param| param["name"].as_str().unwrap()) {
            let ran = place.program(verb.program).args(verb.path().split_whitespace()).arg(option).run();
            let message = &ran.closing()["error"]["message"];
            let says = message.as_str().is_some_and(|message| message.contains(option) && message.contains("value"));
            assert!(ran.status == 2 && says, "{} {option}: {}", verb.words(), ran.stdout);
            refused += 1;
        }
    }
    assert!(refused > 300, "{refused}");
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
