//! What programs expect of a system: a line does the same inside as outside, run by a plain shell of the same user.

use cp_testkit::counterpart;

use crate::exec::{Exec, Who, everyone, rows};

/// A policy that allows every program, with a network that lists no name.
const POLICY: &str = include_str!("data/policies/system.toml");

/// What a program expects, the program that shows it if not every machine has that, and a line that does so. Each line
/// prints what must be the same.
const EXPECTED: &str = include_str!("data/expected.tsv");

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

/// What stays closed inside. Each line succeeds outside, and the last ones only for root.
const CLOSED: &[(&str, &str)] = &[
    ("a key of the owner", "cat ../user/.ssh/id"),
    ("a hidden file", "cat .env"),
    ("another netlink protocol", "python3 -c 'import socket as s; s.socket(s.AF_NETLINK, s.SOCK_RAW, 16)'"),
    ("a traced process", "python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)'"),
    (
        "a limit of cores without a receiver",
        "python3 -c 'import resource as r; r.setrlimit(4, (0, 0)); exit(r.getrlimit(4)[1] != 0)'",
    ),
    ("a set-user-id file", "cp /bin/true s && chmod u+s s && test -u s"),
];

const CLOSED_FOR_ROOT: &[(&str, &str)] = &[
    ("the passwords", "head -c 1 /etc/shadow"),
    ("timers of the kernel", "cat /proc/timer_list >/dev/null"),
    ("settings of the kernel", "cat /proc/sys/kernel/hostname >h && cat h >/proc/sys/kernel/hostname"),
];

/// Runs a line inside and outside, and returns what both print, with their exit status.
fn both(exec: &Exec, line: &str) -> [(String, i32); 2] {
    let ran = [exec.command(&["--format", "raw", "-c", line]), exec.outside(line)].map(|program| {
        let certificates = exec.user.join("certificates/own.pem");
        let of_person = [("TERM", "vt100"), ("TZ", "AAA-3"), ("LC_TIME", "C"), ("COLUMNS", "77"), ("MINE", "secret")];
        let program = program.env("SSL_CERT_FILE", &certificates).env("NODE_EXTRA_CA_CERTS", &certificates);
        of_person.into_iter().fold(program, |program, (name, value)| program.env(name, value)).run()
    });
    ran.map(|ran| (format!("{}{}", ran.stdout, ran.stderr), ran.status))
}

#[test]
fn programs_find_what_they_expect_of_a_system() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.user.write("certificates/own.pem", CERTIFICATE);
        exec.work.directory("target");
        exec.write("threads.py", include_str!("data/python/threads.py"));
        exec.write("mqueue.py", include_str!("data/python/mqueue.py"));
        let mut different = Vec::new();
        for [what, program, line] in rows(EXPECTED) {
            if !program.is_empty() && counterpart(program).is_none() {
                continue;
            }
            let [inside, outside] = both(&exec, line);
            assert_eq!(outside.1, 0, "{who:?}: the control fails: {what}: {line}: {outside:?}");
            if inside != outside {
                different.push(format!("{what}: {line}\n  inside {inside:?}\n  outside {outside:?}"));
            }
        }
        assert!(different.is_empty(), "{who:?}:\n{}", different.join("\n"));
    }
}

#[test]
fn what_must_stay_closed_is_closed() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.user.write(".ssh/id", "key");
        exec.write(".env", "SECRET=1");
        let for_root = if exec.outside("id -u").run().stdout == "0\n" { CLOSED_FOR_ROOT } else { &[] };
        for (what, line) in CLOSED.iter().chain(for_root) {
            assert_eq!(exec.outside(line).run().status, 0, "{who:?}: the control fails: {what}: {line}");
            let inside = exec.command(&["--format", "raw", "-c", line]).run();
            assert_ne!(inside.status, 0, "{who:?}: {what}: {line}: {inside:?}");
        }
    }
}

#[test]
fn hidden_file_is_there_but_is_no_regular_file() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        exec.write(".env", "SECRET=1");
        exec.write("plain", "text");
        let kind = "for f in .env plain; do test -e $f && find $f -printf '%f %y %m\\n' && cat $f; done";
        let inside = exec.command(&["--format", "raw", "-c", kind]).run();
        assert_eq!(inside.stdout, ".env c 0\nplain f 644\ntext", "{who:?}: {inside:?}");
        assert!(inside.stderr.contains("Permission denied"), "{who:?}: {inside:?}");
    }
}

#[test]
fn names_of_loopback_lead_to_loopback_without_being_listed() {
    let names = "localhost app.localhost ip6-localhost $(hostname)";
    let line = format!("for n in {names}; do getent ahosts $n | cut -d ' ' -f 1; done | sort -u");
    for who in everyone() {
        let inside = Exec::with_policy(who, POLICY).command(&["--format", "raw", "-c", &line]).run();
        assert_eq!(inside.stdout, "127.0.0.1\n::1\n", "{who:?}: {inside:?}");
        assert_eq!(inside.stderr, "", "{who:?}");
    }
}

#[test]
fn variable_for_certificates_shows_no_other_file() {
    let key = CERTIFICATE.replace("CERTIFICATE", "PRIVATE KEY");
    for (what, text) in
        [("certificates", CERTIFICATE.to_owned()), ("a key too", key + CERTIFICATE), ("text", "x".to_owned())]
    {
        let exec = Exec::with_policy(Who::Me, POLICY);
        let file = exec.user.write("file", text);
        let program = exec.command(&["--format", "raw", "-c", "cat \"$CURL_CA_BUNDLE\""]);
        let status = program.env("CURL_CA_BUNDLE", &file).run().status;
        assert_eq!(status == 0, what == "certificates", "{what}");
    }
}

#[test]
fn hidden_file_that_repository_has_unchanged_is_shown() {
    for who in everyone() {
        let exec = Exec::with_policy(who, POLICY);
        for name in [".env", "fixtures/.env", "changed/.env", "plain"] {
            exec.write(name, name);
        }
        let made = "git init -q . && git add -f .env fixtures/.env changed/.env && \
            git -c user.name=n -c user.email=n@x.y commit -qm one && echo SECRET=1 >>changed/.env && echo S=2 >later.env";
        assert_eq!(exec.outside(made).run().status, 0);
        exec.write("untracked/.env", "SECRET=3");
        let shown = |name: &str| exec.command(&["--format", "raw", "-c", &format!("cat {name}")]).run();
        for name in [".env", "fixtures/.env", "plain"] {
            assert_eq!(shown(name).stdout, name, "{who:?}: {:?}", shown(name));
        }
        for name in ["changed/.env", "untracked/.env"] {
            assert_eq!((shown(name).stdout.as_str(), shown(name).status), ("", 1), "{who:?} {name}");
        }
        // The control: what the run adds to the index does not show itself.
        let added = "git update-index --add --cacheinfo 100644,$(git hash-object -w plain),untracked/.env";
        assert_eq!(exec.command(&["--format", "raw", "-c", added]).run().status, 0);
        assert_eq!(shown("untracked/.env").status, 1, "{who:?}");
    }
}

#[test]
fn secrets_in_home_of_environment_are_hidden_and_never_granted() {
    let policy = POLICY.replace("read = [\".\"]", "read = [\".\", \"../user\"]");
    for who in everyone() {
        let exec = Exec::with_policy(who, &policy);
        for name in [".ssh/id", ".netrc", ".config/gh/hosts.yml", "plain"] {
            let path = exec.user.write(name, "text").display().to_string();
            let ran = exec.command(&["--format", "raw", "-c", &format!("cat ../user/{name}")]).run();
            let (answer, status) = exec.ask(&["allow", "read", &path, "--dry-run"]);
            let expected = if name == "plain" { (0, 0) } else { (1, 4) };
            assert_eq!((ran.status, status), expected, "{who:?} {name}: {ran:?} {answer}");
        }
    }
}

#[test]
fn refusal_of_file_names_what_makes_it_run() {
    let exec = Exec::with_policy(Who::Me, POLICY);
    exec.write("other.py", "");
    exec.executable("run.sh", "#!/bin/sh\n");
    exec.executable("git", "#!/bin/sh\n");
    for (file, before) in [("other.py", "chmod +x "), ("run.sh", ""), ("git", "write `git`")] {
        let hint = exec.ask(&["--", &format!("./{file}")]).0["error"]["details"]["hint"].clone();
        let first = hint.as_str().unwrap().split("to allow it: cp-exec allow program ").next().unwrap();
        assert!(first.starts_with(before) && first.is_empty() == before.is_empty(), "{file}: {hint}");
    }
}
