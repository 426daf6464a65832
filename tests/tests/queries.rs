//! What every query has in common, from what `reference` lists: a new query is covered by being listed.

use cp_testkit::{Outcome, PROGRAMS, Place};
use cp_tests::check_contract;
use serde_json::{Value, json};

/// A query of a program, with an example and the schema of what it prints.
struct Query {
    program: &'static str,
    verb: String,
    example: String,
    schema: Value,
}

fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for program in PROGRAMS {
        let reference = cp_tests::reference(program);
        for command in reference["commands"].as_array().unwrap().iter().filter(|command| command["type"] == "query") {
            let verb = command["path"].as_str().unwrap().to_owned();
            let params = command["params"].as_array().unwrap();
            assert!(params.iter().any(|param| param["name"] == "--fields"), "{program} {verb} has no --fields");
            let schema = reference["schemas"][command["output_schema"].as_str().unwrap()]["json_schema"].clone();
            let examples = command["examples"].as_array().unwrap();
            let to_file = |example: &str| example.rsplit(program).next().is_some_and(|last| last.contains('>'));
            let mut examples = examples.iter().filter_map(Value::as_str);
            let example = examples.find(|example| !example.contains("--fields") && !to_file(example)).unwrap();
            queries.push(Query { program, verb, example: example.to_owned(), schema });
        }
    }
    assert!(queries.len() >= 50, "{}", queries.len());
    queries
}

impl Query {
    /// The example, its last command with `--fields`.
    fn with_fields(&self, fields: &str) -> Outcome {
        let words = format!("{} {}", self.program, self.verb).trim().to_owned();
        let is_outside = |at: &usize| {
            let before = &self.example[..*at];
            before.matches("$(").count() <= before.matches(')').count()
        };
        let places: Vec<usize> = self.example.match_indices(&words).map(|(at, _)| at).filter(is_outside).collect();
        let at = *places.last().unwrap_or_else(|| panic!("{}", self.example));
        let (before, after) = (&self.example[..at], &self.example[at + words.len()..]);
        // Only the last command is heard.
        let last = ["&& ", "; "].iter().filter_map(|separator| Some(before.rfind(separator)? + separator.len())).max();
        let (prelude, before) = before.split_at(last.unwrap_or(0));
        let prelude = prelude.trim_end_matches([' ', '&', ';']);
        let prelude = if prelude.is_empty() { ":" } else { prelude };
        Place::new().sh(&format!("{{ {prelude}; }} >/dev/null\n{before}{words} --fields {fields}{after}"))
    }

    /// The names of the members that can be asked for, and whether they are those of items of a page.
    fn known(&self) -> (Vec<String>, bool) {
        let members = &self.schema["properties"];
        let of_items = members["items"].is_object() && members["has_more"].is_object();
        let mut object = if of_items { &members["items"]["items"] } else { &self.schema };
        if let Some(place) = object["$ref"].as_str() {
            object = self.schema.pointer(place.trim_start_matches('#')).unwrap();
        }
        let names = object["properties"].as_object().map(|names| names.keys().cloned().collect()).unwrap_or_default();
        (names, of_items)
    }
}

#[test]
fn every_query_prints_only_the_fields_that_were_asked_for() {
    let mut seen = 0;
    for query in queries() {
        let what = format!("{} {}", query.program, query.verb);
        let (known, of_items) = query.known();
        let asked = known.first().unwrap_or_else(|| panic!("{what}: the schema has no members"));
        let ran = query.with_fields(asked);
        assert_eq!(ran.status, 0, "{what}: {} {}", ran.stdout, ran.stderr);
        check_contract(&ran);
        for line in ran.records().iter().filter(|line| line["type"] != "summary") {
            let objects =
                if of_items { line["data"]["items"].as_array().unwrap().clone() } else { vec![line["data"].clone()] };
            for object in objects {
                let names: Vec<&String> = object.as_object().unwrap().keys().collect();
                assert!(
                    names.iter().all(|name| *name == asked || *name == "_untrusted" || *name == "index"),
                    "{what}: {names:?}"
                );
                seen += usize::from(names.contains(&asked));
            }
        }
    }
    assert!(seen >= 45, "only {seen} queries showed the member");
}

#[test]
fn every_query_refuses_a_field_that_its_output_cannot_have() {
    for query in queries() {
        let ran = query.with_fields("no_such_field");
        check_contract(&ran);
        let error = &ran.closing()["error"];
        let what = format!("{} {}", query.program, query.verb);
        assert_eq!(error["code"], "E_USAGE", "{what}: {}", ran.stdout);
        assert!(error["details"]["known"].as_array().is_some_and(|known| !known.is_empty()), "{what}: {error}");
    }
}

#[test]
fn today_begins_at_the_first_moment_of_the_local_day() {
    let place = Place::new();
    // Beirut sets its clock at midnight on to 01:00, and Havana at 01:00 back to midnight.
    for (zone, before, first) in [
        ("America/New_York", "2025-11-03T04:59:59Z", "2025-11-03T05:00:00Z"),
        ("Asia/Beirut", "2025-03-29T21:59:59Z", "2025-03-29T22:00:00Z"),
        ("America/Havana", "2025-11-02T03:59:59Z", "2025-11-02T04:00:00Z"),
    ] {
        let line = format!(
            "rm -f L.jsonl; for now in {before} {first}; do CP_NOW=$now cp-log append -f L.jsonl hi >/dev/null; done
            CP_NOW={first} TZ={zone} cp-log query L.jsonl --since today | tail -n 1 | jq .data.count"
        );
        assert_eq!(place.sh(&line).success().stdout, "1\n", "{zone}");
    }
}

#[test]
fn every_limit_refuses_zero_and_every_list_names_its_order() {
    let (mut limits, mut lists) = (0, 0);
    for program in PROGRAMS {
        for command in cp_tests::reference(program)["commands"].as_array().unwrap() {
            let verb = command["path"].as_str().unwrap();
            let has = |name: &str| command["params"].as_array().unwrap().iter().any(|param| param["name"] == name);
            if has("--cursor") {
                lists += 1;
                assert!(command["default_sort"].is_string(), "{program} {verb} does not name its order");
            }
            if has("--limit") {
                limits += 1;
                let about_limit = |limit: &str| {
                    let ran = Place::new().sh(&format!("{program} {verb} --limit {limit} </dev/null"));
                    ran.status == 2 && ran.stderr.contains("--limit")
                };
                assert!(about_limit("0"), "{program} {verb} takes --limit 0");
                // A follower without an end would wait for more than one line.
                assert!(verb == "follow" || !about_limit("1"), "{program} {verb} refuses --limit 1");
            }
        }
    }
    assert!(limits >= 8 && lists >= 7, "{limits} {lists}");
}

#[test]
fn list_has_newest_first_and_times_in_seconds() {
    let place = Place::new();
    place.policy(
        "[exec]\nallowed_commands = [\"touch\"]\n[[exec.rule]]\ncommand = \"touch\"\ndecision = \"confirm\"\n[paths]\nwrite = [\".\"]\n",
    );
    assert_eq!(place.sh("cp-exec approve --format text").success().stdout, "no approval is pending\n");
    for name in ["one", "two"] {
        let call = json!({"tool_calls": [{"name": "shell", "input": {"argv": ["touch", name]}}]});
        let script = place.root.write(name, call.to_string());
        place.sh("cp-session start").success();
        let script = script.display();
        assert_eq!(place.sh(&format!("cp-toolloop --backend stub --stub-script {script} -- go")).status, 9);
        place.sh(&format!("echo {name} | cp-llm batch submit --backend stub")).success();
        // The time of an approval is in seconds.
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    for (list, time) in [
        ("cp-session list", "updated_at"),
        ("cp-toolloop runs", "started_at"),
        ("cp-exec approve", "asked_at"),
        ("cp-llm batch status", "created_at"),
    ] {
        let ran = place.sh(list).success();
        let page = ran.closing()["data"]["items"].as_array().cloned().unwrap_or_else(|| ran.of("item"));
        let times: Vec<&str> = page.iter().map(|item| item[time].as_str().unwrap()).collect();
        assert!(times.len() == 2 && times[0] > times[1], "{list}: {ran:?}");
        let text = place.sh(&format!("{list} --format text")).success().stdout;
        assert!(text.lines().count() == 2, "{text}");
        assert!(text.split_whitespace().all(|word| !word.ends_with('Z') || !word.contains('.')), "{text}");
    }
}
