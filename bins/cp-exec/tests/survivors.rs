//! Nothing that a command started outlives it, and the answer comes at the deadline.

use std::time::{Duration, Instant};

use cp_testkit::{Signal, required};

use crate::exec::{Exec, POLICY, SCRIPT, alive, everyone, policy_with, soon};

/// Starts children that hold standard output in every way, each with a word in its command line to be found by.
const DAEMONS: &str = include_str!("data/python/daemons.py");

fn word() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("survivor-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn no_child_survives_deadline() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        for how in ["child", "grandchild", "setsid", "double", "child,grandchild,setsid,double,deaf"] {
            let (exec, word) = (Exec::new(who), word());
            exec.write("daemons.py", DAEMONS);
            let started = Instant::now();
            let (answer, status) =
                exec.ask(&["--timeout", "1", "--", "python3", "-c", SCRIPT, "daemons.py", &word, how, "600"]);
            let took = started.elapsed();
            assert_eq!(status, 8, "{who:?} {how}: {answer}");
            let details = &answer["error"]["details"];
            assert_eq!(answer["error"]["code"], "E_TIMEOUT");
            assert_eq!(details["stdout"], "partial\n", "{who:?} {how}");
            assert_eq!(details["timed_out"], true);
            let reported = Duration::from_millis(details["duration_ms"].as_u64().unwrap());
            assert!(reported <= Duration::from_millis(1250), "{who:?} {how}: {reported:?}");
            assert!(took < Duration::from_secs(5), "{who:?} {how}: {took:?}");
            assert!(!alive(&word), "{who:?} {how}: something survived");
        }
    }
}

#[test]
fn process_outliving_command_is_killed_and_counted() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let (exec, word) = (Exec::new(who), word());
        exec.write("daemons.py", DAEMONS);
        let started = Instant::now();
        let (answer, status) =
            exec.ask(&["--", "python3", "-c", SCRIPT, "daemons.py", &word, "child,setsid,double", "0"]);
        assert_eq!(status, 0, "{answer}");
        assert_eq!(answer["data"]["stdout"], "partial\n");
        assert!(answer["data"]["duration_ms"].as_u64().unwrap() < 2000, "{answer}");
        assert!(started.elapsed() < Duration::from_secs(10));
        assert_eq!(answer["data"]["enforcement"]["killed_processes"], 3);
        assert!(!alive(&word), "{who:?}: something survived");
    }
}

#[test]
fn killed_cp_exec_leaves_no_process() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let (exec, word) = (Exec::new(who), word());
        exec.write("daemons.py", DAEMONS);
        let all = "child,grandchild,setsid,double,deaf";
        let child = exec.command(&["--", "python3", "-c", SCRIPT, "daemons.py", &word, all, "600"]).start();
        assert!(soon(|| alive(&format!("{word}-double"))), "{who:?}: the control did not start");
        child.kill();
        assert!(soon(|| !alive(&word)), "{who:?}: something survived");
    }
}

#[test]
fn command_that_exits_on_sigterm_has_timed_out() {
    let exec = Exec::new(everyone()[0]);
    let (answer, status) =
        exec.ask(&["--timeout", "1", "--", "sh", "-c", "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done"]);
    assert_eq!((status, answer["error"]["code"].as_str()), (8, Some("E_TIMEOUT")), "{answer}");
    assert_eq!(answer["error"]["details"]["stdout"], "bye\n");
    assert_eq!(answer["error"]["details"]["return_code"], 3);
}

#[test]
fn signal_ends_run_and_keeps_output() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let (exec, word) = (Exec::new(who), word());
        exec.write("daemons.py", DAEMONS);
        let child = exec.command(&["--", "python3", "-c", SCRIPT, "daemons.py", &word, "child,setsid", "600"]).start();
        assert!(soon(|| alive(&format!("{word}-setsid"))), "{who:?}: the control did not start");
        child.signal(Signal::TERM);
        let ran = child.finish();
        assert_eq!(ran.status, 130, "{ran:?}");
        let answer = ran.only();
        assert_eq!(answer["error"]["code"], "E_INTERRUPTED", "{answer}");
        assert_eq!(answer["error"]["details"]["stdout"], "partial\n");
        assert!(!alive(&word), "{who:?}: something survived");
        assert_eq!(exec.entries("exec.result").len(), 1);
    }
}

#[test]
fn signal_lets_command_clean_up() {
    const TRAP: &str = "trap 'echo bye; exit 3' TERM INT; touch ready; while :; do sleep 0.05; done";
    const SLOW: &str = "trap 'sleep 0.4; echo bye; exit 3' TERM INT; touch ready; while :; do sleep 0.05; done";
    const DEAF: &str = "trap '' TERM INT HUP; touch ready; while :; do sleep 0.05; done";
    // The shell of the line ends before its child.
    const CHILD: &str = "python3 -c 'import signal, sys, time
def end(*_): time.sleep(0.4); print(\"bye\"); sys.exit()
for one in signal.SIGTERM, signal.SIGINT: signal.signal(one, end)
open(\"ready\", \"w\").close(); time.sleep(60)'; true";
    // Only the signal of the keyboard ends a program in Python by an exception.
    const FINALLY: &str = "python3 -c 'import time
try: open(\"ready\", \"w\").close(); time.sleep(60)
finally: print(\"bye\")'";
    cp_testkit::needs!("python3");
    let all = [Signal::INT, Signal::TERM, Signal::HUP];
    let cases = [(TRAP, "bye\n"), (SLOW, "bye\n"), (CHILD, "bye\n"), (DEAF, ""), (FINALLY, "")];
    let cases = all.map(|signal| cases.map(|(script, stdout)| (signal, script, stdout)));
    for who in everyone() {
        for (signal, script, stdout) in who.turns(cases.concat()) {
            for door in [&["-c"][..], &["--", "sh", "-c"]] {
                let exec = Exec::new(who);
                let (word, started) = (word(), Instant::now());
                let script = format!("python3 -c \"import time; time.sleep(60)\" {word} >/dev/null 2>&1 & {script}");
                let is_keyboard_end = signal == Signal::INT && script.contains("finally");
                let stdout = if is_keyboard_end { "bye\n" } else { stdout };
                let child = exec.command(&[door, &[&script]].concat()).start();
                exec.wait_for("ready");
                child.signal(signal);
                let ran = child.finish();
                assert_eq!(ran.status, 130, "{who:?} {signal:?} {door:?} {script}: {ran:?}");
                let answer = ran.only();
                assert_eq!(answer["error"]["code"], "E_INTERRUPTED", "{answer}");
                assert_eq!(answer["error"]["details"]["stdout"], stdout, "{who:?} {signal:?} {door:?} {script}");
                assert!(started.elapsed() < Duration::from_secs(10) && !alive(&word), "{who:?} {script}");
                assert_eq!(exec.entries("exec.result").len(), 1);
            }
        }
    }
}

#[test]
fn killed_helper_ends_its_runs_and_is_restarted() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let (exec, word) = (Exec::new(who), word());
        exec.write("daemons.py", DAEMONS);
        let mut child = exec.command(&[]).start();
        let request = |argv: &[&str]| {
            serde_json::json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": argv}})
                .to_string()
                + "\n"
        };
        child.write(request(&[
            "python3",
            "-c",
            SCRIPT,
            "daemons.py",
            &word,
            "child,grandchild,setsid,double,deaf",
            "600",
        ]));
        assert!(soon(|| alive(&format!("{word}-double"))), "{who:?}: the control did not start");
        let children = format!("/proc/{0}/task/{0}/children", child.pid());
        let helper = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        let helper = rustix::process::Pid::from_raw(helper).unwrap();
        rustix::process::kill_process(helper, rustix::process::Signal::KILL).unwrap();
        assert_eq!(child.record()["ok"], false);
        assert!(soon(|| !alive(&word)), "{who:?}: something survived");
        child.write(request(&["echo", "again"]));
        assert_eq!(child.record()["data"]["stdout"], "again\n");
        child.finish().code(1);
    }
}

#[test]
fn run_without_namespaces_kills_all_processes() {
    cp_testkit::needs!("python3");
    // A user namespace with limits of zero simulates a machine without namespaces.
    let none = "for kind in user mnt pid net ipc uts; do echo 0 >/proc/sys/user/max_${kind}_namespaces || exit 77; done; exec \"$@\"";
    let (group, walk) = (policy_with("require = [\"cgroup\"]"), POLICY.to_owned());
    for (policy, is_group) in [(walk, false), (group, true)] {
        let policy = policy.replace("intent =", "degraded = \"allow\"\nintent =");
        let (exec, word) = (Exec::with_policy(everyone()[0], &policy), word());
        exec.write("daemons.py", DAEMONS);
        let all = "child,grandchild,setsid,double,deaf";
        let command = exec.command(&["--timeout", "2", "--", "python3", "-c", SCRIPT, "daemons.py", &word, all, "600"]);
        let ran = command.under("unshare", ["-Ur", "sh", "-c", none, "sh"]).run();
        if !required("a user namespace", !ran.stdout.is_empty()) {
            return;
        }
        let answer = ran.records().remove(0);
        let details = &answer["error"]["details"];
        // Most machines delegate no group of version 2.
        if is_group && details["layer"] == "cgroup" {
            continue;
        }
        assert_eq!(answer["error"]["code"], "E_TIMEOUT", "{answer}");
        assert_eq!(details["enforcement"]["namespaces"].as_array().unwrap().len(), 0, "{answer}");
        assert_eq!(details["enforcement"]["cgroup"], is_group, "{answer}");
        assert!(!alive(&word), "{is_group}: something survived");
    }
}
