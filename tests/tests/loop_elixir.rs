//! The loop of Elixir processes: what fails is started again within limits, conversations do not disturb each other,
//! and nothing stays.

use std::process::Command;
use std::sync::LazyLock;

use cp_testkit::{Background, Outcome, Place, Program, Signal, counterpart, repository, required, until};
use cp_tests::check_contract;
use serde_json::{Value, json};

use crate::toolloop::{of, tool};

/// Whether the loop can run here.
pub(crate) fn is_installed() -> bool {
    static HAS_JIFFY: LazyLock<bool> = LazyLock::new(|| {
        let code = "System.halt(if Code.ensure_loaded?(:jiffy), do: 0, else: 1)";
        Command::new("elixir").args(["-e", code]).status().is_ok_and(|status| status.success())
    });
    counterpart("elixir").is_some() && required("jiffy for Elixir", *HAS_JIFFY)
}

/// Ends the test here if the loop cannot run.
macro_rules! needs_elixir {
    () => {
        if !is_installed() {
            return;
        }
    };
}

/// A model program that does what `script` says, with its number as `$n`, and else is the stub.
fn model(place: &Place, script: &str) {
    let stub = "exec cp-llm --backend stub --stub-script answers \"$@\"";
    place.work.executable(
        "model",
        format!("#!/bin/sh\nn=$(cat starts 2>/dev/null || echo 0); n=$((n + 1)); echo $n >starts\n{script}\n{stub}\n"),
    );
    place
        .work
        .write("answers", "{\"tool_calls\":[{\"name\":\"echo_it\",\"input\":{\"n\":1}}]}\n{\"content\":\"Done.\"}\n");
    tool(place, "echo_it", "cat");
}

/// A run of cp-toolloop, driven by the loop, through that program.
fn run(place: &Place) -> Outcome {
    place.sh_with_loops("cp-toolloop --tools tools --tool-backend elixir --llm ./model -- hi").run()
}

/// The loop by itself.
fn alone(place: &Place, arguments: &[&str]) -> Program {
    place.program(repository().join("scripts/backends/cp-loop-elixir")).args(arguments).with_programs()
}

fn prompt(text: &str) -> String {
    let data = json!({"messages": [{"role": "user", "content": text}], "row": {"asked": text}});
    format!("{}\n", json!({"ok": true, "schema_version": "1.0", "type": "prompt", "data": data}))
}

fn result(content: &str) -> String {
    let data = json!({"id": "call_1_1", "name": "echo_it", "content": content, "is_error": false});
    format!("{}\n", json!({"ok": true, "schema_version": "1.0", "type": "tool_result", "data": data}))
}

#[test]
fn a_model_program_that_fails_is_started_again_and_the_run_goes_on() {
    needs_elixir!();
    for (script, starts, said) in [
        ("", 1, ""),
        // It leaves in its own time.
        ("cp-llm --backend stub --stub-script answers; sleep 0.5; echo left >left; exit", 1, ""),
        // It is killed while it is asked, and once more.
        ("[ $n -gt 2 ] || { read -r line; kill -9 $$; }", 3, "model ended with status 137"),
        // Its answer is none: the agent has to stop it.
        ("[ $n -gt 1 ] || { read -r line; echo garbage; exec sleep 60; }", 2, "a line that is not a record"),
        (
            "[ $n -gt 1 ] || { read -r line; echo '{\"ok\":true,\"type\":\"message\",\"data\":{\"content\":\"\",\"tool_calls\":1}}'; exec sleep 60; }",
            2,
            "the answer is not usable",
        ),
        ("[ $n -gt 1 ] || { read -r line; kill $$; sleep 60; }", 2, "model ended with status 143"),
        // It leaves between two turns: the second asks with the first one's call and result.
        (
            "[ $n -gt 1 ] || { read -r line; echo \"$line\" | cp-llm --backend stub --stub-script answers | head -n 1; exit 7; }",
            2,
            "model ended with status 7",
        ),
    ] {
        let place = Place::new();
        model(&place, script);
        let ran = run(&place);
        check_contract(&ran);
        assert_eq!((ran.status, place.work.read("starts")), (0, format!("{starts}\n")), "{script}: {ran:?}");
        assert!(
            ran.stderr.contains(said) && ran.stderr.contains("started again") != said.is_empty(),
            "{script}: {ran:?}"
        );
        assert_eq!(place.work.join("left").exists(), script.contains("left"), "{script}: {ran:?}");
        let lines = ran.records();
        assert_eq!(of(&lines, "tool_result")[0]["content"], "{\"n\":1}", "{script}");
        let messages = of(&lines, "message");
        assert_eq!((messages.len(), &messages[1]["content"]), (2, &json!("Done.")), "{script}");
    }
}

#[test]
fn after_the_limit_the_run_fails_cleanly_and_can_go_on() {
    needs_elixir!();
    let place = Place::new();
    model(&place, "[ -e healed ] || { read -r line; kill -9 $$; }");
    let ran = run(&place);
    check_contract(&ran);
    assert_eq!(place.work.read("starts"), "4\n", "{ran:?}");
    let error = ran.failed(1, "E_IO");
    assert_eq!(error["message"], "the model could not be asked: model ended with status 137", "{ran:?}");
    place.work.write("healed", "");
    let resumed = place
        .sh_with_loops("R=$(cp-toolloop runs | jq -r '.data.items[0].id'); cp-toolloop resume $R --format text")
        .run();
    assert_eq!((resumed.status, resumed.stdout.as_str()), (0, "Done.\n"), "{resumed:?}");
}

#[test]
fn what_the_model_program_reports_is_an_answer_and_is_not_asked_for_again() {
    needs_elixir!();
    let place = Place::new();
    model(&place, "");
    place.work.write("answers", "{\"error\":{\"code\":\"E_AUTH\",\"message\":\"no key\"}}\n");
    let ran = run(&place);
    check_contract(&ran);
    assert_eq!(ran.failed(4, "E_AUTH")["message"], "no key");
    assert_eq!(place.work.read("starts"), "1\n");
}

#[test]
fn conversations_of_one_loop_do_not_disturb_each_other() {
    needs_elixir!();
    let place = Place::new();
    let stub = "cp-llm --backend stub --stub-script answers";
    model(
        &place,
        &format!(
            "read -r line; case $line in *doomed*) kill -9 $$ ;; esac; {{ printf '%s\\n' \"$line\"; cat; }} | {stub}; exit"
        ),
    );
    let mut working = alone(&place, &["./model"]).start();
    working.write(prompt("one") + &prompt("doomed") + &prompt("two"));
    // The first messages, and the failure of the one that was given up.
    let mut first: Vec<Value> = (0..3).map(|_| working.record()).collect();
    first.sort_by_key(|record| record["data"]["row"]["asked"].to_string());
    assert_eq!(first[0]["data"]["tool_calls"], first[1]["data"]["tool_calls"], "{first:?}");
    let failed = first.iter().find(|record| record["ok"] == false).unwrap();
    assert_eq!(failed["error"]["code"], "E_IO", "{failed}");
    // Both wait for a call of the same id: the older one is served first.
    working.write(result("for one"));
    let said = working.record();
    assert_eq!((&said["data"]["row"]["asked"], &said["data"]["content"]), (&json!("one"), &json!("Done.")), "{said}");
    assert_eq!(said["data"]["input"][0]["content"][0]["content"], "for one");
    working.write(result("for two"));
    assert_eq!(working.record()["data"]["row"]["asked"], "two");
    let ended = working.finish();
    assert_eq!(ended.closing()["data"], json!({"total": 3, "succeeded": 2, "failed": 1, "skipped": 0}), "{ended:?}");
}

#[test]
fn schemas_and_arguments_reach_the_model_as_they_were_written() {
    needs_elixir!();
    let place = Place::new();
    place.work.executable("model", "#!/bin/sh\ntee asked | cp-llm --backend stub --stub-script answers\n");
    let input = "{\"z\":1.50,\"a\":123456789012345678901234567890,\"ä\":\"\\u0001\\\"\",\"n\":null}";
    place.work.write(
        "answers",
        format!("{{\"tool_calls\":[{{\"name\":\"echo_it\",\"input\":{input}}}]}}\n{{\"content\":\"Done.\"}}\n"),
    );
    let schema = "{\"type\":\"object\",\"properties\":{\"z\":{\"type\":\"number\"},\"a\":{}}}";
    let tools = format!("\"tools\":[{{\"name\":\"echo_it\",\"description\":\"\",\"input_schema\":{schema}}}]");
    let asked = prompt(&"long ".repeat(100_000)).replace("\"row\"", &format!("{tools},\"row\""));
    let mut working = alone(&place, &["./model"]).start();
    working.write(asked);
    assert_eq!(working.record()["data"]["stop_reason"], "tool_use");
    working.write(result("r"));
    assert_eq!(working.record()["data"]["content"], "Done.");
    assert_eq!(working.finish().status, 0);
    let sent = place.work.read("asked");
    let second = sent.lines().nth(1).unwrap();
    let kept = "{\"z\":1.5,\"a\":123456789012345678901234567890,\"ä\":\"\\u0001\\\"\",\"n\":null}";
    assert!(second.contains(schema) && second.contains(kept), "{}", &second[second.len() - 900..]);
}

/// The loop, with a model that does not answer, and the id of the model's process.
fn silent(place: &Place) -> (Background, u32) {
    place.work.executable("model", "#!/bin/sh\nread -r line; echo $$ >pid; exec sleep 600\n");
    let mut working = alone(place, &["./model"]).start();
    working.write(prompt("hi"));
    until("the model to be asked", || place.work.read_if_there("pid").ends_with('\n'));
    let pid = place.work.read("pid").trim().parse().unwrap();
    (working, pid)
}

fn is_running(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_signal_ends_it_and_its_model_program() {
    needs_elixir!();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let place = Place::new();
        let (working, pid) = silent(&place);
        working.signal(signal);
        let ended = working.wait();
        ended.failed(130, "E_INTERRUPTED");
        assert!(!is_running(pid) && ended.stderr.is_empty(), "{signal:?}: {ended:?}");
    }
    // A kill cannot be handled, and the kernel ends the runtime.
    let place = Place::new();
    let (working, pid) = silent(&place);
    assert!(is_running(pid));
    working.signal(Signal::KILL);
    working.wait();
    until("the model program to end", || !is_running(pid));
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    needs_elixir!();
    let place = Place::new();
    let mut working = alone(&place, &["--backend", "stub"]).start();
    working.write(prompt("one"));
    assert_eq!(working.record()["data"]["content"], "stub response 1");
    working.close_stdout();
    working.write(prompt("two"));
    let ended = working.wait();
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{ended:?}");
}

#[test]
fn what_is_not_for_it_is_refused() {
    needs_elixir!();
    let place = Place::new();
    for (input, said) in [
        ("nonsense\n", "expected a prompt or a tool_result record"),
        ("{\"ok\":true,\"type\":\"prompt\",\"data\":{\"messages\":[]}}\n", "data.messages of the prompt is empty"),
        (&result("r"), "no call with the id call_1_1 waits for a result"),
    ] {
        let ran = alone(&place, &["--backend", "stub"]).stdin(input).run();
        assert_eq!(ran.failed(2, "E_VALIDATION")["message"], said, "{ran:?}");
    }
    let ran = alone(&place, &["--backend", "stub"]).stdin("").run();
    assert_eq!(ran.data()["total"], 0);
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let place = Place::new();
    for name in ["sh", "dirname", "readlink"] {
        std::os::unix::fs::symlink(format!("/bin/{name}"), place.work.directory("bin").join(name)).unwrap();
    }
    let ran = alone(&place, &[]).env("PATH", place.work.join("bin")).stdin(prompt("hi")).run();
    let error = ran.failed(4, "E_CONFIG");
    assert_eq!(error["message"], "Elixir is not installed");
    assert!(error["details"]["hint"].as_str().unwrap().contains("apt-get install elixir erlang-jiffy"), "{error}");
    needs_elixir!();
    place.work.write("broken/jiffy.beam", "");
    let options = format!("-pa {}", place.work.join("broken").display());
    let ran = alone(&place, &["--backend", "stub"]).env("ELIXIR_ERL_OPTIONS", options).stdin(prompt("hi")).run();
    assert_eq!(ran.failed(4, "E_CONFIG")["message"], "jiffy is not installed");
    assert_eq!(ran.stderr, "");
}

#[test]
fn it_can_be_compiled_when_it_is_installed() {
    needs_elixir!();
    let place = Place::new();
    let ran = place
        .sh_with_loops(
            "mkdir -p prefix/bin prefix/share/cp-tools/elixir && S=$(dirname \"$(command -v cp-loop-elixir)\") && cp \"$S/cp-loop-elixir\" prefix/bin &&
            elixirc -o prefix/share/cp-tools/elixir \"$S\"/elixir/*.ex && cp-compose hi | prefix/bin/cp-loop-elixir --backend stub | jq -r '.data.content // .type'",
        )
        .run();
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "stub response 1\nsummary\n"), "{ran:?}");
}

#[test]
fn the_scripts_know_it_by_the_name_of_the_source() {
    needs_elixir!();
    let place = Place::new();
    model(&place, "");
    place.work.executable("skills/echo_it.sh", "#!/bin/sh\ncat");
    place.work.write("tools.json", "[{\"name\":\"echo_it\",\"description\":\"d\"}]");
    let script = "export CP_BACKEND=stub CP_STUB_SCRIPT=answers SHELLCLAW_SKILLS_DIR=skills
        cp-ask --tools tools.json --tool-backend=elixir x
        SHELLCLAW_TOOL_BACKEND=elixir cp-ask --tools tools.json x
        (. cp.sh; export SHELLCLAW_TOOL_BACKEND=elixir; tool_loop x '' tools.json)
        (. cp.sh; mkdir -p \"$CP_HOME/config\"; echo SHELLCLAW_TOOL_BACKEND=elixir >\"$CP_HOME/config/shellclaw.env\"; tool_loop x '' tools.json)
        for run in $(cp-toolloop runs | jq -r '.data.items[].ledger'); do jq -r 'select(.event == \"run_start\").data.model_command[0] | sub(\".*/\"; \"\")' \"$run\"; done";
    let ran = place.sh_with_loops(script).run();
    assert_eq!(ran.stdout, format!("{}{}", "Done.\n".repeat(4), "cp-loop-elixir\n".repeat(4)), "{ran:?}");
}

/// A shell in which the loops are found.
trait WithLoops {
    fn sh_with_loops(&self, script: &str) -> Program;
}

impl WithLoops for Place {
    fn sh_with_loops(&self, script: &str) -> Program {
        self.shell("sh", script).also_on_path(repository().join("scripts/backends"))
    }
}
