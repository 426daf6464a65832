//! Each layer taken away in turn: by default nothing runs where no other layer replaces it, and where the policy lets
//! it run all the same, what the other layers refuse is still refused and the record names the layer that was missing
//! and no other.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cp_testkit::required;
use serde_json::{Value, json};

use super::bench::{Bench, PROCESSES, Probe, SCRATCH, all, of, policy, seen};
use crate::exec::{Who, everyone};
use crate::missing::without;

/// The layer that is removed, and the result under the default policy: the layer that the refusal names, or none if the
/// command runs.
pub(super) const ROWS: [(&str, Option<&str>); 8] = [
    ("none", None),
    ("mount", Some("namespaces")),
    ("pid", Some("namespaces")),
    ("network", Some("namespaces")),
    ("ipc", Some("namespaces")),
    ("uts", Some("namespaces")),
    ("landlock", None),
    ("seccomp", Some("seccomp")),
];

struct Machine {
    without: PathBuf,
    lacking: String,
}

impl Machine {
    fn new(bench: &Bench, lacking: &str) -> Self {
        let user = if bench.exec.who == Who::Ordinary { ",ordinary" } else { "" };
        Self { without: without(&bench.exec), lacking: format!("{lacking}{user}") }
    }

    fn ask(&self, bench: &Bench, arguments: &[&str]) -> Value {
        let ran = bench.exec.command(arguments).under(&self.without, [&self.lacking]).run();
        ran.records().pop().unwrap_or_else(|| panic!("no answer: {ran:?}"))
    }
}

/// The layers that a record says were in force, by the names that probes use.
fn held(enforcement: &Value) -> BTreeSet<String> {
    let mut held: BTreeSet<String> = ["capabilities", "no_new_privs"].map(str::to_owned).into();
    held.extend(enforcement["namespaces"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()));
    for (name, holds) in [
        ("seccomp", enforcement["seccomp"] == true),
        ("landlock", enforcement["landlock"]["status"] == "full"),
        ("rlimits", enforcement["cgroup"] == false),
        ("cgroup", enforcement["cgroup"] == true),
    ] {
        if holds {
            held.insert(name.to_owned());
        }
    }
    held
}

/// The names at the head of what a record says was missing, but for what a run without a control group always says.
fn missing(enforcement: &Value) -> BTreeSet<&str> {
    let lines = enforcement["missing"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    let heads = lines.map(|line| line.split(':').next().unwrap());
    heads.filter(|head| !["memory", "processes"].contains(head)).collect()
}

#[test]
fn missing_layer_refuses_run_or_is_recorded() {
    cp_testkit::needs!("python3");
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    let mut through = BTreeSet::new();
    for who in everyone() {
        let bench = Bench::new(who, &policy(""));
        let all_layers = ROWS.into_iter().filter(|(lacking, _)| *lacking == "none");
        for (lacking, refused) in all_layers.chain(who.turns(ROWS.into_iter().skip(1))) {
            let machine = Machine::new(&bench, lacking);
            bench.exec.policy(&policy(""));
            let answer = machine.ask(&bench, &["--", "sh", "-c", "echo ran; touch ran"]);
            if let Some(layer) = refused {
                let details = &answer["error"]["details"];
                assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{who:?} without {lacking}: {answer}");
                assert_eq!((&details["rule"], &details["layer"]), (&json!("require"), &json!(layer)), "{answer}");
                assert!(!bench.exec.work.join("ran").exists());
            } else {
                assert_eq!(answer["data"]["stdout"], "ran\n", "{who:?} without {lacking}: {answer}");
                std::fs::remove_file(bench.exec.work.join("ran")).unwrap();
            }

            bench.exec.policy(&policy("require = []\ndegraded = \"allow\""));
            let before = (lacking == "none").then(|| seen(&bench.exec.root.at("outside")));
            let (probes, result) = bench.inside(&all(), |command| command.under(&machine.without, [&machine.lacking]));
            assert!(before.is_none_or(|before| before == seen(&bench.exec.root.at("outside"))), "{who:?}");
            let enforcement = &result["enforcement"];
            let held = held(enforcement);
            let taken: BTreeSet<&str> = match lacking {
                "none" => BTreeSet::new(),
                "landlock" => ["landlock"].into(),
                // The listener is a seccomp filter.
                "seccomp" => ["seccomp", "listener"].into(),
                _ => ["namespaces"].into(),
            };
            assert!(!held.contains(lacking), "{who:?} without {lacking}: {enforcement}");
            let layers = missing(enforcement).into_iter();
            let said: BTreeSet<&str> = layers.filter(|head| !["proc", "undo"].contains(head)).collect();
            assert_eq!(said, taken, "{who:?} without {lacking}: {enforcement}");

            let is_contained = |probe: &&Probe| probe.is_contained_by(&held);
            let escaped: Vec<String> = probes
                .values()
                .filter(is_contained)
                .filter(|probe| !probe.is_refused())
                .map(|probe| format!("{} ({})", probe.name, probe.layers.join(" ")))
                .collect();
            assert!(escaped.is_empty(), "{who:?} without {lacking}, {held:?} let through:\n{}", escaped.join("\n"));
            for probe in probes.values().filter(|probe| probe.is_done()) {
                through.insert((lacking, probe.name.clone()));
            }
        }
    }
    // Each layer counts: without it, something gets through that all of them together refuse.
    for (lacking, name) in
        [("mount", "look_stat"), ("pid", "process_pidfd"), ("ipc", "shared_memory"), ("seccomp", "set_id_open_4755")]
    {
        assert!(through.contains(&(lacking, name.to_owned())), "{name} is refused without {lacking} too");
    }
}

#[test]
fn missing_limits_refuse_run_and_missing_control_group_is_recorded() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let limits = format!("processes = {PROCESSES}\nscratch = {SCRATCH}");
        let bench = Bench::new(who, &policy(&limits));
        let machine = Machine::new(&bench, "rlimits");
        let answer = machine.ask(&bench, &["--", "sh", "-c", "touch ran"]);
        assert_eq!(answer["ok"], false, "{who:?}: {answer}");
        assert!(!bench.exec.work.join("ran").exists(), "{answer}");

        if !required("the rights of root", rustix::process::geteuid().is_root()) {
            return;
        }
        let machine = Machine::new(&bench, "cgroup");
        let (probes, result) =
            bench.inside(of("resources"), |command| command.under(&machine.without, [&machine.lacking]));
        let enforcement = &result["enforcement"];
        let held = held(enforcement);
        let contained = probes.values().filter(|probe| probe.is_contained_by(&held));
        let escaped: Vec<&Probe> = contained.filter(|probe| !probe.is_refused()).collect();
        assert!(escaped.is_empty(), "{who:?}: {escaped:?}");
        assert_eq!(enforcement["cgroup"], false, "{enforcement}");
        bench.exec.policy(&policy("require = [\"cgroup\"]"));
        let answer = machine.ask(&bench, &["--", "true"]);
        assert_eq!(answer["error"]["details"]["layer"], "cgroup", "{who:?}: {answer}");
    }
}

#[test]
fn user_without_user_namespaces_needs_degraded_policy() {
    cp_testkit::needs!("python3");
    let Some(who) = everyone().into_iter().find(|who| *who == Who::Ordinary || !rustix::process::geteuid().is_root())
    else {
        return;
    };
    let bench = Bench::new(who, &policy(""));
    let machine = Machine::new(&bench, "user");
    let answer = machine.ask(&bench, &["--", "touch", "ran"]);
    assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{answer}");
    bench.exec.policy(&policy("degraded = \"allow\""));
    let (probes, result) = bench.inside(&all(), |command| command.under(&machine.without, [&machine.lacking]));
    let held = held(&result["enforcement"]);
    assert!(held.contains("landlock") && held.contains("seccomp") && !held.contains("mount"), "{held:?}");
    let contained = |probe: &&Probe| probe.is_contained_by(&held);
    let escaped: Vec<&Probe> = probes.values().filter(contained).filter(|probe| !probe.is_refused()).collect();
    assert!(escaped.is_empty(), "{escaped:?}");
}
