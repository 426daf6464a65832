//! The public contract of command lines for agents, tested from outside: the description of a program, its output after
//! success and failure, how a change is previewed and confirmed, how lists are paged and sets are answered.

use std::collections::BTreeSet;

use cp_testkit::{PROGRAMS, Place, repository};
use cp_tests::reference;
use serde_json::Value;

fn file(name: &str) -> Value {
    let text = std::fs::read_to_string(repository().join("common/contract").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The contract, as it is published.
fn contract() -> Value {
    file("contract.json")
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap_or_else(|| panic!("{object}")).keys().map(String::as_str).collect()
}

#[track_caller]
fn has_all(object: &Value, names: &Value, what: &str) {
    for name in words(names) {
        assert!(object.get(name).is_some(), "{what} has no `{name}`: {object}");
    }
}

/// The single line that a program answers with, its envelope checked member by member.
#[track_caller]
fn answer(place: &Place, line: &str) -> Value {
    let (ran, contract) = (place.sh(line), contract());
    let envelope = &contract["envelope"];
    let shape = ran.only();
    let mut found = keys(&shape);
    found.remove("type");
    let expected = if ran.status == 0 { &envelope["success_keys"] } else { &envelope["error_keys"] };
    assert_eq!(found, words(expected).into_iter().collect(), "{line}");
    assert_eq!(shape["schema_version"], envelope["schema_version_value"], "{line}");
    assert_eq!(shape["ok"], ran.status == 0, "{line}");
    let optional = words(&envelope["meta_optional_keys"]);
    has_all(&shape["meta"], &envelope["meta_required_keys"], line);
    let required = words(&envelope["meta_required_keys"]);
    assert!(keys(&shape["meta"]).iter().all(|key| required.contains(key) || optional.contains(key)), "{shape}");
    if let Some(error) = shape.get("error") {
        assert_eq!(keys(error), words(&envelope["error_object_keys"]).into_iter().collect(), "{line}");
        let row = &contract["error_codes"]["core"][error["code"].as_str().unwrap()];
        assert_eq!((&row["exit"], &row["retryable"]), (&ran.status.into(), &error["retryable"]), "{line}: {error}");
    }
    shape
}

#[track_caller]
fn data(place: &Place, line: &str) -> Value {
    let mut answer = answer(place, line);
    assert_eq!(answer["ok"], true, "{line}: {answer}");
    answer["data"].take()
}

#[track_caller]
fn code(place: &Place, line: &str) -> String {
    answer(place, line)["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_program_describes_itself() {
    let contract = contract();
    let asked = &contract["self_description"];
    for program in PROGRAMS {
        let place = Place::new();
        let reference = data(&place, &format!("{program} reference"));
        has_all(&reference, &asked["reference"]["required_top_keys"], program);
        has_all(&reference["release_readiness"], &asked["reference"]["release_readiness_required_keys"], program);
        assert_eq!(reference["tool"], program);
        assert_eq!(reference["exit_codes"], contract["exit_codes"]["table"], "{program}");
        let mut rows = contract["error_codes"]["core"].as_object().unwrap().clone();
        rows.extend(file("contract-ext.json")["error_codes"].as_object().unwrap().clone());
        assert_eq!(&reference["error_codes"], &Value::Object(rows), "{program}");
        let statuses = keys(&reference["exit_codes"]);
        for row in reference["error_codes"].as_object().unwrap().values() {
            assert!(statuses.contains(row["exit"].to_string().as_str()), "{program}: {row}");
        }

        let context = data(&place, &format!("{program} context"));
        has_all(&context, &asked["context"]["required_top_keys"], program);
        has_all(&context["credentials"], &asked["context"]["credentials_required_subkeys"], program);
        assert!(context["credentials"]["configured"].is_boolean(), "{program}: {context}");
        assert_eq!(context["version"], reference["version"], "{program}");

        let doctor = data(&place, &format!("{program} doctor"));
        let (required, optional) =
            (&asked["doctor"]["check_item_required_keys"], &asked["doctor"]["check_item_optional_keys"]);
        let allowed: BTreeSet<&str> = words(required).into_iter().chain(words(optional)).collect();
        let checks = doctor["checks"].as_array().unwrap();
        assert!(checks.iter().any(|check| check["check"] == "release_readiness"), "{program}");
        for check in checks {
            has_all(check, required, program);
            assert!(keys(check).is_subset(&allowed), "{program}: {check}");
        }

        let changelog = data(&place, &format!("{program} changelog"));
        has_all(&changelog, &asked["changelog"]["required_data_keys"], program);
        assert_eq!(changelog["current_version"], reference["version"], "{program}");
        let sections = ["added", "changed", "fixed", "deprecated", "removed", "security"];
        for entry in changelog["entries"].as_array().unwrap() {
            assert!(entry["version"].is_string() && entry.get("date").is_some(), "{program}: {entry}");
            assert!(keys(&entry["changes"]).iter().all(|section| sections.contains(section)), "{program}: {entry}");
        }
    }
}

/// Whether a member is named as the contract names members, or as the format says that an export is in.
fn is_snake_case(name: &str) -> bool {
    if ["payloadType", "resourceLogs", "resourceSpans"].contains(&name) {
        return true;
    }
    let name = name.strip_prefix("x-").or_else(|| name.strip_prefix('_')).unwrap_or(name);
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The members of a schema's objects, at any depth.
fn properties<'a>(schema: &'a Value, into: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(members)) = object.get("properties") {
                into.extend(members.keys().map(String::as_str));
            }
            object.values().for_each(|below| properties(below, into));
        }
        Value::Array(list) => list.iter().for_each(|below| properties(below, into)),
        _ => {}
    }
}

#[test]
fn members_are_named_alike() {
    assert_eq!(contract()["naming"]["convention"], "snake_case");
    for program in PROGRAMS {
        let reference = reference(program);
        let mut names = BTreeSet::new();
        properties(&reference["schemas"], &mut names);
        assert!(names.len() > 30, "{program}: {names:?}");
        let other: Vec<_> = names.iter().filter(|name| !is_snake_case(name)).collect();
        assert!(other.is_empty(), "{program}: {other:?}");
        for command in reference["commands"].as_array().unwrap() {
            for name in ["path", "type", "description", "params", "output_schema", "examples"] {
                assert!(command.get(name).is_some(), "{program}: no {name} in {command}");
            }
            assert!(words(&command["outputs"]).contains(&command["output_schema"].as_str().unwrap()), "{command}");
            has_all(&reference["schemas"], &command["outputs"], "schemas");
        }
    }
    assert!(!is_snake_case("camelCase") && !is_snake_case("kebab-case"));
}

#[test]
fn every_wrong_command_line_is_an_envelope() {
    for program in PROGRAMS {
        let place = Place::new();
        for wrong in [
            "--no-such-option",
            "reference --no-such-option",
            "reference surplus",
            "completions",
            "context --format xml",
        ] {
            assert_eq!(code(&place, &format!("{program} {wrong}")), "E_USAGE", "{program} {wrong}");
        }
    }
}

#[test]
fn options_of_output_are_understood_everywhere() {
    for program in PROGRAMS {
        let place = Place::new();
        let plain = data(&place, &format!("{program} context"));
        for options in ["--json", "--compact", "--json --compact", "--format json"] {
            assert_eq!(data(&place, &format!("{program} context {options}")), plain, "{program} {options}");
        }
        let some = data(&place, &format!("{program} context --fields version,home"));
        assert_eq!(keys(&some), BTreeSet::from(["home", "version"]), "{program}");
        assert_eq!(code(&place, &format!("{program} context --fields nonsense")), "E_USAGE");
        let ran = place.sh(&format!("{program} context --json"));
        assert_eq!(ran.stdout.lines().count(), 1, "{program}");
        assert_eq!(ran.stderr, "", "{program}");
    }
}

#[test]
fn a_set_is_answered_item_by_item_with_a_summary() {
    let (place, batch) = (Place::new(), &contract()["batch"]);
    let session = data(&place, "cp-session start")["session_id"].as_str().unwrap().to_owned();
    let line = format!("cp-session delete --dangerous --ids {session},NOSUCH --ids {session}");
    assert_eq!(code(&place, &format!("cp-session delete {session}")), "E_CONFIRMATION_REQUIRED");
    let shown = data(&place, &format!("{line} --dry-run"));
    let (change, failed) = (&shown["preview"]["changes"], &shown["preview"]["failed"][0]);
    assert_eq!((change.as_array().unwrap().len(), &change[0]["action"]), (1, &"delete".into()), "{shown}");
    assert_eq!((&change[0]["id"], &failed["target"]), (&session.as_str().into(), &"NOSUCH".into()), "{shown}");
    assert_eq!(failed["error"]["code"], "E_NOT_FOUND");
    let token = shown["confirm_token"].as_str().unwrap();
    let done = data(&place, &format!("{line} --confirm {token}"));
    assert_eq!(code(&place, &format!("{line} --confirm {token}")), "E_CONFLICT");
    let items = done["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "each once: {done}");
    for item in items {
        has_all(item, &batch["item_required_keys"], "an item");
        if item["ok"] == false {
            has_all(&item[batch["item_error_key"].as_str().unwrap()], &batch["item_error_shape"], "its error");
        }
    }
    has_all(&done["summary"], &batch["summary_required_keys"], "the summary");
    let count = |name: &str| done["summary"][name].as_u64().unwrap();
    assert_eq!((count("total"), count("succeeded"), count("failed")), (2, 1, 1));
    assert_eq!(code(&place, "cp-session delete --dangerous --dry-run"), "E_VALIDATION");
}

#[test]
fn a_list_is_paged_without_loss() {
    let (place, contract) = (Place::new(), contract());
    for _ in 0..5 {
        data(&place, "cp-session start");
    }
    let all = data(&place, "cp-session list --limit 100");
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = data(&place, &format!("cp-session list --limit 2 {cursor}"));
        has_all(&page, &contract["pagination"]["cursor_style"], "a page");
        let items = page["items"].as_array().unwrap();
        assert_eq!(page["count"].as_u64(), Some(items.len() as u64), "{page}");
        assert_eq!(page["has_more"], page["next_cursor"].is_string(), "{page}");
        seen.extend(items.clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("--cursor '{next}'"),
            None => break,
        }
    }
    assert_eq!(&seen, all["items"].as_array().unwrap());
    assert_eq!(seen.len(), 5);
}

#[test]
fn every_list_has_the_members_of_pages() {
    let (contract, mut pages) = (contract(), 0);
    for program in PROGRAMS {
        let reference = reference(program);
        for command in reference["commands"].as_array().unwrap() {
            let takes = |name: &str| command["params"].as_array().unwrap().iter().any(|param| param["name"] == name);
            let schema = &reference["schemas"][command["output_schema"].as_str().unwrap()]["json_schema"];
            if takes("--cursor") && schema["properties"].get("items").is_some() {
                let what = format!("{program} {}", command["path"]);
                has_all(&schema["properties"], &contract["pagination"]["cursor_style"], &what);
                pages += 1;
            }
        }
    }
    assert!(pages >= 3, "{pages}");
}
