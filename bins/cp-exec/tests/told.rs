//! Who learns why a program was refused, and that processes were ended: whoever reads the output.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::exec::{Exec, POLICY, everyone};
use crate::guard::{owner, repository};

const REASON: &str = "cp-exec: mount";

#[test]
fn refused_program_tells_reason_on_its_own_standard_error() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        for (way, script) in [
            ("pipe", "x=$(mount x 2>&1); echo \"read: $x\""),
            ("pipe of a program", "python3 -c 'import os; os.system(\"mount x\")' 2>&1 | sed 's/^/read: /'"),
            ("file", "mount x 2>log; sed 's/^/read: /' log"),
            (
                "socket",
                "python3 -c 'import socket, subprocess
a, b = socket.socketpair()
try: subprocess.run([\"/usr/bin/mount\"], stderr=b)
except PermissionError: print(\"read:\", a.recv(999).decode())'",
            ),
        ] {
            for door in [&["-c"][..], &["agent", "--", "sh", "-c"]] {
                let ran = exec.command(&[&["--format", "raw"], door, &[script]].concat()).run();
                assert!(ran.stdout.contains(&format!("read: {REASON}")), "{who:?} {way} {door:?}: {ran:?}");
                assert!(ran.stderr.contains(REASON), "the person reads it too: {who:?} {way} {door:?}: {ran:?}");
            }
        }
        for closed in ["2>&-", "2>/dev/null", "2>/dev/full", "2</dev/null"] {
            let ran = exec.command(&["--format", "raw", "-c", &format!("mount x {closed}; echo on")]).run();
            assert_eq!((ran.stdout.as_str(), ran.stderr.matches(REASON).count()), ("on\n", 1), "{closed}: {ran:?}");
        }
        let ran = exec.command(&["--format", "raw", "-c", "mount x; mount x 2>&1; true; echo on"]).run();
        assert_eq!((ran.stdout + &ran.stderr).matches(REASON).count(), 2, "each reader gets it once");
        // Nobody empties the pipe, and the run goes on.
        let full = "python3 -c 'import os, subprocess
r, w = os.pipe(); os.set_blocking(w, False)
try:
  while True: os.write(w, b\"x\" * 4096)
except BlockingIOError: os.set_blocking(w, True)
try: subprocess.run([\"/usr/bin/mount\"], stderr=w)
except PermissionError: print(\"on\")'";
        assert_eq!(exec.inside(full)["stdout"], "on\n", "{who:?}");
    }
}

#[test]
fn failed_command_that_names_hidden_path_or_unlisted_port_gets_guess() {
    let network = "[exec]\nnetwork = [\"a.test\", \"*.b.test:22\", \"c.test=127.0.0.1:8099\"]\n";
    for who in everyone() {
        let exec = Exec::with_policy(who, &POLICY.replacen("[exec]\n", network, 1));
        exec.write(".env", "secret\n");
        let shown = exec.root.directory("shown").display().to_string();
        exec.root.write("shown/file", "x\n");
        exec.confirmed(&["allow", "read", &shown]);
        exec.root.write("closed/file", "x\n");
        let closed = exec.root.join("closed").display().to_string();
        for (script, guess) in [
            ("cat .env", "which the policy hides"),
            ("echo x > /usr/lib/x", "belongs to the system"),
            ("echo x > /etc/hosts", "belongs to the system"),
            ("mkdir /usr/share/x", "belongs to the system"),
            ("echo x > ../shown/new", "`cp-exec allow write SHOWN` makes it writable"),
            ("echo x > ../shown/file", "`cp-exec allow write SHOWN/file` makes it writable"),
            ("cat ../closed/file", "`cp-exec allow read CLOSED/file` makes it readable"),
            ("echo x > ../closed/new", "`cp-exec allow write CLOSED` makes it writable"),
            ("touch ../closed/new", "`cp-exec allow write CLOSED` makes it writable"),
            ("cp .env.none ../closed/; touch x; cp x ../closed/", "`cp-exec allow write CLOSED` makes it writable"),
            ("mkdir ../closed/new", "`cp-exec allow write CLOSED` makes it writable"),
            ("cat none ../none; touch ../closed/none/new", ""),
            ("echo 'strace: PTRACE_TRACEME: Operation not permitted' >&2; false", "ASAN_OPTIONS=detect_leaks=0"),
            ("echo 'Failed to connect to A.test port 8080.' >&2; false", "`cp-exec allow network a.test:8080`"),
            ("echo 'request to http://x.b.test:80/y failed' >&2; false", "`cp-exec allow network x.b.test:80`"),
            (
                "echo 'connect to c.test port 8099 failed' >&2; false",
                "`cp-exec allow network c.test:8099=127.0.0.1:8099`",
            ),
            ("echo 'c.test:443 a.test:443 a.test 404 d.test:8080 x.b.test:22 b.test:1' >&2; false", ""),
            ("echo \"Error: EACCES: permission denied, open '$PWD/.env'\" >&2; false", "which the policy hides"),
            ("echo \"reads $PWD/.env\" >&2; false", "which the policy hides"),
            ("echo \"reads $PWD/.env.example and x.env\" >&2; false", ""),
            ("cat .env; true", ""),
            ("touch mine; chmod 0 mine; rm -f mine; cat mine", ""),
        ] {
            let guess = guess.replace("SHOWN", &shown).replace("CLOSED", &closed);
            if let Some((_, line)) = guess.split_once("`cp-exec allow write ") {
                let path = line.split('`').next().unwrap();
                assert_eq!(exec.ask(&["allow", "write", path, "--dry-run"]).1, 0, "{who:?} {path}");
            }
            for format in ["raw", "text", "json"] {
                let ran = exec.command(&["--format", format, "-c", script]).run();
                let told = ran.stdout.clone() + &ran.stderr;
                assert_eq!(
                    told.matches("a guess: ").count(),
                    usize::from(!guess.is_empty()),
                    "{who:?} {script}: {ran:?}"
                );
                assert!(told.contains(&guess), "{who:?} {format} {script}: {ran:?}");
            }
        }
        // Nobody proposes to write where an ordinary user cannot; the row of `touch` above is the control.
        if Some(&who) == everyone().last() {
            let shut = exec.root.directory("shut");
            fs::set_permissions(&shut, fs::Permissions::from_mode(0o555)).unwrap();
            let ran = exec.command(&["--format", "raw", "-c", "cat ../shut/none"]).run();
            assert!(ran.status == 1 && !ran.stderr.contains("a guess: "), "{ran:?}");
        }
    }
}

#[test]
fn failure_at_hidden_or_guarded_path_gets_guess_whatever_its_words_are() {
    let git =
        "git branch side && git checkout -q -b other && echo b >PATH && git commit -qam b && git checkout -q main";
    for who in everyone() {
        for (path, is_kept) in [(".env", true), (".vscode/settings.json", true), ("plain.txt", false)] {
            let exec = repository(who);
            exec.write(path, "a\n");
            exec.work.directory("sub");
            if path == ".env" {
                exec.write("sub/.gitignore", "x\n");
            } else {
                owner(&exec, &format!("git add {path} && git commit -qm c && {}", git.replace("PATH", path)));
            }
            let here = exec.work.display();
            let spellings = [path.to_owned(), format!("./{path}"), format!("{here}/{path}"), format!("sub/../{path}")];
            let operations = ["rm -f", "mv -t sub", "chmod 600", "git rm -qf"].map(|words| format!("{words} "));
            let mut scripts: Vec<String> = operations
                .iter()
                .flat_map(|words| spellings.iter().map(move |spelling| format!("{words}{spelling}; false")))
                .chain([format!("cd sub; rm -f ../{path}; false"), format!("cd {here}; rm -f {path}; false")])
                .collect();
            if path == ".env" {
                scripts.retain(|script| !script.starts_with("git"));
                scripts.extend(["git add -A; false", "cd sub; git add -A ..; false"].map(str::to_owned));
            } else {
                scripts
                    .extend(["git checkout -q other", "git merge -q other", "git rebase -q other"].map(str::to_owned));
            }
            for script in who.turns(scripts) {
                for format in ["raw", "json"] {
                    let ran = exec.command(&["--format", format, "-c", &script]).run();
                    let told = ran.stdout.clone() + &ran.stderr;
                    let is_told = told.contains("a guess: ") && told.contains(&format!("{here}/{path}"));
                    assert_eq!(is_told, is_kept, "{who:?} {script}: {ran:?}");
                    if path != ".env" {
                        owner(&exec, "git rebase --abort 2>&1; git checkout -qf main; git reset -q --hard side");
                    }
                }
            }
        }
    }
}

#[test]
fn failure_at_path_outside_of_view_gets_line_that_shows_it() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let operations =
            ["cat PATH/file", "ls PATH/", "cd PATH", "python3 -c 'open(\"PATH/file\")'", "git ls-remote PATH/r"];
        let spellings = ["ABSOLUTE", "../other", "./../other/.", "link"];
        let cases: Vec<String> = operations
            .iter()
            .flat_map(|operation| spellings.map(|spelling| operation.replace("PATH", spelling)))
            .collect();
        for script in who.turns(cases) {
            let exec = Exec::new(who);
            let other = exec.root.directory("other").display().to_string();
            exec.root.write("other/file", "x\n");
            exec.outside(&format!("git init -q --bare {other}/r")).run().success();
            std::os::unix::fs::symlink("../other", exec.work.join("link")).unwrap();
            let script = script.replace("ABSOLUTE", &other);
            let told = exec.command(&["--format", "raw", "-c", &script]).run().stderr;
            let (_, line) = told.split_once("a guess: ").unwrap_or_else(|| panic!("{who:?} {script}: {told}"));
            let line = line.split('`').nth(1).unwrap();
            let words: Vec<&str> = line.strip_prefix("cp-exec ").unwrap().split(' ').collect();
            exec.confirmed(&words);
            exec.command(&["--format", "raw", "-c", &script]).run().success();
        }
        // The controls: what exists nowhere, what a run has of its own, and what it sees.
        let exec = Exec::new(who);
        exec.root.write("other/file", "x\n");
        for (path, guess) in [
            ("nowhere", ""),
            ("../other/nowhere", "other is outside of the view of commands"),
            ("../other/nowhere/x", ""),
            ("/usr/nowhere", ""),
            ("../other/file", "`cp-exec allow read "),
            ("/proc/self/nowhere", ""),
            (std::env::current_exe().unwrap().to_str().unwrap(), "a guess: "),
        ] {
            let ran = exec.command(&["--format", "raw", "-c", &format!("cat {path}")]).run();
            assert!(ran.stderr.contains("No such file") && ran.stderr.contains(guess), "{who:?} {path}: {ran:?}");
            assert_eq!(ran.stderr.contains("a guess: "), !guess.is_empty(), "{who:?} {path}: {ran:?}");
        }
        let ran =
            exec.command(&["-c", "echo '/usr/bin/env: not found' >&2; echo \"$PWD: not found\" >&2; false"]).run();
        assert!(!ran.stdout.contains("a guess: "), "{who:?}: {ran:?}");
    }
}

#[test]
fn quarantined_files_are_named_in_every_format() {
    for who in everyone() {
        let exec = Exec::new(who);
        for format in ["raw", "text", "json"] {
            let status = if format == "raw" { 126 } else { 4 };
            for door in [&["-c"][..], &["--", "sh", "-c"], &["agent", "--", "sh", "-c"]] {
                for end in ["true", "exit 3"] {
                    let at = format!("{who:?} {format} {door:?} {end}");
                    let script = format!("echo x >.envrc; mkdir -p a; echo x >a/.bashrc; {end}");
                    let ran = exec.command(&[&["--format", format], door, &[&script]].concat()).run();
                    let is_live = door.contains(&"agent") && format != "json";
                    assert_eq!(ran.status, if is_live { 126 } else { status }, "{at}: {ran:?}");
                    let told = if format == "json" { ran.stdout.replace("\\n", "\n") } else { ran.stderr.clone() };
                    assert!(!told.contains("^J"), "{at}: {told}");
                    for name in [".envrc", "a/.bashrc"] {
                        let start = format!("{}: other programs execute", exec.work.join(name).display());
                        let line =
                            told.lines().find(|line| line.contains(&start)).unwrap_or_else(|| panic!("{at}: {ran:?}"));
                        let place = line.split_once("it is now ").unwrap().1;
                        assert!(Path::new(place).exists(), "{at}: {line}");
                    }
                    // The control.
                    let ran = exec
                        .command(&[&["--format", format], door, &[&format!("echo x >plain; {end}")]].concat())
                        .run();
                    let told = ran.stdout.clone() + &ran.stderr;
                    assert!(ran.status != status && !told.contains("other programs execute"), "{at}: {ran:?}");
                }
            }
        }
    }
}

#[test]
fn refused_name_tells_reason_on_standard_error_of_program() {
    cp_testkit::needs!("python3");
    let ask = |name: &str| format!("python3 -c \"import socket; socket.getaddrinfo('{name}', 443)\"");
    let line = "cp-exec: connection to a.test refused: the policy does not list this name; to allow it: cp-exec allow network a.test\n";
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        for (script, told) in [
            (format!("{} 2>told; cat told", ask("a.test")), line),
            // Only the first of equal refusals is explained.
            (format!("{0} 2>x; {0} 2>told; cat told", ask("a.test")), ""),
            // The stream of the run has the line of the supervisor.
            (format!("{} 2>&1", ask("a.test")), ""),
            (format!("{} 2>told; cat told", ask("localhost")), ""),
        ] {
            let ran = exec.command(&["--format", "raw", "-c", &script]).run();
            assert_eq!(
                ran.stdout.matches("cp-exec: ").count(),
                usize::from(!told.is_empty()),
                "{who:?} {script}: {ran:?}"
            );
            assert!(ran.stdout.contains(told), "{who:?} {script}: {ran:?}");
            let is_refused = script.contains("a.test");
            assert_eq!(ran.stderr.matches(line).count(), usize::from(is_refused), "{who:?} {script}: {ran:?}");
        }
    }
}

#[test]
fn ended_processes_are_reported_in_every_format() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.executable("tools/step", "#!/bin/sh\necho out; echo err >&2\n");
        let tools = exec.work.join("tools").display().to_string();
        for (script, message) in [
            ("nohup sleep 60 >/dev/null 2>&1 & echo started", "cp-exec: 1 process was still running and was ended"),
            ("sleep 60 & setsid sleep 60 & echo started", "cp-exec: 2 processes were still running and were ended"),
            ("sleep 0.01 & wait; seq 1 100000 | head -n 1 >/dev/null; echo started", ""),
        ] {
            for format in ["raw", "text", "json"] {
                let ran = exec.command(&["--format", format, "-c", script]).run();
                let told = ran.stdout.clone() + &ran.stderr;
                let count = told.matches("still running").count();
                assert_eq!(count, usize::from(!message.is_empty()), "{who:?} {format} {script}: {ran:?}");
                assert!(told.contains(message) && told.contains("started"), "{who:?} {format} {script}: {ran:?}");
            }
        }
        let arguments = json!({"argv": ["sh", "-c", "sleep 60 & echo started"]});
        let row = json!({"tool": "shell", "operation": "execute_command", "arguments": arguments}).to_string();
        let (answers, _) = exec.answers(&[], &row);
        assert!(answers[0].to_string().contains("1 process was still running"), "{who:?}: {answers:?}");
        // S1-09: the model reads standard error of a command that succeeds too, after its output.
        let asked = "python3 -c 'import socket; socket.getaddrinfo(\"a.test\", 80)' 2>&-; true";
        for (tool, script, stdout, told) in [
            ("bash", "printf out; echo err >&2", "out\n", "err\n"),
            ("bash", "echo err >&2; exit 3", "", "err\n"),
            ("bash", "echo out", "out\n", ""),
            ("bash", "sleep 60 & echo started", "started\n", "1 process was still running"),
            ("shell", "sleep 60 & echo started", "started\n", "1 process was still running"),
            ("bash", asked, "", "cp-exec allow network a.test"),
            ("step", "", "out\n", ""),
        ] {
            let script = if tool == "shell" { format!("sh -c '{script}'") } else { script.to_owned() };
            let result = exec.call(&["--tools", &tools], tool, &json!({"command": script}))["data"].clone();
            let content = result["content"].as_str().unwrap();
            let rest = content.strip_prefix(stdout);
            let is_told = rest.is_some_and(|rest| if told.is_empty() { rest.is_empty() } else { rest.contains(told) });
            assert!(is_told, "{who:?} {tool} {script}: {result}");
            assert_eq!(result["is_error"], script.contains("exit"), "{who:?} {tool} {script}: {result}");
        }
    }
}

#[test]
fn process_that_is_not_dumpable_starts_programs() {
    // prctl(PR_SET_DUMPABLE, 0)
    let hide = |start: &str| format!("perl -e 'syscall(157, 4, 0, 0, 0, 0); {start}'");
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        let started = exec.inside(&hide("exec \"echo\", \"started\""));
        assert_eq!(started["stdout"], "started\n", "{who:?}: {started}");
        let refused = exec.inside(&hide("exec \"/usr/bin/mount\", \"x\""));
        assert!(refused["stderr"].as_str().unwrap().contains(REASON), "{who:?}: {refused}");
    }
}
