//! In the sandbox of somebody else: it ends, takes the layers that are left, and the policy decides whether they are enough.

use std::time::Duration;

use cp_testkit::Outcome;

use crate::exec::{Exec, POLICY, Who, everyone};
use crate::missing::without;

fn inside(exec: &Exec, arguments: &[&str]) -> Outcome {
    let layers = if exec.who == Who::Ordinary { "outer,ordinary" } else { "outer" };
    exec.command(arguments).under(without(exec), [layers]).limit(Duration::from_secs(30)).run()
}

fn policy(more: &str) -> String {
    POLICY.replace("intent =", &format!("{more}\nintent ="))
}

#[test]
fn refusal_in_outer_sandbox_names_sandbox_and_setting() {
    for who in everyone() {
        let exec = Exec::new(who);
        let ran = inside(&exec, &["--", "echo", "ran"]);
        if who == Who::Ordinary {
            // A user namespace gives it every other.
            let enforcement = &ran.data()["enforcement"];
            assert_eq!(
                (enforcement["outer_sandbox"].as_bool(), &enforcement["kill"]),
                (Some(true), &"pid_namespace".into())
            );
        } else {
            let details = &ran.failed(4, "E_FORBIDDEN")["details"];
            assert_eq!((&details["rule"], &details["layer"]), (&"require".into(), &"pid".into()), "{ran:?}");
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
    let exec = Exec::with_policy(root, &policy("degraded = \"allow\""));
    std::fs::write(exec.root.join("outside"), "before").unwrap();
    let script = "echo in >in; cat in; echo out >../outside; true";
    let ran = inside(&exec, &["--", "sh", "-c", script]);
    let data = ran.data();
    assert_eq!(data["stdout"], "in\n", "{ran:?}");
    assert_eq!(std::fs::read_to_string(exec.root.join("outside")).unwrap(), "before", "Landlock is left");
    let enforcement = &data["enforcement"];
    assert_eq!(enforcement["namespaces"].as_array().unwrap().len(), 0, "{enforcement}");
    assert_eq!((&enforcement["landlock"]["status"], &enforcement["kill"]), (&"full".into(), &"subreaper".into()));
    for layer in ["mount: ", "pid: ", "network: "] {
        assert!(enforcement["missing"].to_string().contains(layer), "{layer}: {enforcement}");
    }
    assert_eq!(exec.entries("exec.result").pop().unwrap()["data"]["enforcement"]["outer_sandbox"], true);
    // A layer that the policy requires is not given up.
    std::fs::write(exec.home.join("config/policy.toml"), policy("degraded = \"allow\"\nrequire = [\"mount\"]"))
        .unwrap();
    let error = inside(&exec, &["--", "echo", "ran"]).failed(4, "E_FORBIDDEN");
    assert_eq!(error["details"]["layer"], "mount", "{error}");
    assert_eq!(exec.ask(&["--", "echo", "ran"]).1, 0, "the control");
}
