//! Standard streams that are closed or full.

use std::collections::BTreeMap;

use cp_testkit::is_sampled;

use super::rows::{World, verbs};

/// The files of a world with their sizes. Left out are keys, which are made when first needed, and records of the
/// command lines.
fn files(world: &World) -> BTreeMap<String, String> {
    let found =
        world.place.sh("find . \"$CP_HOME\" -type f ! -path '*/ledger/*' ! -path '*/state/*' ! -path '*/keys/*' -printf '%p\\t%s %m\\n'");
    found.stdout.lines().filter_map(|line| line.split_once('\t')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

#[test]
fn a_closed_standard_output_is_an_error_before_anything_is_done() {
    let world = World::new("022");
    for verb in verbs() {
        let row = &verb.row;
        if !row.before.is_empty() {
            world.script(row, ":").run().success();
        }
        let before = files(&world);
        let ran = world.run(&super::rows::Row { before: "O=$S", ..row.clone() }, "", ">&-");
        assert_eq!(ran.status, 1, "{}: {ran:?}", row.verb);
        assert!(ran.stderr.contains("standard output is closed"), "{}: {ran:?}", row.verb);
        assert_eq!(files(&world), before, "{}: something was done", row.verb);
    }
    // The control: what is thrown away or read and written is not closed.
    for sink in [">/dev/null", "1<>/dev/null", "<&- >/dev/null"] {
        world.place.sh(&format!("cp-log append -f sink x {sink}")).success();
    }
}

#[test]
fn a_full_standard_output_is_an_error_and_what_was_acknowledged_stays() {
    let world = World::new("022");
    for verb in verbs() {
        let row = &verb.row;
        let before = files(&world);
        assert_eq!(world.run(row, "", ">/dev/null").status, 0, "{}", row.verb);
        let ran = world.run(row, "", ">/dev/full");
        assert_eq!(ran.status, 1, "{}: {ran:?}", row.verb);
        assert!(ran.stderr.contains("no space left"), "{}: {ran:?}", row.verb);
        // An append is done, and cannot be undone because nobody heard of it.
        let is_effect =
            verb.entry["type"] == "append" && !["cp-exec approve", "cp-session export"].contains(&row.verb.as_str());
        if is_effect {
            assert_ne!(files(&world), before, "{}: nothing was done", row.verb);
        }
    }
    world.place.program("cp-log").args(["verify", "L"]).run().success();
}

#[test]
fn closed_standard_input_and_error_are_survived() {
    let world = World::new("022");
    for (at, verb) in verbs().iter().enumerate() {
        let row = &verb.row;
        for (_, closed) in ["2>&-", "<&-", "<&- 2>&-"].iter().enumerate().filter(|(way, _)| is_sampled(*way, at, 3)) {
            let has_input = row.words.contains(" <") || row.words.starts_with('<');
            if has_input && closed.contains('<') {
                continue;
            }
            let ran = world.run(row, "", closed);
            assert_eq!(ran.status, 0, "{} {closed}: {ran:?}", row.verb);
        }
    }
}

#[test]
fn every_verb_succeeds_if_sigchld_is_ignored() {
    let world = World::new("022");
    for verb in verbs() {
        let row = &verb.row;
        let ran = world.script(row, &format!("(trap '' CHLD; exec {} {})", row.verb, row.words)).run();
        assert_eq!(ran.status, 0, "{}: {ran:?}", row.verb);
    }
}

#[test]
fn a_dry_run_changes_no_file() {
    let world = World::new("022");
    let mut tried = 0;
    for verb in verbs().iter().filter(|verb| verb.has("--dry-run")) {
        let row = &verb.row;
        if !row.before.is_empty() {
            // Those have what they change made for them: the suite of requests tries them.
            continue;
        }
        let before = files(&world);
        let options = if row.words.contains("--dry-run") { "" } else { "--dry-run" };
        let ran = world.run(row, options, ">/dev/null");
        assert_eq!(ran.status, 0, "{}: {ran:?}", row.verb);
        assert_eq!(files(&world), before, "{}: a dry run changed something", row.verb);
        tried += 1;
    }
    assert!(tried >= 20, "{tried}");
}
