//! Every function of `scripts/cp.sh`, sourced under each shell that it claims: what it prints, what it writes, what it
//! returns.

use std::path::Path;

use cp_testkit::{Outcome, Place, counterpart, is_sampled, repository};

use crate::cp_ask::ECHO;

/// The shells, each with its arguments before `-c`.
const SHELLS: [&[&str]; 6] = [&["bash"], &["dash"], &["busybox", "sh"], &["zsh"], &["mksh"], &["ksh93"]];

/// A fresh place and the shell that runs there.
struct Shell {
    name: &'static str,
    argv: &'static [&'static str],
    place: Place,
}

impl Shell {
    /// Runs a script after `cp.sh` was read.
    fn run(&self, script: &str) -> Outcome {
        let script = format!(". cp.sh\n{script}");
        let [program, before @ ..] = self.argv else { panic!("a shell has a name") };
        self.place.program(program).args(before).args(["-c", &script]).with_programs().env("CP_BACKEND", "stub").run()
    }

    /// Runs a script, which must print this.
    fn prints(&self, script: &str, expected: &str) {
        let ran = self.run(script);
        assert_eq!(ran.stdout, expected, "{}: {script}\nstderr: {}", self.name, ran.stderr);
    }

    fn file(&self, name: &str) -> String {
        self.place.work.read_if_there(name)
    }

    fn write(&self, name: &str, text: &str) {
        self.place.work.write(name, text);
    }

    fn tool(&self, name: &str, script: &str) {
        self.place.work.executable(name, script);
    }
}

/// Checks in bash, dash and one of the other shells, which differs from test to test, or in all of them.
#[track_caller]
fn each(check: impl Fn(&Shell)) {
    each_of(std::panic::Location::caller().line() as usize, check);
}

fn each_of(offset: usize, check: impl Fn(&Shell)) {
    let all = SHELLS.into_iter().enumerate();
    for (_, argv) in all.filter(|(at, _)| *at < 2 || is_sampled(*at, offset, SHELLS.len() - 2)) {
        if !["bash", "dash"].contains(&argv[0]) && counterpart(argv[0]).is_none() {
            continue;
        }
        check(&Shell { name: argv[0], argv, place: Place::new() });
    }
}

const NOW: &str = "2026-02-12T10:00:00.000000Z";
const PIN: &str = "export CP_NOW=2026-02-12T10:00:00Z\n";

#[test]
fn log_event_writes_the_bare_line() {
    each(|shell| {
        let script = format!(
            "{PIN}LOG_FILE='a b.jsonl' log_event user_input hi
            (export SHELLCLAW_AGENT_ID=ada; LOG_FILE='a b.jsonl' log_event -x -y)
            LOG_FILE='a b.jsonl' log_event e -
            LOG_FILE='a b.jsonl' log_event e"
        );
        shell.prints(&script, "");
        let line = |agent: &str, event: &str, message: &str| {
            format!("{{\"ts\":\"{NOW}\",\"agent\":\"{agent}\",\"event\":\"{event}\",\"message\":\"{message}\"}}\n")
        };
        let expected = [
            line("default", "user_input", "hi"),
            line("ada", "-x", "-y"),
            line("default", "e", "-"),
            line("default", "e", ""),
        ];
        assert_eq!(shell.file("a b.jsonl"), expected.concat());
    });
}

#[test]
fn a_message_arrives_byte_for_byte_however_odd_or_long() {
    each(|shell| {
        let odd = "a\"b\\c $x `y` $(touch pwned) 'z'\n\tänd — 🦀 %s \\n";
        shell.write("odd", odd);
        shell.prints(
            "LOG_FILE=l; log_event e \"$(cat odd)\"; log_event e \"$(head -c 200000 /dev/zero | tr '\\0' x)\"
            session_append s user \"$(cat odd)\"; session_append s user \"$(head -c 200000 /dev/zero | tr '\\0' x)\"
            jq -r .message l | head -n 2; jq -r .content s | head -n 2; jq -s 'map(length)' -c l s; tail -qn 1 l s | jq '.message // .content | length'",
            &format!("{odd}\n{odd}\n[4,4,3,3]\n200000\n200000\n"),
        );
        assert!(!shell.place.work.join("pwned").exists());
    });
}

#[test]
fn secrets_are_taken_out_of_bare_lines() {
    each(|shell| {
        shell.run("LOG_FILE=l log_event e 'password=hunter2hunter'; session_append s user 'password=hunter2hunter'");
        for file in ["l", "s"] {
            let text = shell.file(file);
            assert!(text.contains("password=[REDACTED:") && !text.contains("hunter2"), "{file}: {text}");
        }
    });
}

#[test]
fn log_event_goes_on_the_ledger_where_no_file_is_named_or_the_file_is_one() {
    each(|shell| {
        shell.prints(
            "log_event one 'a
b'; cp-log append -f own.jsonl first >/dev/null; LOG_FILE=own.jsonl log_event two -
            cp-log query --event one --format raw | jq .message; cp-log query own.jsonl --event two --format raw | jq .message; cp-log verify own.jsonl | jq .ok",
            "\"a\\nb\"\n\"-\"\ntrue\n",
        );
        shell.prints(
            "LOG_FILE=no/where log_event e m; echo $?; log_event 2>&1; echo $?",
            "1\nlog_event: expected: log_event EVENT [MESSAGE]\n1\n",
        );
    });
}

#[test]
fn config_init_reads_the_file_for_names_without_a_value() {
    each(|shell| {
        shell.run("cp-shell init >/dev/null");
        let home = &shell.place.home;
        std::fs::write(
            home.join("config/cp.env"),
            "# a comment\n\nexport CP_MODEL=\"gpt x\"   # the model\r\nCP_BACKEND=other\nLOG_FILE='a $b `c` \"d\"'\nSHELLCLAW_DEFAULT_AGENT=ada\nSHELLCLAW_OTHER=1\nCP_TIER=ho2",
        )
        .unwrap();
        shell.prints(
            "config_init; echo \"$CP_MODEL|$CP_BACKEND|$LOG_FILE|$CP_AGENT|$CP_TIER|$SHELLCLAW_MODEL|$SHELLCLAW_DEFAULT_AGENT\"
            [ \"$SHELLCLAW_HOME\" = \"$CP_HOME\" ] && sh -c 'echo $CP_MODEL'
            config_get model; config_get SHELLCLAW_MODEL; config_get tier; config_get SHELLCLAW_TOOL_BACKEND; config_get LOG_FILE
            config_agent default soul; config_agent default model",
            "gpt x|stub|a $b `c` \"d\"|ada|ho2|gpt x|ada\ngpt x\ngpt x\ngpt x\nho2\nnative\na $b `c` \"d\"\nagents/default/soul.md\n",
        );
        shell.prints(
            "CP_MODEL=mine; config_get model; unset CP_MODEL; SHELLCLAW_MODEL=older; config_get model",
            "mine\nolder\n",
        );
        let home = home.display();
        shell.prints("unset CP_HOME; SHELLCLAW_HOME=../home; config_get SHELLCLAW_HOME >&2; config_get tier", "ho2\n");
        shell.prints("config_get SHELLCLAW_HOME", &format!("{home}\n"));
        shell.prints("config_get nope 2>/dev/null; echo $?; config_agent nobody soul; echo $?; config_agent default nope; echo $?", "3\n0\n0\n");
    });
}

#[test]
fn the_last_line_counts_and_what_the_environment_has_later_wins() {
    each(|shell| {
        for (home, model) in [("one", "first"), ("two", "second")] {
            let text =
                format!("CP_MODEL=old\nSHELLCLAW_DEFAULT_AGENT=default\nSHELLCLAW_AGENT_ID=ada\nCP_MODEL={model}\n");
            shell.write(&format!("{home}/config/cp.env"), &text);
        }
        shell.prints(
            "config_init one; config_get model; config_get default_agent; echo \"$CP_MODEL $SHELLCLAW_MODEL ${CP_HOME##*/}\"
            (SHELLCLAW_MODEL=later; config_get model; config_get SHELLCLAW_MODEL; CP_MODEL=mine; config_get model)
            (export SHELLCLAW_HOME=two; config_get model; config_get home) | sed 's,.*/,,'
            config_init two/config; config_get model; config_init none 2>/dev/null; echo $?; config_get model",
            "first\nada\nfirst first one\nlater\nlater\nmine\nsecond\ntwo\nsecond\n1\nsecond\n",
        );
        shell.prints(
            "export SHELLCLAW_MODEL=env; config_init one; config_get model; echo $CP_MODEL; config_init two; config_get model",
            "env\nenv\nenv\n",
        );
    });
}

#[test]
fn what_is_not_utf8_and_what_is_long_is_kept() {
    each(|shell| {
        shell.tool("echo", ECHO);
        shell.prints(
            "LOG_FILE=l log_event \"$(printf 'e\\351')\" \"$(printf 'caf\\351 ok')\"; jq -r '.event + .message' l
            long=$(head -c 200000 /dev/zero | tr '\\0' x)
            CP_BACKEND=./echo llm_call --system \"$long\" hi | jq '.[0] | length'",
            "e\u{fffd}caf\u{fffd} ok\n200000\n",
        );
    });
}

#[test]
fn what_is_no_assignment_is_said_with_its_line_and_nothing_is_executed() {
    each(|shell| {
        let directory = shell.place.home.join("config");
        std::fs::create_dir_all(&directory).unwrap();
        for (line, complaint) in [
            ("touch pwned", "expected NAME=VALUE"),
            ("$(touch pwned)", "expected NAME=VALUE"),
            ("CP_MODEL=$(touch pwned)", "nothing is expanded"),
            ("CP_MODEL=\"`touch pwned`\"", "nothing is expanded"),
            ("CP_MODEL=\"a", "nothing is expanded"),
            ("CP_MODEL=a b", "after the value"),
            ("CP_MODEL='a'; touch pwned", "after the value"),
            ("PATH=/tmp", "PATH is not read"),
            ("CP_MODELL=a", "CP_MODELL is not read"),
            ("A[$(touch pwned)]=x", "is not read"),
        ] {
            std::fs::write(directory.join("cp.env"), format!("# first\n{line}\nCP_TIER=ho2\n")).unwrap();
            let ran = shell.run("config_init; echo $?; [ -z \"$CP_TIER\" ] && echo unset");
            assert_eq!(ran.stdout, "1\nunset\n", "{}: {line}: {}", shell.name, ran.stderr);
            assert!(ran.stderr.contains("cp.env: line 2") && ran.stderr.contains(complaint), "{line}: {}", ran.stderr);
        }
        // What follows a name that is not quoted is still no command.
        std::fs::write(directory.join("cp.env"), "CP_MODEL='$(touch pwned)'\n").unwrap();
        shell.prints("config_init && echo \"$CP_MODEL\"", "$(touch pwned)\n");
        assert!(!shell.place.work.join("pwned").exists());
        std::fs::write(directory.join("cp.env"), "").unwrap();
        std::fs::write(directory.join("agents.json"), "{").unwrap();
        let ran = shell.run("config_init; echo $?");
        assert_eq!(ran.stdout, "1\n");
        assert!(ran.stderr.contains("agents.json"), "{}", ran.stderr);
    });
}

/// Scripts in a fresh place, and what they print.
const STORIES: [(&str, &str); 6] = [
    (
        "for n in 1 2 3; do session_append s.jsonl user $n; session_clear s.jsonl; done; session_clear s.jsonl; session_clear new.jsonl
            session_count s.jsonl; cat s.*.jsonl | jq -r .content | sort | tr '\\n' ' '; ls s.*.jsonl | wc -l; ls new*",
        "0\n1 2 3 3\nnew.jsonl\n",
    ),
    (
        r#"printf '%s\n' '{"role":"user","content":"a"}' broken 42 >d.jsonl; printf '{"role":"user"' >>d.jsonl
        session_append d.jsonl user after; session_load d.jsonl"#,
        "user: a\ndamaged line: broken\ndamaged line: 42\ndamaged line: {\"role\":\"user\"\nuser: after\n",
    ),
    (
        "long=$(head -c 9000 /dev/zero | tr '\\0' x)
            for n in 1 2 3 4 5 6 7 8 9 10 11 12; do session_append s.jsonl user \"$n$long\" & done; wait
            session_count s.jsonl; jq -r '.content | length >= 9001' s.jsonl | sort | uniq -c | tr -s ' '",
        "12\n 12 true\n",
    ),
    (
        "S=$(cp-session start --format text); session_append $S user 'hi
there'; session_append $S assistant -
            session_load $S 1; session_count $S; session_load \"$CP_HOME/planes/ho1/sessions/$S\" 1
            session_load \"$CP_HOME/planes/ho1/sessions/$S/session.jsonl\"; (export CP_SESSION=$S; session_count '')
            session_append $S system x 2>/dev/null; echo $?; session_append '' user x 2>/dev/null; echo $?
            session_append $S user more; session_compact $S 1; session_load $S | head -n 2 | cut -d: -f1
            session_clear $S; session_count $S; session_count SES-none 2>/dev/null; echo $?",
        "assistant: -\n2\nassistant: -\nuser: hi\nthere\nassistant: -\n2\n1\n1\nuser\nassistant\n0\n1\n",
    ),
    (
        "llm_call_stub x; llm_call_stub y; z=$(llm_call_stub z); echo \"$z\"; echo m | llm_call_stub | cat; (llm_call_stub)",
        "stub response 1\nstub response 2\nstub response 3\nstub response 4\nstub response 5\n",
    ),
    (
        r#"echo '[]' >tools.json; echo '{"tool_calls":[{"name":"weather","input":{}},{"name":"shell","input":{}}]}' >calls; echo '{"content":"Done."}' >>calls
        CP_STUB_SCRIPT=calls LOG_FILE=l tool_loop 'Rome?' '' tools.json >/dev/null; grep -c 'Tool not permitted' l"#,
        "2\n",
    ),
];

#[test]
fn each_story_prints_what_it_says() {
    for (at, (script, expected)) in STORIES.into_iter().enumerate() {
        each_of(at, |shell| shell.prints(script, expected));
    }
}

#[test]
fn a_conversation_is_kept_in_a_file_of_lines() {
    each(|shell| {
        let script = format!(
            "{PIN}session_append s.jsonl user hi; session_append s.jsonl assistant 'two
lines'; session_append s.jsonl system -; session_load s.jsonl 2; session_count s.jsonl; session_load s.jsonl | wc -l; session_load s.jsonl 0"
        );
        shell.prints(&script, "assistant: two\nlines\nsystem: -\n3\n4\n");
        let first = shell.file("s.jsonl").lines().next().unwrap().to_owned();
        assert_eq!(first, format!("{{\"ts\":\"{NOW}\",\"role\":\"user\",\"content\":\"hi\"}}"));
        shell.prints("session_count none; session_load none; echo $?; session_load s.jsonl x 2>/dev/null; echo $?; session_append s.jsonl user 2>/dev/null; echo $?", "0\n0\n1\n1\n");
    });
}

#[test]
fn llm_call_asks_with_exactly_the_system_text_given_and_continues_on_request() {
    each(|shell| {
        shell.tool("echo", ECHO);
        shell.run("cp-shell init >/dev/null");
        let ran = shell.run(
            "export CP_BACKEND=./echo; llm_call 'a\"b\n$(c)' --system '@be' --model m1; llm_call --continue next -m m2
            echo piped | llm_call -c -s -s; llm_call -- -fresh; cp-ask session | grep -c :",
        );
        let told = ran.records();
        let first = r#"["@be","m1","a\"b\n$(c)"]"#;
        assert_eq!(told[0].to_string(), first, "{}", ran.stderr);
        assert_eq!(told[1], serde_json::json!([null, "m2", "a\"b\n$(c)", first, "next"]));
        assert_eq!((&told[2][0], &told[2][6]), (&"-s".into(), &"piped".into()));
        assert_eq!((told[3][2].as_str(), told[3].as_array().map(Vec::len)), (Some("-fresh"), Some(3)));
        assert_eq!(told[4], 2, "cp-ask and llm_call have one conversation");
    });
}

#[test]
fn llm_call_returns_one_for_every_failure_and_says_why() {
    each(|shell| {
        shell.write("fails", "{\"error\":{\"code\":\"E_AUTH\",\"message\":\"no key\"}}\n");
        let ran = shell.run("CP_STUB_SCRIPT=fails llm_call hi; echo $?; llm_call a b; echo $?; llm_call --wrong; echo $?; llm_call hi --system; echo $?; llm_call </dev/null; echo $?");
        assert_eq!(ran.stdout, "1\n1\n1\n1\n1\n", "{}", ran.stderr);
        for said in ["no key", "more than one message", "unknown option --wrong", "--system needs a value", "empty"] {
            assert!(ran.stderr.contains(said), "{said}: {}", ran.stderr);
        }
    });
}

#[test]
fn compose_system_prints_the_soul_and_the_context_of_a_directory() {
    each(|shell| {
        shell.write("sre/soul.md", "You read logs.\n");
        shell.write("sre/context/1.md", "The db is db-1.\n");
        shell.write("sre/context/2.md", "password=hunter2hunter\n");
        let home = &shell.place.home;
        std::fs::create_dir_all(home.join("agents/ada")).unwrap();
        std::fs::write(home.join("agents/ada/soul.md"), "I am Ada.\n").unwrap();
        shell.prints(
            "compose_system sre; compose_system \"$CP_HOME/agents/ada\"; compose_system none 2>/dev/null; echo $?; compose_system 2>/dev/null; echo $?",
            "You read logs.\n\nThe db is db-1.\n\npassword=[REDACTED:assignment]\nI am Ada.\n1\n1\n",
        );
        assert!(!Path::new(&home).join("ledger").exists(), "nothing was written");
    });
}

const WEATHER: &str = "#!/bin/sh\njq -r '\"sunny in \" + .city'\n";
const CALLS: &str = "{\"tool_calls\":[{\"name\":\"weather\",\"input\":{\"city\":\"Rome $(touch pwned)\"}},{\"name\":\"shell\",\"input\":{\"command\":\"ls\"}}]}\n{\"content\":\"It is sunny.\\nYes.\"}\n";

#[test]
fn tool_loop_returns_zero_one_and_two_and_logs_each_iteration() {
    each(|shell| {
        shell.tool("skills/weather.sh", WEATHER);
        shell.write("tools.json", "[{\"name\":\"weather\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\",\"required\":[\"city\"]}}]");
        shell.write("calls", CALLS);
        shell.write("fails", "{\"error\":{\"code\":\"E_AUTH\",\"message\":\"no key\"}}\n");
        let script = "export SHELLCLAW_SKILLS_DIR=skills CP_STUB_SCRIPT=calls LOG_FILE=l
            tool_loop 'Rome?' '@be' tools.json 5; echo $?; jq -r '\"\\(.event) \\(.message)\"' l
            tool_loop 'Rome?' '' tools.json 1 2>/dev/null; echo $?
            CP_STUB_SCRIPT=fails; tool_loop 'Rome?' '' tools.json; echo $?; tool_loop x '' none.json; echo $?; tool_loop x; echo $?
            tool_loop x '' tools.json many; echo $?; printf '[' >bad.json; tool_loop x '' bad.json; echo $?";
        let ran = shell.run(script);
        let said = "It is sunny.\nYes.\n0\niteration 1\nrequest Rome?\ntool_call weather {\"city\":\"Rome $(touch pwned)\"}\n\
            tool_result weather: sunny in Rome $(touch pwned)\n\ntool_call shell {\"command\":\"ls\"}\n\
            tool_result shell failed: Tool not permitted: shell\niteration 2\nresponse It is sunny.\nYes.\n2\n1\n1\n1\n1\n1\n";
        assert_eq!(ran.stdout.replace("\n\n", "\n"), said.replace("\n\n", "\n"), "{}: {}", shell.name, ran.stderr);
        for complaint in
            ["no key", "none.json: no such file", "MAX_ITERATIONS must be a number", "bad.json: not a list of tools"]
        {
            assert!(ran.stderr.contains(complaint), "{complaint}: {}", ran.stderr);
        }
        assert!(!shell.place.work.join("pwned").exists());
    });
}

#[test]
fn reading_the_file_changes_nothing_and_strict_shells_can_use_it() {
    each(|shell| {
        let ran = shell.run("").stderr;
        assert_eq!(ran, "", "{}", shell.name);
        assert!(!shell.place.home.exists());
        let strict = if shell.name == "bash" { "set -euo pipefail -C" } else { "set -eu -C" };
        shell.prints(
            &format!(
                "{strict}; before=$(set | grep -v '^_=\\|^_AST\\|^BASH\\|^PIPESTATUS\\|^before' | grep -c =); pwd=$PWD
                (export LOG_FILE=l; log_event e m); session_append s user a; session_clear s; session_count s; session_load s; llm_call_stub x; llm_call_stub x
                llm_call hi; llm_call -c again | cat; mkdir d; echo soul >d/soul.md; compose_system d; config_get model; config_agent default soul
                tool_loop hi '' d/none || echo $?; [ \"$pwd\" = \"$PWD\" ]; trap
                [ \"$before\" = \"$(set | grep -v '^_=\\|^_AST\\|^BASH\\|^PIPESTATUS\\|^before\\|^pwd' | grep -c =)\" ] && echo same; config_init; echo \"$CP_BACKEND\""
            ),
            "0\nstub response 1\nstub response 2\nstub response 1\nstub response 2\nsoul\n1\nsame\nstub\n",
        );
    });
}

#[test]
fn no_setting_of_the_form_of_output_reaches_the_functions() {
    each(|shell| {
        let config = shell.place.home.join("config");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::write(config.join("cp.toml"), "format = \"text\"\n").unwrap();
        shell.write("calls", "{\"content\":\"Done.\"}\n");
        shell.prints(
            "export CP_FORMAT=text; (export LOG_FILE=l; log_event e m); session_append s user a; session_load s; llm_call hi; llm_call -c hi
            CP_STUB_SCRIPT=calls tool_loop hi '' \"$CP_HOME\"; cp-ask -c hi; cp-ask session | wc -l; config_get agent; echo $CP_FORMAT; wc -l <l",
            "user: a\nstub response 1\nstub response 2\nDone.\nstub response 3\n6\ndefault\ntext\n1\n",
        );
    });
}

#[test]
fn what_is_longer_than_a_line_is_refused() {
    each(|shell| {
        let ran = shell.run("long=$(head -c 1100000 /dev/zero | tr '\\0' x); session_append s user \"$long\"; echo $?; LOG_FILE=s log_event e \"$long\"; echo $?; cat s");
        assert_eq!(ran.stdout, "1\n1\n", "{}", ran.stderr);
        assert!(ran.stderr.contains("too long for a line"), "{}", ran.stderr);
    });
}

#[test]
fn the_page_names_every_function() {
    let script = std::fs::read_to_string(repository().join("scripts/cp.sh")).unwrap();
    let page = std::fs::read_to_string(repository().join("man/cp.sh.7")).unwrap();
    let functions: Vec<&str> = script.lines().filter_map(|line| line.split_once("() ")).map(|(name, _)| name).collect();
    let shown: Vec<&&str> =
        functions.iter().filter(|name| !name.starts_with("cp_") && !name.starts_with(' ')).collect();
    assert_eq!(shown.len(), 13, "{shown:?}");
    for name in shown {
        assert!(page.contains(&format!(".It Ic {name}")), "cp.sh(7) lacks {name}");
    }
}
