//! Names of files that are any bytes, and files that cannot be written: one rule for every program.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;

use cp_testkit::{Outcome, Place};
use serde_json::Value;

/// A script below a directory of this name, which is also the home.
fn below(place: &Place, directory: &OsStr, script: &str) -> Outcome {
    let directory = place.root.join(directory);
    let script = format!("cd \"$D\"; S=$(cp-session list | jq -r 'first(.. | .session_id? // empty)'); {script}");
    place.shell("bash", &script).env("D", &directory).env("CP_HOME", &directory).run()
}

/// The members with replacement characters, and those of them without their bytes beside them.
fn names(value: &Value, found: &mut Vec<(String, bool)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let is_name = value.as_str().is_some_and(|text| text.contains('\u{fffd}'));
                found.extend(is_name.then(|| (name.clone(), members.contains_key(&format!("{name}_bytes")))));
                names(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        _ => {}
    }
}

#[test]
fn a_path_that_is_not_text_has_its_bytes_beside_it_in_every_answer() {
    const LINES: [&str; 21] = [
        "cp-session start",
        "cp-session append --session \"$S\" -- hello",
        "cp-session show \"$S\"",
        "cp-session search hello",
        "cp-session export \"$S\"",
        "cp-session clear \"$S\" --dry-run",
        "cp-session clear \"$S\"",
        "cp-log append hello --dry-run",
        "cp-log append hello",
        "cp-log tip",
        "cp-log query --event log",
        "cp-log verify",
        "cp-log audit",
        "cp-log keygen \"$D/K\"",
        "cp-log checkpoint --sign-with \"$D/K\"",
        "cp-log rotate",
        "cp-log create \"$D/new.jsonl\"",
        "cp-log bundle -o \"$D/b\"",
        "cd ../work; cp-toolloop --backend stub -- hi",
        "cp-toolloop runs",
        "cp-shell context",
    ];
    for (directory, is_text) in [(OsStr::from_bytes(b"h\xe9me"), false), (OsStr::new("home"), true)] {
        let place = Place::new();
        std::fs::create_dir(place.root.join(directory)).unwrap();
        for line in LINES {
            let ran = below(&place, directory, line);
            let mut found = Vec::new();
            ran.records().iter().for_each(|record| names(&record["data"], &mut found));
            let missing: Vec<_> = found.iter().filter(|(_, has_bytes)| !has_bytes).collect();
            assert!(ran.status == 0 && missing.is_empty(), "{line}: {missing:?}: {ran:?}");
            assert!(found.is_empty() == is_text && ran.stdout.contains("_bytes\":") != is_text, "{line}: {ran:?}");
        }
    }
}

#[test]
fn the_file_of_a_system_text_may_have_any_name_and_no_option_is_named_that_nobody_gave() {
    let (place, directory) = (Place::new(), OsStr::from_bytes(b"h\xe9me"));
    std::fs::create_dir(place.root.join(directory)).unwrap();
    std::fs::write(place.root.join(directory).join("s"), "Be brief.").unwrap();
    for program in ["cp-llm --backend stub", "cp-compose", "cd ../work; cp-toolloop --backend stub"] {
        let with = |system: &str| below(&place, directory, &format!("{program} --system {system} -- hi"));
        with("\"@$D/s\"").success();
        let refused = with("\"$(basename \"$D\")\"").failed(2, "E_USAGE");
        assert_eq!(refused["message"], "an argument is not UTF-8", "{program}");
    }
    let refused = below(&place, directory, "cp-toolloop --backend stub -- hi").failed(2, "E_USAGE");
    assert!(!refused["message"].as_str().unwrap().contains("--") && refused["details"]["file_bytes"].is_string());
}

#[test]
fn a_file_that_may_not_be_written_has_one_exit_status() {
    const LINES: [&str; 13] = [
        "cp-session start --home \"$D/h\"",
        "cp-toolloop --home \"$D/h\" --backend stub -- hi",
        "cp-toolloop --record \"$D/r\" --backend stub -- hi",
        "CP_HOME=\"$D/h\" cp-ask --backend stub hi",
        "cp-llm --home \"$D/h\" --backend stub hi",
        "cp-llm --cache \"$D/c\" --backend stub hi",
        "cp-llm --record \"$D/r\" --backend stub hi",
        "cp-llm --budget-file \"$D/b\" --budget-usd 1 --backend stub hi",
        "cp-llm batch submit --home \"$D/h\" --backend stub -- hi",
        "cp-log keygen \"$D/k\"",
        "cp-log create \"$D/l.jsonl\"",
        "cp-log append --home \"$D/h\" hi",
        "cp-exec policy init --home \"$D/h\"",
    ];
    let shut = OsString::from("/sys/kernel");
    let tried = std::fs::write("/sys/kernel/cp-tools", "").map_err(|e| e.kind());
    if !matches!(tried, Err(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)) {
        return println!("not run: needs a /sys that cannot be written");
    }
    for (line, is_shut) in LINES.into_iter().flat_map(|line| [(line, true), (line, false)]) {
        let place = Place::new();
        let directory = if is_shut { shut.clone() } else { place.root.directory("open").as_os_str().to_owned() };
        let ran = place.shell("bash", line).env("D", directory).run();
        assert_eq!(ran.status, if is_shut { 4 } else { 0 }, "{line}: {ran:?}");
    }
}
