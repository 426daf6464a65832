//! Every attempt of a hostile command is refused inside and done outside, and nothing outside has changed.

use cp_testkit::required;

use super::bench::{Bench, PROCESSES, Probes, SCRATCH, all, of, policy, seen};
use crate::exec::{Who, everyone};

/// The least number of attempts that must be refused inside and succeed outside, as root and as an ordinary user.
const LEAST: [(bool, usize); 2] = [(true, 270), (false, 180)];

/// Each attempt is refused inside. Outside it is done, unless only root can do it or this kernel has no such thing.
#[track_caller]
fn compare(who: Who, inside: &Probes, outside: &Probes) -> usize {
    let is_root = who == Who::Me && rustix::process::geteuid().is_root();
    let (mut wrong, mut shown) = (Vec::new(), 0);
    assert_eq!(inside.len(), outside.len());
    for (name, probe) in inside {
        if !probe.is_refused() {
            wrong.push(format!("{name} inside: {}", probe.what));
        }
        let control = &outside[name];
        if control.is_done() {
            shown += 1;
        } else if !(control.is_absent() || control.needs_root && !is_root) {
            wrong.push(format!("{name} outside: {}", control.what));
        }
    }
    assert!(wrong.is_empty(), "{who:?}:\n{}", wrong.join("\n"));
    shown
}

#[test]
fn attacks_fail_inside_and_succeed_outside() {
    cp_testkit::needs!("python3");
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    for who in everyone() {
        let mut bench = Bench::new(who, &policy(""));
        let outside = bench.exec.root.at("outside");
        let before = seen(&outside);
        let (inside, result) = bench.inside(&all(), |command| command);
        assert_eq!(before, seen(&outside), "{who:?}: something outside has changed");
        assert!(bench.victim_is_alive(), "{who:?}");
        let enforcement = &result["enforcement"];
        assert_eq!(
            (&enforcement["seccomp"], &enforcement["guard"]),
            (&true.into(), &serde_json::json!([])),
            "{enforcement}"
        );
        let shown = compare(who, &inside, &bench.outside(&all()));
        let is_root = who == Who::Me && rustix::process::geteuid().is_root();
        let least = LEAST.iter().find(|(root, _)| *root == is_root).map_or(0, |(_, least)| *least);
        assert!(shown >= least, "{who:?}: {shown} of {} attempts have a control", inside.len());
    }
}

#[test]
fn resources_are_limited_inside_and_unlimited_outside() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let limits = format!("processes = {PROCESSES}\nscratch = {SCRATCH}");
        let bench = Bench::new(who, &policy(&limits));
        let (inside, _) = bench.inside(of("resources"), |command| command);
        let shown = compare(who, &inside, &bench.outside(of("resources")));
        assert!(shown >= 6, "{who:?}: {shown}");
    }
}
