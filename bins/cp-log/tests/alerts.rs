//! The alerts of `cp-log follow`: what they count, and which entries never trigger one.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ledgers::Ledgers;

/// The number of entries of each alert line on standard error.
fn counts(stderr: &str) -> Vec<u64> {
    let alerts = stderr.lines().filter(|line| line.starts_with("cp-log: alert "));
    let count = |line: &str| line.rsplit_once(": ")?.1.split_once(" entr")?.0.parse().ok();
    alerts.map(|line| count(line).unwrap()).collect()
}

#[test]
fn storm_alerts_are_rate_limited_and_none_is_lost() {
    let place = Ledgers::new();
    let filler = "x".repeat(8000);
    let mut storm = String::new();
    for at in 0..10_000 {
        let (second, agent) = (at % 60, if at % 4 == 0 { "other" } else { "agent" });
        let ts = format!("2026-11-21T03:00:{second:02}Z");
        let entry = serde_json::json!({"ts": ts, "event": "exec.refused", "agent": agent, "message": filler});
        storm.push_str(&entry.to_string());
        storm.push('\n');
    }
    let began = Instant::now();
    let rule = ".agent == \"agent\" and .count_per_minute > 100";
    // The input is larger than the memory.
    let followed = place
        .subject()
        .args(["follow", "-", "--alert", rule, "--alert-every", "2"])
        .under("prlimit", ["--as=67108864"])
        .stdin(&storm)
        .run()
        .success();
    let expected = (100..10_000).filter(|at| at % 4 != 0).count() as u64;
    let counts = counts(&followed.stderr);
    assert_eq!(counts.iter().sum::<u64>(), expected, "{counts:?}");
    assert_eq!(counts[0], 1);
    assert!(counts.len() as u64 <= 2 + began.elapsed().as_secs() / 2, "{counts:?}");
    assert_eq!(followed.of("entry").len(), 10_000);
}

#[test]
fn alert_runs_command_under_policy_for_one_actor_of_two() {
    let place = Ledgers::new();
    place.policy("[exec]\nallowed_commands = [\"tee\"]\n");
    place.lines(&["create", "l.jsonl"], "");
    let mut child = place
        .subject()
        .with_programs()
        .args(["--ledger", "l.jsonl", "follow", "l.jsonl", "--alert-every", "1", "--alert-run", "tee -a got.jsonl"])
        .args(["--alert", ".event == \"approval.granted\" and .agent == \"caller\"", "--alert", ".run != null"])
        .start();
    let append = |agent: &str, run: &str| {
        let mut options = vec!["append", "-f", "l.jsonl", "--event", "approval.granted", "--agent", agent, "x"];
        options.extend(["--run", run].iter().filter(|_| !run.is_empty()));
        place.lines(&options, "");
    };
    let got = || cp_testkit::records_of(place.work.read_if_there("got.jsonl").as_bytes());
    append("owner", "");
    append("caller", "");
    cp_testkit::until("the alert", || got().len() == 1);
    // The entries of the run are followed, and the rule about runs is true of them.
    let mut own = 0;
    while own < 2 {
        let record = child.record();
        own += u64::from(record["data"]["run"].as_str().is_some_and(|run| run.starts_with("alert-")));
    }
    std::thread::sleep(Duration::from_millis(1500));
    let alerts = got();
    let agents: Vec<&Value> = alerts.iter().map(|alert| &alert["entry"]["agent"]).collect();
    assert_eq!(agents, ["caller"], "{alerts:?}");
    // A run with such a name that is not an alert's own is not exempt.
    append("caller", "alert-0123456789abcdef");
    cp_testkit::until("the alerts for the other run", || got().len() == 3);
    child.kill();
}

#[test]
fn alert_without_permission_is_written_to_standard_error() {
    let place = Ledgers::new();
    place.policy("[exec]\nallowed_commands = [\"true\"]\n");
    let input = "{\"event\":\"llm.response\",\"data\":{\"usage\":{\"cost_usd\":3.0}}}\n".repeat(2);
    let follow = |options: &[&str]| {
        let subject = place.subject().with_programs().args(["follow", "-", "--alert", ".cost_usd_total > 4"]);
        subject.args(options).stdin(&input).run().success()
    };
    let refused = follow(&["--alert-run", "rm -rf x"]);
    assert_eq!(counts(&refused.stderr), [1], "{refused:?}");
    assert!(refused.stderr.contains("rm -rf x"), "{refused:?}");
    let allowed = follow(&["--alert-run", "true"]);
    assert_eq!(counts(&allowed.stderr), [] as [u64; 0], "{allowed:?}");
}

#[test]
fn invalid_rule_is_a_usage_error_and_failing_rule_is_reported_once() {
    let place = Ledgers::new();
    place.closing(&["follow", "-", "--alert", ".a |"], "", 2);
    place.closing(&["follow", "-", "--alert-run", "true"], "", 2);
    let failing =
        place.feed(&["follow", "-", "--alert", ".event | tonumber"], "{\"event\":\"a\"}\n".repeat(3)).success();
    assert_eq!(failing.stderr.lines().count(), 1, "{failing:?}");
}
