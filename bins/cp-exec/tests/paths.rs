//! What the paths of a policy let a command see and write: paths that do not exist yet, shared memory, and
//! `--read-only`.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::exec::{Exec, POLICY, Who, everyone, policy_with};

/// The execute paths that `policy init` writes for a project.
pub(crate) fn project(who: Who) -> Exec {
    let paths = "[paths]\nread = [\".\"]\nwrite = [\".\"]\nexecute = [\"scripts/**\", \"tests/**\", \"target/**\", \"node_modules/**\"]\n";
    Exec::with_policy(who, &format!("{}\n{paths}", POLICY.replace("\"head\"", "\"head\", \"ls\", \"mkdir\", \"test\"")))
}

#[test]
fn missing_execute_directory_is_missing_for_command() {
    for who in everyone() {
        let exec = project(who);
        assert_eq!(exec.inside("ls -a | wc -l")["stdout"].as_str().unwrap().trim(), "2", "{who:?}");
        assert_eq!(exec.ask(&["--", "test", "-d", "node_modules"]).1, 1, "{who:?}");
        let (answer, status) = exec.ask(&["--", "mkdir", "tests"]);
        assert_eq!(status, 0, "{who:?}: {answer}");
        assert_eq!(exec.ask(&["--", "test", "-d", "tests"]).1, 0, "{who:?}: the control");
        assert_eq!(fs::read_dir(&*exec.work).unwrap().count(), 1, "{who:?}: only what the command made is there");
    }
}

#[test]
fn program_in_new_execute_directory_runs() {
    for who in everyone() {
        let exec = project(who);
        let build = "mkdir -p target/debug && printf '#!/bin/sh\\necho built\\n' > target/debug/x && chmod +x target/debug/x && ./target/debug/x";
        assert_eq!(exec.inside(build)["stdout"], "built\n", "{who:?}");
        assert_eq!(exec.inside("./target/debug/x")["stdout"], "built\n", "{who:?}: the next run");
        // The control: a policy without execute paths.
        let exec = Exec::new(who);
        assert_ne!(exec.sh(build).1, 0, "{who:?}");
    }
}

#[test]
fn root_directory_stands_for_the_directories_in_it() {
    let shown = ["/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/usr"];
    for who in everyone() {
        let exec = Exec::new(who);
        let all = fs::read_dir("/").unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        // The search of a whole machine takes long.
        let is_left = |path: &PathBuf| path.is_symlink() || shown.iter().any(|shown| path == Path::new(shown));
        let forbidden: Vec<PathBuf> = all.filter(|path| !is_left(path) && !exec.root.starts_with(path)).collect();
        let paths = format!("[paths]\nread = [\"/\"]\nwrite = [\".\"]\nforbidden = {forbidden:?}\n");
        exec.policy(&format!("{POLICY}\n{paths}"));
        let list = "ls -A /etc; ls -dA /usr/share";
        let own =
            "echo x >made && ls -d /tmp/home && test -e /proc/self/status && ! test -w /usr/share && ! cat /etc/shadow";
        let result = exec.inside(&format!("{list}; {own}"));
        let outside = exec.outside(list).run().stdout;
        assert_eq!(result["stdout"], format!("{outside}/tmp/home\n"), "{who:?}: {result}");
        assert_eq!((result["return_code"].as_i64(), exec.work.read("made").as_str()), (Some(0), "x\n"), "{result}");
    }
}

#[test]
fn declared_shared_memory_directory_is_visible_alone() {
    for who in everyone() {
        let directory = || {
            let made = tempfile::tempdir_in("/dev/shm").unwrap();
            fs::set_permissions(made.path(), fs::Permissions::from_mode(0o777)).unwrap();
            made
        };
        let (declared, _neighbour) = (directory(), directory());
        let at = declared.path().to_str().unwrap();
        let paths = format!("[paths]\nread = [\".\", \"{at}\"]\nwrite = [\"{at}\"]\n");
        let exec = Exec::with_policy(who, &format!("{POLICY}\n{paths}"));
        let result = exec.inside(&format!("echo made >{at}/file && ls -A /dev/shm"));
        assert_eq!(result["return_code"], 0, "{result}");
        assert_eq!(fs::read_to_string(declared.path().join("file")).unwrap(), "made\n");
        let name = declared.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(result["stdout"].as_str().unwrap().trim(), name);
    }
}

#[test]
fn read_only_command_has_no_writes_and_no_network() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, &policy_with("network = \"host\""));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        exec.write("kept", "kept");
        let script = format!(
            "import os, socket\nfor f in (lambda: open('new', 'w'), lambda: open('kept', 'w'), lambda: os.mkdir('d'), lambda: os.rename('kept', 'x'), lambda: os.chmod('kept', 0o600), lambda: socket.create_connection(('127.0.0.1', {}), 2).send(b'x')):\n    try:\n        f()\n        print('did', end=' ')\n    except OSError:\n        print('not', end=' ')\nopen('/tmp/x', 'w').write(open('kept').read())\n",
            address.port()
        );
        let asked = ["--read-only", "--", "python3", "-c", &script];
        let (answer, status) = exec.ask(&asked);
        assert_eq!(
            (status, answer["data"]["stdout"].as_str()),
            (0, Some("not not not not not not ")),
            "{who:?}: {answer}"
        );
        assert_eq!((exec.work.read("kept"), exec.work.names()), ("kept".to_owned(), vec!["kept".to_owned()]));

        let control = script.replace("os.rename('kept', 'x')", "os.rename('kept', 'x') or os.rename('x', 'kept')");
        let (answer, _) = exec.ask(&["--", "python3", "-c", &control]);
        assert_eq!(answer["data"]["stdout"], "did did did did did did ", "the control, {who:?}: {answer}");
        let mut sent = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, b"x");
    }
}

#[test]
fn read_only_file_operations_only_read() {
    for who in everyone() {
        let exec = Exec::new(who);
        exec.write("a", "text");
        let requests = "{\"tool\":\"filesystem\",\"operation\":\"write_file\",\"arguments\":{\"path\":\"b\",\"content\":\"x\"}}\n\
                        {\"tool\":\"filesystem\",\"operation\":\"read_file\",\"arguments\":{\"path\":\"a\"}}\n";
        let (answers, _) = exec.answers(&["--read-only"], requests);
        assert_eq!(answers[0]["error"]["code"], "E_FORBIDDEN", "{who:?}: {answers:?}");
        assert!(answers[1]["data"].to_string().contains("text") && !exec.work.join("b").exists());
        let (answers, _) = exec.answers(&[], requests);
        assert!(answers[0]["ok"] == true && exec.work.join("b").exists(), "the control, {who:?}: {answers:?}");
    }
}
