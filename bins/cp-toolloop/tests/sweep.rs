//! A run that meets a fault at its system calls: it can go on, or it is cleanly not there.

use cp_testkit::Sweep;
use serde_json::json;

use crate::toolloop::ToolLoop;

#[test]
fn step_log_is_resumable_after_every_kill() {
    let place = ToolLoop::new();
    let verb = ["--backend", "stub", "--allow", "system", "--", "hello"];
    Sweep::new(&place, &verb).run(|_, fault| {
        let runs = place.home.at("planes/ho1/runs");
        let names = if runs.is_dir() { runs.names() } else { Vec::new() };
        let is_known = |name: &String| [".jsonl", ".jsonl.lock", ".sealed"].iter().any(|end| name.ends_with(end));
        assert!(names.iter().all(is_known), "{fault}: {names:?}");
        let listed = place.run(&["runs"]);
        for run in listed.closing()["data"]["items"].as_array().unwrap() {
            let (id, status) = (run["id"].as_str().unwrap(), &run["status"]);
            assert_ne!(status, "unknown", "{fault}: {listed:?}");
            if status != "completed" {
                assert_eq!(place.run(&["resume", id]).status, 0, "{fault}: {listed:?}");
            }
            let shown = place.run(&["show", id]);
            let steps = shown.closing()["data"]["steps"].as_array().unwrap().clone();
            let begins = steps.iter().filter(|step| step["event"] == "run_start").count();
            assert_eq!((&shown.closing()["data"]["status"], begins), (&json!("completed"), 1), "{fault}: {shown:?}");
        }
    });
}
