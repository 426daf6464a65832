//! Calls whose whole process group is killed at any moment: a resume finds out if a command may still have its
//! effect before it asks, so that no effect is lost and none happens twice.

use std::os::unix::process::CommandExt as _;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};
use serde_json::{Value, json};

use crate::toolloop::{Results as _, ToolLoop};

#[test]
fn effects_of_killed_group_happen_exactly_once() {
    let rounds = cp_testkit::times(12, 1000);
    let mut killed = 0;
    for round in 0..rounds {
        let place = ToolLoop::new();
        place.policy("[exec]\nallowed_commands = [\"sh\", \"sleep\"]\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n");
        let shell = |n: u32| json!({"name": "bash", "input": {"command": format!("sleep 0.0{n}; echo x >>effect-{n}; sleep 0.05")}});
        let edit = json!({"name": "filesystem", "input": {"operation": "write_file", "path": "written", "content": "effect-4"}});
        let calls = json!({"tool_calls": [shell(1), shell(2), shell(3), edit]}).to_string();
        place.script(&[&calls, r#"{"content":"Done."}"#]);
        let run = place.command(&["go"]);
        let mut run = run.with(|command| _ = command.process_group(0)).start();
        let id = run.record()["data"]["run_id"].as_str().unwrap().to_owned();
        sleep(Duration::from_millis(u64::from(round % 60) * 8));
        killed += u32::from(!run.has_ended());
        let _ = kill_process_group(run.pid(), Signal::KILL);
        run.kill();
        let mut words = vec!["resume".to_owned(), id.clone()];
        let mut ended = place.run(&["resume", &id]);
        for _ in 0..8 {
            if ended.status != 9 {
                break;
            }
            // Asking again without an answer changes nothing. A careful person approves a call whose effect is not
            // there.
            let again = place.run(&["resume", &id]).failed(9, "E_HUMAN_REQUIRED");
            let call = &again["details"]["call"];
            let input = call["input"].to_string();
            let effects = ["effect-1", "effect-2", "effect-3", "written"];
            let effect = effects.into_iter().find(|effect| input.contains(effect)).unwrap();
            words.truncate(2);
            // A command that was killed between the opening of its file and the write left the file empty.
            let happened = std::fs::read(place.work.join(effect)).is_ok_and(|content| !content.is_empty());
            words.push(if happened { "--deny" } else { "--approve" }.to_owned());
            words.push(call["id"].as_str().unwrap().to_owned());
            ended = place.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        assert!(ended.status == 0 || ended.error()["code"] == "E_CONFLICT", "round {round}: {ended:?}");
        let effects = [1, 2, 3].map(|n| place.written(&format!("effect-{n}")));
        let entries = place.home.records(format!("planes/ho1/runs/{id}.jsonl"));
        let about = |entry: &Value| {
            let data = &entry["data"];
            format!("{} {} {} {} {}", entry["ts"], entry["event"], data["call"], data["id"], data["return_code"])
        };
        let ledger = entries.iter().map(about).collect::<Vec<_>>().join("\n");
        assert_eq!(effects, ["x\n"; 3], "round {round}: {:?}\n{ledger}", ended.results());
        assert_eq!(place.written("written"), "effect-4", "round {round}: {ended:?}");
        let left: Vec<String> = place.work.names().into_iter().filter(|name| name.starts_with('.')).collect();
        assert_eq!(left, Vec::<String>::new(), "round {round}");
    }
    assert!(killed * 2 > rounds, "{killed} of {rounds} were killed before they ended");
}
