//! What a run may say: its words cost the supervisor neither memory nor disk without a bound.

use std::fs;

use cp_testkit::times;
use serde_json::json;

use crate::exec::{Exec, POLICY, Who};

/// Tries to start a program again and again with other words, up to 1.5 MB of them.
const FLOOD: &str = r#"
my ($name, $count, $words, $length) = splice @ARGV, 0, 4;
for my $n (1 .. $count) { exec { $name } $name, @ARGV, map { "$n-$_" . "x" x $length } 1 .. $words; }
for my $n (1 .. 20) { fork or exec "/usr/bin/true", map { "$n-$_" . "x" x 90_000 } 1 .. 14; wait; }
"#;

#[test]
fn words_of_a_run_are_bounded_in_memory_and_on_disk() {
    // Without a name a push publishes nothing.
    let policy = POLICY.replace("intent = \"off\"\n", "intent = \"off\"\nnetwork = [\"example.org\"]\n");
    for (name, count, words, length) in [
        ("/usr/bin/mount", times(20, 200), 15, 100_000),
        ("/usr/bin/mount", times(8, 80), 20_000, 1),
        ("/usr/bin/mount", times(400, 4000), 1, 1),
        ("/usr/bin/git push", times(10, 100), 15, 100_000),
        ("/usr/bin/git push", times(40, 400), 1, 3000),
    ] {
        let exec = Exec::with_policy(Who::Me, &policy);
        exec.write("flood.pl", FLOOD);
        let program = crate::exec::program().display().to_string();
        let (program, operand) = (program, name.split_once(' ').map_or("", |(_, operand)| operand));
        let file = name.split(' ').next().unwrap();
        let watched = format!(
            "{program} --home {} -c 'perl flood.pl {file} {count} {words} {length} {operand}' >/dev/null 2>&1 & p=$!
             while grep VmHWM /proc/$p/status 2>/dev/null; do sleep 0.1; done; wait",
            exec.home.display()
        );
        let told = exec.outside(&watched).run().stdout;
        let peak: u64 = told.split_ascii_whitespace().rev().nth(1).unwrap().parse().unwrap();
        let size = |at: &str| {
            let walk = exec.outside(&format!("du -sk {}", exec.home.join(at).display())).run().stdout;
            walk.split_ascii_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        let (ledger, state) = (size("ledger"), size("state"));
        let context = format!("{name} {words} words: {peak} kB, {ledger} kB, {state} kB");
        assert!(peak < 64 << 10 && ledger < 16 << 10 && state < 16 << 10, "{context}");
        let counts = exec.entries("exec.result").pop().unwrap()["data"]["steps"].clone();
        assert!(counts["programs"].as_u64().unwrap() > 20, "{context}: {counts}");
        assert!(fs::metadata(exec.ledger()).unwrap().len() > 1000, "{context}");
    }
}

#[test]
fn long_words_are_recorded_with_length_hash_and_beginning() {
    let exec = Exec::new(Who::Me);
    let long = "a b".repeat(3000);
    assert_eq!(exec.ask(&["-c", &format!("/usr/bin/true one '{long}'; /usr/bin/true one two")]).1, 0);
    let steps = exec.entries("exec.step");
    let words = |at: usize| steps[at]["data"]["argv_as_asked"].as_array().unwrap().clone();
    assert_eq!((&words(0)[..2], words(0).len()), (&[json!("true"), json!("one")][..], 3));
    let rest = words(0)[2].as_str().unwrap().to_owned();
    assert!(rest.starts_with("a ba b") && rest.contains("[… 9010 bytes in all, sha256:"), "{rest}");
    assert!(rest.len() < 5000, "{}", rest.len());
    assert_eq!(words(1), ["true", "one", "two"]);
}
