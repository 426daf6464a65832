//! The sandbox contains commands even if all checks are passed. Each denial has a control that shows the same action
//! succeeding.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::attempts::{inside, inside_with};
use crate::exec::{Exec, POLICY, Who, everyone, policy_with};

fn sha256(text: &[u8]) -> String {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(text).iter().fold(String::new(), |all, byte| all + &format!("{byte:02x}"));
    format!("sha256:{hash}")
}

#[test]
fn sockets_follow_the_network_and_the_flags_of_the_run() {
    cp_testkit::needs!("python3");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let script = include_str!("data/python/sockets.py").replace("PORT", &port);
    let [strict, loopback] = ["profile = \"strict\"", "network = \"loopback\""].map(policy_with);
    for who in everyone() {
        for (policy, options, is_open) in
            [(POLICY, &[][..], true), (&loopback, &[], true), (POLICY, &["--read-only"], false), (&strict, &[], false)]
        {
            let (found, result) = inside_with(&Exec::with_policy(who, policy), options, &script);
            let done: Vec<&str> =
                found.iter().filter(|(_, what)| *what == "done").map(|(name, _)| name.as_str()).collect();
            let open: &[&str] = if is_open { &["itself", "tcp", "udp", "udp6", "unix"] } else { &["unix"] };
            assert_eq!((done.as_slice(), found.len()), (open, 10), "{who:?} {policy} {options:?}: {result}");
        }
    }
}

#[test]
fn attributes_of_devices_of_machine_cannot_be_changed() {
    use std::os::unix::fs::MetadataExt as _;
    let change = "import os, sys
for name in sys.argv[1:]:
    for what in (lambda: os.chmod(name, os.stat(name).st_mode & 0o777), lambda: os.utime(name),
                 lambda: os.fchmod(os.open(name, os.O_RDWR), os.stat(name).st_mode & 0o777)):
        try: what(); print(name)
        except OSError: pass
try: os.fchmod(0, 0o666); print('stdin')
except OSError: pass";
    let devices = ["null", "zero", "full", "random", "urandom", "tty"].map(|name| format!("/dev/{name}"));
    let changed =
        || devices.clone().map(|device| fs::metadata(device).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap());
    let before = changed();
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("change.py", change);
        exec.write("own", "");
        exec.own_all();
        let found = exec.inside(&format!("echo x >/dev/null && python3 change.py {} own", devices.join(" ")));
        // The last one is the control.
        assert_eq!(found["stdout"], "own\nown\nown\n", "{who:?}: {found}");
        assert_eq!(changed(), before, "{who:?}");
        if who == Who::Me {
            let refused = exec.inside("chmod 666 /dev/null");
            assert!(refused["stderr"].as_str().unwrap().contains("/dev/null belong to the machine"), "{refused}");
        }
    }
}

#[test]
fn command_has_no_capabilities_for_any_user() {
    for who in everyone() {
        let exec = Exec::new(who);
        let result = exec.inside("cat /proc/self/status; ls -l /proc/self/fd; hostname");
        let out = result["stdout"].as_str().unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(out.contains(&format!("{set}:\t0000000000000000")), "{who:?} {set}: {out}");
        }
        assert!(out.contains("NoNewPrivs:\t1") && out.contains("Seccomp:\t2"), "{out}");
        let enforcement = &result["enforcement"];
        assert_eq!(enforcement["seccomp"], true);
        assert_eq!(enforcement["landlock"]["status"], "full", "this kernel has no Landlock: {enforcement}");
        assert!(enforcement["namespaces"].as_array().unwrap().contains(&"pid".into()), "{enforcement}");
        // Standard streams, and the descriptor that reads the directory.
        assert_eq!(out.lines().filter(|line| line.contains(" -> ")).count(), 4, "{out}");
    }
}

#[test]
fn strict_profile_runs_execute_path_without_neighbours() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/beside.c");
    for (who, link) in everyone().into_iter().flat_map(|who| ["-static", "-pie"].map(|link| (who, link))) {
        for profile in ["strict", "build"] {
            let paths = "[paths]\nread = [\".\"]\nwrite = [\".\"]\nexecute = [\"bin/**\"]\n";
            let policy = POLICY.replace("\"sh\"", "\"./bin/first\", \"sh\"");
            let policy = policy.replace("intent =", &format!("profile = \"{profile}\"\nintent =")) + paths;
            let exec = Exec::with_policy(who, &policy);
            exec.work.directory("bin");
            for name in ["first", "second"] {
                exec.program("cc")
                    .args(["-O1", link, "-o"])
                    .arg(exec.work.join("bin").join(name))
                    .arg(source)
                    .run()
                    .success();
            }
            let (alone, _) = exec.ask(&["--", "./bin/first"]);
            assert_eq!(alone["data"]["stdout"], "ran\n", "{who:?} {profile} {link}: {alone}");
            let (answer, _) = exec.ask(&["--", "./bin/first", "bin/second"]);
            let expected = match profile {
                "strict" => "read done, map refused, write refused\nexecute refused\n",
                _ => "read done, map done, write refused\nran\n",
            };
            assert_eq!(answer["data"]["stdout"], expected, "{who:?} {profile} {link}: {answer}");
        }
    }
}

#[test]
fn unknown_newer_system_calls_are_missing() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let (found, result) = inside(&Exec::new(who), include_str!("data/python/newer-calls.py"));
        assert!(found.len() > 140 && found.values().all(|what| what == "done"), "{who:?}: {result}");
    }
}

#[test]
fn control_group_limits_all_processes_together() {
    cp_testkit::needs!("python3");
    let exec = Exec::with_policy(Who::Me, &policy_with("require = [\"cgroup\"]\nprocesses = 40\nmemory = 300000000"));
    let (answer, _) = exec.ask(&["--", "true"]);
    // Most machines delegate no group of version 2.
    if answer["error"]["details"]["layer"] == "cgroup" {
        return;
    }
    let (found, result) = inside(&exec, include_str!("data/python/bomb.py"));
    assert_eq!(result["enforcement"]["cgroup"], true, "{result}");
    assert_eq!(found["bomb"], "refused", "{result}");
    // Each of them is within the limit, all of them are not.
    let (found, result) = inside(&exec, include_str!("data/python/memory.py"));
    assert_eq!((&*found["some"], &*found["all"]), ("done", "refused"), "{result}");
}

#[test]
fn repository_programs_run_inside_sandbox() {
    for who in everyone() {
        let exec = Exec::with_policy(who, "[exec]\nallowed_commands = [\"git\"]\n");
        let (root, outside) = (&exec.work, exec.root.join("escaped"));
        exec.write("file", "one\n");
        exec.write(".gitattributes", "file filter=evil diff=evil\n");
        let evil = format!("touch {}; touch ran; cat", outside.display());
        let git = |args: &[&str]| {
            let git = exec.program("git").args(["-c", "user.email=a", "-c", "user.name=a", "-c", "safe.directory=*"]);
            git.args(args).run().success();
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-qm", "a"]);
        for key in
            ["filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.evil.command", "diff.external"]
        {
            git(&["config", key, &evil]);
        }
        std::fs::write(root.join("file"), "two\n").unwrap();
        for line in ["git status", "git diff", "git add file"] {
            exec.ask(&["-c", line]);
            assert!(!outside.exists(), "{who:?} {line} reached outside");
        }
        assert!(root.join("ran").exists(), "{who:?}: the control did not run inside");
        // The other control: without the sandbox it does reach there.
        let git = exec.program("git").args(["-c", "safe.directory=*", "diff", "HEAD"]);
        git.env("GIT_PAGER", "cat").run();
        assert!(outside.exists(), "{who:?}: the control did not reach outside");
    }
}

#[test]
fn swapped_script_runs_with_hashed_text() {
    for who in everyone() {
        let policy = format!(
            "{}\n[paths]\nread = [\".\"]\nwrite = []\nexecute = [\"tool\"]\n",
            POLICY.replace("\"sh\",", "\"sh\", \"tool\",")
        );
        let exec = Exec::with_policy(
            who,
            &policy.replace("restricted", "pin = { tool = \"TOOL\" }\nrestricted").replace("TOOL", "/PIN/tool"),
        );
        let tool = exec.executable("tool", "#!/bin/sh\necho first\n");
        let policy = fs::read_to_string(exec.home.join("config/policy.toml")).unwrap();
        let policy = policy.replace("/PIN/tool", tool.to_str().unwrap());
        fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
        let (answer, status) = exec.ask(&["--", "tool"]);
        assert_eq!((status, answer["data"]["stdout"].as_str()), (0, Some("first\n")), "control: {answer}");

        // The ledger's lock holds the program between the decision and the start.
        let ledger = fs::File::open(exec.ledger()).unwrap();
        ledger.lock().unwrap();
        let before = fs::read_to_string(exec.ledger()).unwrap();
        let child = exec.command(&["--", "tool"]).start();
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!(fs::read_to_string(exec.ledger()).unwrap(), before, "it did not wait");
        fs::write(exec.work.join("other"), "#!/bin/sh\necho ESCAPED\n").unwrap();
        fs::set_permissions(exec.work.join("other"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(exec.work.join("other"), &tool).unwrap();
        ledger.unlock().unwrap();
        let answer = child.finish().only();
        assert_eq!(answer["data"]["stdout"], "first\n", "{who:?}: {answer}");
        let text = b"#!/bin/sh\necho first\n";
        assert_eq!(answer["data"]["exe"]["sha256"].as_str().unwrap(), sha256(text), "{who:?}: {answer}");
        // The control: what is there now runs when it is asked for now.
        assert_eq!(exec.ask(&["--", "tool"]).0["data"]["stdout"], "ESCAPED\n", "{who:?}");
    }
}
