//! The public contract of command lines for agents, tested from outside: the description of a program, how a change of
//! a set is previewed, confirmed and answered, how lists are paged, and the names of members.

use std::collections::BTreeSet;

use cp_ledger::proof::note::Signer;
use cp_testkit::{PROGRAMS, Place};
use cp_tests::{check_contract, codes, contract, keys, reference, verbs, words};
use serde_json::Value;

#[track_caller]
fn has_all(object: &Value, names: &Value, what: &str) {
    for name in words(names) {
        assert!(object.get(name).is_some(), "{what} has no `{name}`: {object}");
    }
}

/// The data of the single line that a program answers with.
#[track_caller]
fn data(place: &Place, line: &str) -> Value {
    let ran = place.sh(line).success();
    check_contract(&ran);
    ran.only()["data"].take()
}

#[track_caller]
fn code(place: &Place, line: &str) -> String {
    let ran = place.sh(line);
    check_contract(&ran);
    ran.only()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn program_describes_itself_as_the_contract_asks() {
    let asked = &contract()["self_description"];
    for program in PROGRAMS {
        let place = Place::new();
        let about = |verb: &str| data(&place, &format!("{program} {verb}"));
        let (reference, context) = (about("reference"), about("context"));
        let (doctor, changelog) = (about("doctor"), about("changelog"));
        for (object, names) in [
            (&reference, "/reference/required_top_keys"),
            (&reference["release_readiness"], "/reference/release_readiness_required_keys"),
            (&context, "/context/required_top_keys"),
            (&context["credentials"], "/context/credentials_required_subkeys"),
            (&changelog, "/changelog/required_data_keys"),
        ] {
            has_all(object, asked.pointer(names).unwrap(), program);
        }
        assert_eq!((&reference["tool"], &reference["error_codes"]), (&program.into(), codes()));
        assert_eq!(reference["exit_codes"], contract()["exit_codes"]["table"], "{program}");
        assert!(context["credentials"]["configured"].is_boolean(), "{program}: {context}");
        assert_eq!([&context["version"], &changelog["current_version"]], [&reference["version"]; 2], "{program}");

        let [required, optional] =
            ["required", "optional"].map(|which| &asked["doctor"][format!("check_item_{which}_keys")]);
        let checks = doctor["checks"].as_array().unwrap();
        for check in checks {
            has_all(check, required, program);
            assert!(keys(check).iter().all(|key| words(required).contains(key) || words(optional).contains(key)));
        }
        let ready = checks.iter().find(|check| check["check"] == "release_readiness").unwrap();
        let expected = match reference["release_readiness"]["level"].as_str() {
            Some("stable") => "pass",
            Some("beta") => "warn",
            _ => "fail",
        };
        assert_eq!((&ready["status"], &ready["fix"]), (&expected.into(), &Value::Null), "{program}");
        assert_eq!(checks.last(), Some(ready), "{program}");
        place.work.write("file", "");
        let failed = place.sh(&format!("{program} doctor --home file")).failed(1, "E_PARTIAL");
        assert_eq!(failed["details"]["checks"][0]["status"], "fail", "{program}");

        let sections = ["added", "changed", "fixed", "deprecated", "removed", "security"];
        for entry in changelog["entries"].as_array().unwrap() {
            assert!(entry["version"].is_string() && entry.get("date").is_some(), "{program}: {entry}");
            assert!(keys(&entry["changes"]).iter().all(|section| sections.contains(section)), "{program}: {entry}");
        }
    }
}

#[test]
fn update_answers_as_the_contract_asks() {
    let asked = &contract()["self_description"]["update"];
    let (place, signer) = (Place::new(), Signer::new("test-release", &[7; 32]));
    let archive = format!("cp-tools-9.9.9-{}-unknown-linux-musl.tar.gz", std::env::consts::ARCH);
    let note = signer.sign(&format!("cp-tools/release\n9.9.9\ninfo\n{:064}  {archive}\n", 0));
    place.work.write("latest", "9.9.9");
    place.work.write("v9.9.9/SHA256SUMS.note", note.to_string());
    let line = format!("cp-shell update --from . --trust {}", signer.verifier().to_text());
    let available = data(&place, &format!("{line} --check"));
    has_all(&available, &asked["required_keys_on_available"], "an update");
    let command = available[asked["command_field"].as_str().unwrap()].is_string();
    assert_eq!((&available["update_available"], command), (&true.into(), true), "{available}");
    for (options, status, code) in [
        ("--from . --check --target-version 9.9.8", 3, "E_NOT_FOUND"),
        ("--from . --check --trust /none", 3, "E_NOT_FOUND"),
        ("--dry-run --from http://127.0.0.1:1", 7, "E_NETWORK"),
        ("", 4, "E_CONFIG"),
    ] {
        let failed = place.sh(&format!("cp-shell update {options}")).failed(status, code);
        let members = ["stage", "current_version", "binary_replaced", "skill_sync_status"];
        has_all(&failed["details"], &members.as_slice().into(), options);
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
        let mut names = BTreeSet::new();
        properties(&reference(program)["schemas"], &mut names);
        assert!(names.len() > 30, "{program}: {names:?}");
        let other: Vec<_> = names.iter().filter(|name| !is_snake_case(name)).collect();
        assert!(other.is_empty(), "{program}: {other:?}");
    }
    for verb in verbs() {
        let members = ["path", "type", "description", "params", "output_schema", "examples"];
        has_all(verb.entry, &members.as_slice().into(), &verb.words());
        assert!(verb.texts("outputs").contains(&verb.entry["output_schema"].as_str().unwrap()), "{verb:?}");
        has_all(&reference(verb.program)["schemas"], &verb.entry["outputs"], "schemas");
    }
    assert!(!is_snake_case("camelCase") && !is_snake_case("kebab-case"));
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
        assert_eq!(place.sh(&format!("{program} context --json")).stderr, "", "{program}");
    }
}

#[test]
fn a_set_is_answered_item_by_item_with_a_summary() {
    let (place, batch) = (Place::new(), &contract()["batch"]);
    let session = data(&place, "cp-session start")["session_id"].as_str().unwrap().to_owned();
    let line = format!("cp-session delete --dangerous --ids {session},NOSUCH --ids {session}");
    let shown = data(&place, &format!("{line} --dry-run"));
    let (change, failed) = (&shown["preview"]["changes"], &shown["preview"]["failed"][0]);
    assert_eq!((change.as_array().unwrap().len(), &change[0]["action"]), (1, &"delete".into()), "{shown}");
    assert_eq!((&change[0]["id"], &failed["target"]), (&session.into(), &"NOSUCH".into()), "{shown}");
    assert_eq!(failed["error"]["code"], "E_NOT_FOUND");
    let done = data(&place, &format!("{line} --confirm {}", shown["confirm_token"].as_str().unwrap()));
    for item in done["items"].as_array().unwrap() {
        has_all(item, &batch["item_required_keys"], "an item");
        if item["ok"] == false {
            has_all(&item[batch["item_error_key"].as_str().unwrap()], &batch["item_error_shape"], "its error");
        }
    }
    has_all(&done["summary"], &batch["summary_required_keys"], "the summary");
    let counts = ["total", "succeeded", "failed"].map(|name| done["summary"][name].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 1], "each once: {done}");
    assert_eq!(code(&place, "cp-session delete --dangerous --dry-run"), "E_VALIDATION");
}

#[test]
fn list_has_members_of_pages_an_order_and_no_limit_of_zero() {
    let (mut limits, mut pages, mut lists) = (0, 0, 0);
    for verb in verbs() {
        let words = verb.words();
        if verb.has("--cursor") {
            lists += 1;
            assert!(verb.entry["default_sort"].is_string(), "{words} does not name its order");
            if verb.schema()["properties"].get("items").is_some() {
                pages += 1;
                has_all(&verb.schema()["properties"], &contract()["pagination"]["cursor_style"], &words);
            }
        }
        if verb.has("--limit") {
            limits += 1;
            let about_limit = |limit: &str| {
                let ran = Place::new().sh(&format!("{words} --limit {limit} </dev/null"));
                ran.status == 2 && ran.stderr.contains("--limit")
            };
            assert!(about_limit("0"), "{words} takes --limit 0");
            // A follower without an end would wait for more than one line.
            assert!(verb.path() == "follow" || !about_limit("1"), "{words} refuses --limit 1");
        }
    }
    assert!(limits >= 8 && lists >= 7 && pages >= 3, "{limits} {lists} {pages}");
}
