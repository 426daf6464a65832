//! On a machine that lacks a layer, and in the sandbox of somebody else, the other layers hold, or nothing runs: the
//! policy decides.

use std::path::PathBuf;
use std::time::Duration;

use cp_testkit::{Outcome, required};
use serde_json::Value;

use crate::exec::{Exec, POLICY, SCRIPT, Who, alive, everyone, policy_with};

/// Compiles the program that takes layers away.
pub(crate) fn without(exec: &Exec) -> PathBuf {
    let program = exec.root.join("without");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/without.c");
    exec.program("cc").args(["-O1", "-o"]).arg(&program).arg(source).run().success();
    program
}

#[track_caller]
fn ask(exec: &Exec, layers: &str, arguments: &[&str]) -> Value {
    let without = without(exec);
    let user = if exec.who == Who::Ordinary { ",ordinary" } else { "" };
    let ran = exec.command(arguments).under(&without, [format!("{layers}{user}")]).run();
    ran.records().pop().unwrap_or_else(|| panic!("no answer: {ran:?}"))
}

#[test]
fn run_without_containing_layer_is_refused() {
    for who in everyone() {
        for layers in ["namespaces,landlock", "namespaces"] {
            let exec = Exec::new(who);
            let answer = ask(&exec, layers, &["--", "sh", "-c", "echo ran; touch ran"]);
            let details = &answer["error"]["details"];
            assert_eq!(answer["error"]["code"], "E_FORBIDDEN", "{who:?} {layers}: {answer}");
            assert_eq!((&details["rule"], &details["layer"]), (&"require".into(), &"namespaces".into()), "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("namespaces"), "{answer}");
            assert!(details["hint"].as_str().unwrap().contains("owner of the policy"), "{answer}");
            assert!(!exec.work.join("ran").exists());
            assert_eq!(exec.entries("exec.result").len(), 1);
            // The control: with the layers it runs.
            let control = exec.sh("echo ran").0;
            assert_eq!(control["data"]["stdout"], "ran\n", "{who:?}: {control}");
        }
    }
}

#[test]
fn degraded_run_requires_landlock() {
    for who in everyone() {
        let exec = Exec::with_policy(who, &policy_with("degraded = \"allow\""));
        let answer = ask(&exec, "namespaces,landlock", &["--", "touch", "ran"]);
        assert_eq!(answer["error"]["details"]["layer"], "landlock", "{who:?}: {answer}");
        assert!(!exec.work.join("ran").exists());
        let answer = ask(&exec, "namespaces", &["--", "touch", "ran"]);
        assert_eq!(answer["ok"], true, "the control: {answer}");
        let missing = answer["data"]["enforcement"]["missing"].to_string();
        for name in ["namespaces: ", "processes: ", "memory: "] {
            assert!(missing.contains(name), "{name}: {answer}");
        }
    }
}

#[test]
fn run_without_namespaces_records_other_layers() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, &policy_with("degraded = \"allow\""));
        let word = format!("daemon-{}", std::process::id());
        exec.write("d.py", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)\nprint('hi', flush=True)\ntime.sleep(600)\n");
        let answer = ask(&exec, "namespaces", &["--timeout", "1", "--", "python3", "-c", SCRIPT, "d.py", &word]);
        let details = &answer["error"]["details"];
        assert_eq!((&answer["error"]["code"], &details["stdout"]), (&"E_TIMEOUT".into(), &"hi\n".into()), "{answer}");
        let enforcement = &details["enforcement"];
        assert_eq!((&enforcement["cgroup"], &enforcement["landlock"]["status"]), (&false.into(), &"full".into()));
        assert_eq!(enforcement["namespaces"].as_array().unwrap().len(), 0, "{enforcement}");
        assert_eq!(enforcement["seccomp"], true);
        assert!(!enforcement["missing"].as_array().unwrap().is_empty());
        assert!(!alive(&word), "{who:?}: a process survived");
    }
}

#[test]
fn run_without_landlock_is_confined_by_view() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let paths = "\n[paths]\nread = [\".\"]\nwrite = [\".\"]\nexecute = [\"bin/**\"]\n";
        let exec = Exec::with_policy(who, &(POLICY.to_owned() + paths));
        let outside = exec.root.join("outside");
        std::fs::write(&outside, "outside").unwrap();
        exec.write("bin/x", "");
        let script = format!(
            "cat {0} || echo hidden; ls /etc/shadow /root /home /var/lib 2>/dev/null | grep -v '^$'; \
             cp /bin/true copy && (python3 -c 'import os; os.execv(\"./copy\", [\"copy\"])' 2>/dev/null && echo ESCAPED || echo refused); cp /bin/true bin/y && bin/y && echo built",
            outside.display()
        );
        let answer = ask(&exec, "landlock", &["--", "sh", "-c", &script]);
        assert_eq!(answer["data"]["stdout"], "hidden\nrefused\nbuilt\n", "{who:?}: {answer}");
        assert_eq!(answer["data"]["enforcement"]["landlock"]["status"], "none");
        assert!(answer["data"]["enforcement"]["missing"].to_string().contains("landlock: none"), "{answer}");
        // A layer that the policy requires is missing.
        exec.policy(&policy_with("require = [\"landlock\"]"));
        let answer = ask(&exec, "landlock", &["--", "true"]);
        assert_eq!(answer["error"]["details"]["layer"], "landlock", "{answer}");
        assert_eq!(exec.ask(&["--", "true"]).1, 0, "the control");
    }
}

#[test]
fn doctor_fails_if_no_run_is_possible() {
    for who in everyone() {
        let exec = Exec::new(who);
        let answer = ask(&exec, "namespaces", &["doctor"]);
        let checks = answer.to_string();
        assert!(checks.contains("nothing runs unless"), "{who:?}: {checks}");
        let answer = exec.ask(&["doctor"]).0.to_string();
        assert!(!answer.contains("nothing runs unless"), "{answer}");
        assert!(answer.contains("does not ask for a control group"), "{answer}");
    }
}

/// System calls by which the sandbox is built, and the layer that a refusal names; none where a run goes on and says
/// what it lacks.
const SETUP: [(&[u32], Option<&str>); 4] = [
    // pivot_root, mount, umount2, open_tree, move_mount, mount_setattr, chdir, mkdir, symlink, chmod
    (&[155, 165, 166, 428, 429, 442, 80, 83, 88, 90], Some("namespaces")),
    (&[126], Some("capabilities")), // capset
    (&[317], Some("seccomp")),      // seccomp
    (&[272, 444, 445, 446], None),  // unshare, and the calls of Landlock
];

#[test]
fn missing_system_call_refuses_run_or_keeps_layers() {
    if !required("the numbers of system calls", cfg!(target_arch = "x86_64")) {
        return;
    }
    let all = (0..=462).filter(|_| cp_testkit::is_long());
    for who in everyone() {
        let exec = Exec::new(who);
        let without = without(&exec);
        for number in SETUP.iter().flat_map(|(numbers, _)| *numbers).copied().chain(all.clone()) {
            for how in ["call", "refuse"] {
                let user = if who == Who::Ordinary { ",ordinary" } else { "" };
                let command = exec.command(&["--", "sh", "-c", "echo ran > ran"]);
                // Without some calls, such as wait4 or ppoll, it waits for ever.
                let command = command.under(&without, [format!("{how}={number}{user}")]);
                let ran = command.under("timeout", ["-k", "1", "5"]).run();
                let is_done = std::fs::remove_file(exec.work.join("ran")).is_ok();
                // cp-exec itself does not live without some calls, such as read or rt_sigreturn.
                let Some(answer) = ran.records().pop() else { continue };
                let said = format!("{who:?} {how}={number}: {answer}");
                let error = &answer["error"];
                let details = if answer["ok"] == true { &answer["data"] } else { &error["details"] };
                let enforcement = &details["enforcement"];
                if is_done {
                    assert_eq!(enforcement["seccomp"], true, "{said}");
                    for layer in ["mount", "pid", "network", "ipc", "uts"] {
                        assert!(enforcement["namespaces"].to_string().contains(layer), "{layer}: {said}");
                    }
                    let missing = enforcement["missing"].to_string();
                    assert!(enforcement["landlock"]["status"] == "full" || missing.contains("landlock: "), "{said}");
                }
                if let Some((_, Some(layer))) = SETUP.iter().find(|(known, _)| known.contains(&number)) {
                    assert!(!is_done, "{said}");
                    // cp-exec itself makes directories before it starts a run.
                    if error["code"] == "E_IO" || details["file"].is_string() {
                        continue;
                    }
                    assert!(error["code"] == "E_FORBIDDEN" && details["rule"] == "require", "{said}");
                    // If a user namespace grants no right to mount, an ordinary user gets no namespaces.
                    assert!([*layer, "namespaces"].iter().any(|layer| details["layer"] == *layer), "{said}");
                }
            }
        }
    }
}

/// Runs it in the sandbox of somebody else.
fn inside(exec: &Exec, arguments: &[&str]) -> Outcome {
    let layers = if exec.who == Who::Ordinary { "outer,ordinary" } else { "outer" };
    exec.command(arguments).under(without(exec), [layers]).limit(Duration::from_secs(30)).run()
}

#[test]
fn refusal_in_outer_sandbox_names_sandbox_and_setting() {
    for who in everyone() {
        let exec = Exec::new(who);
        let ran = inside(&exec, &["--", "echo", "ran"]);
        if who == Who::Ordinary {
            // A user namespace gives it every other.
            let enforcement = &ran.data()["enforcement"];
            assert_eq!(enforcement["outer_sandbox"], true, "{ran:?}");
        } else {
            let details = &ran.failed(4, "E_FORBIDDEN")["details"];
            assert_eq!((&details["rule"], &details["layer"]), (&"require".into(), &"namespaces".into()), "{ran:?}");
            assert_eq!(details["outer_sandbox"], true, "{ran:?}");
            let hint = details["hint"].as_str().unwrap();
            assert!(hint.contains("an outer sandbox is present") && hint.contains("degraded = \"allow\""), "{hint}");
        }
        let (control, status) = exec.ask(&["--", "echo", "ran"]);
        assert_eq!((status, &control["data"]["stdout"]), (0, &"ran\n".into()), "{control}");
        assert!(control["data"]["enforcement"].get("outer_sandbox").is_none(), "{control}");
    }
}

#[test]
fn policy_decides_if_remaining_layers_suffice() {
    let root = everyone()[0];
    if root == Who::Ordinary {
        return;
    }
    let exec = Exec::with_policy(root, &policy_with("degraded = \"allow\""));
    std::fs::write(exec.root.join("outside"), "before").unwrap();
    let script = "echo in >in; cat in; echo out >../outside; true";
    let ran = inside(&exec, &["--", "sh", "-c", script]);
    let data = ran.data();
    assert_eq!(data["stdout"], "in\n", "{ran:?}");
    assert_eq!(std::fs::read_to_string(exec.root.join("outside")).unwrap(), "before", "Landlock is left");
    let enforcement = &data["enforcement"];
    assert_eq!(enforcement["namespaces"].as_array().unwrap().len(), 0, "{enforcement}");
    assert_eq!((&enforcement["landlock"]["status"], &enforcement["cgroup"]), (&"full".into(), &false.into()));
    assert!(enforcement["missing"].to_string().contains("namespaces: "), "{enforcement}");
    assert_eq!(exec.entries("exec.result").pop().unwrap()["data"]["enforcement"]["outer_sandbox"], true);
    // A layer that the policy requires is not given up.
    exec.policy(&policy_with("degraded = \"allow\"\nrequire = [\"namespaces\"]"));
    let error = inside(&exec, &["--", "echo", "ran"]).failed(4, "E_FORBIDDEN");
    assert_eq!(error["details"]["layer"], "namespaces", "{error}");
    assert_eq!(exec.ask(&["--", "echo", "ran"]).1, 0, "the control");
}
