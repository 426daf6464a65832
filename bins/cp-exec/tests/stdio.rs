//! Standard input and output of a command.

use crate::exec::{Exec, POLICY, Who, everyone, program};

fn shell(arguments: &str) -> String {
    format!(r#"{{"tool":"shell","operation":"execute_command","arguments":{arguments}}}"#)
}

#[test]
fn standard_input_is_empty_by_default() {
    for who in everyone() {
        let exec = Exec::new(who);
        let result = exec.inside("cat; echo end");
        assert_eq!(result["stdout"], "end\n");
        let (answers, _) = exec.answers(&[], &shell(r#"{"argv":["cat"],"stdin":"given\n"}"#));
        assert_eq!(answers[0]["data"]["stdout"], "given\n", "{answers:?}");
        let (answers, _) = exec.answers(&["--stdin", "-", "--", "cat"], "piped\n");
        assert_eq!(answers[0]["data"]["stdout"], "piped\n", "{answers:?}");
    }
}

#[test]
fn full_standard_output_fails_and_effect_is_recorded() {
    let exec = Exec::new(Who::Me);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let again = |words: &[&str]| exec.command(words).stdout_to(full.try_clone().unwrap()).run().status;
    assert_eq!(again(&["--", "true"]), 1);
    assert_eq!(again(&["--format", "raw", "--", "echo", "a"]), 125);
    assert_eq!(again(&["agent", "--", "echo", "a"]), 1);
    assert_eq!(again(&["--format", "raw", "--", "true"]), 0, "the control");
    assert_eq!(exec.entries("exec.result").len(), 4);
}

#[test]
fn command_without_reader_ends_as_without_sandbox() {
    let exec = Exec::with_policy(Who::Me, &POLICY.replace("\"make\"", "\"yes\""));
    for words in ["--format raw --", "agent --"] {
        let script = format!(
            "{{ {} --home {} {words} yes; echo $? >status; }} | head -1",
            program().display(),
            exec.home.display()
        );
        let ran = exec.program("sh").args(["-c", &script]).run();
        assert_eq!((ran.stdout.as_str(), exec.work.read("status").as_str()), ("y\n", "141\n"), "{words}: {ran:?}");
    }
}

#[test]
fn raw_command_gets_standard_input_like_env() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let list = exec.write("list", "a\nb\nc\n");
        let sh = |script: &str| {
            let program = format!("{} --home {}", program().display(), exec.home.display());
            exec.program("sh").args(["-c", &script.replace("EXEC", &format!("{program} --format raw --"))]).run()
        };
        for (script, printed) in [
            ("printf 'a\\0b' | EXEC cat", "a\0b"),
            ("EXEC cat <list", "a\nb\nc\n"),
            ("EXEC cat </dev/null", ""),
            // A command that reads some of a file leaves the rest to the caller.
            ("{ EXEC head -n 1; echo rest; cat; } <list", "a\nrest\nb\nc\n"),
            ("while read -r f; do EXEC echo $f; done <list", "a\nb\nc\n"),
            ("mkfifo f; exec 3<>f; timeout 10 EXEC echo silent <&3", "silent\n"),
            // The pipe of the caller cannot be written.
            ("echo in | { EXEC python3 -c 'open(\"/proc/self/fd/0\", \"w\").write(\"out\")'; cat; }", ""),
        ] {
            let ran = sh(script);
            assert_eq!(ran.stdout, printed, "{who:?}: {script}: {}", ran.stderr);
        }
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "a\nb\nc\n");
        let hosted = exec
            .program("sh")
            .args([
                "-c",
                &format!(
                    "echo in | {} --home {} --format raw --hosted claude/s/c -- cat",
                    program().display(),
                    exec.home.display()
                ),
            ])
            .run();
        assert_eq!(hosted.stdout, "", "{hosted:?}");
    }
}

#[test]
fn stdin_file_cannot_be_changed_through_descriptor() {
    use std::os::unix::fs::PermissionsExt as _;
    const SCRIPT: &str = "import os\nassert os.read(0, 3) == b'abc'\nos.lseek(0, 0, 0)\nassert os.read(0, 9) == b'abc'\nos.fchmod(0, 0o777)\nopen('/proc/self/fd/0', 'w').write('X')\n";
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        let input = exec.root.join("input");
        std::fs::write(&input, "abc").unwrap();
        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let before = mode(&input);
        for (option, handed) in [(input.to_str().unwrap(), false), ("-", true)] {
            let words = ["--stdin", option, "--", "python3", "-c", SCRIPT];
            let command = exec.command(&words);
            let command = if handed { command.stdin_from(std::fs::File::open(&input).unwrap()) } else { command };
            let ran = command.run();
            let said = ran.records().pop().unwrap().to_string();
            assert!(!said.contains("AssertionError"), "{who:?}: {said}");
            assert_eq!(
                (mode(&input), std::fs::read_to_string(&input).unwrap()),
                (before, "abc".to_owned()),
                "{option}"
            );
        }
        // The control: the descriptor itself would do both.
        let outside = exec.program("python3").args(["-c", SCRIPT]).stdin_from(std::fs::File::open(&input).unwrap());
        outside.run().success();
        assert_eq!((mode(&input), std::fs::read_to_string(&input).unwrap()), (0o777, "X".to_owned()));
        // A longer file arrives completely through a pipe, and a command that does not read all of it blocks nothing.
        std::fs::write(&input, vec![b'x'; 20 << 20]).unwrap();
        for (script, said) in [("wc -c", "20971520\n"), ("head -c 3", "xxx")] {
            let words = ["--stdin", input.to_str().unwrap(), "--", "sh", "-c", script];
            assert_eq!(exec.ask(&words).0["data"]["stdout"], said);
        }
    }
}

#[test]
fn stdin_pipe_cannot_be_written_by_command() {
    const WRITE: &str = "import os\nos.write(os.open('/proc/self/fd/0', os.O_WRONLY), b'touch PLANTED\\n')\n";
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("write.py", WRITE);
        let inside = format!(
            "{} --home {} --stdin - -- python3 write.py",
            crate::exec::program().display(),
            exec.home.display()
        );
        for (line, planted) in [(inside.as_str(), false), ("python3 write.py", true)] {
            let bash = exec.program("bash").without_env("CP_HOME").stdin(format!("{line}\n"));
            bash.run();
            assert_eq!(exec.work.join("PLANTED").exists(), planted, "{who:?}: {line}");
        }
    }
}
