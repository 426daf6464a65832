//! `cp-ask`: a text in, a text out, and a conversation that goes on when it is asked to.

use std::collections::BTreeSet;
use std::process::Stdio;

use cp_testkit::{Outcome, Place, repository};

mod daily;
mod proposals;

/// Answers with its input, as JSON.
pub(crate) const ECHO: &str = r#"#!/bin/sh
exec jq -c --unbuffered '{ok: true, schema_version: "1.0", type: "message", data: {id: "e", role: "assistant", model: "echo", backend: "echo",
    content: ([.data.system, .data.model] + [.data.messages[].content] | tojson), tool_calls: [], stop_reason: "end_turn", usage: {input_tokens: 1, output_tokens: 1}}}'
"#;

fn run(place: &Place, script: &str) -> Outcome {
    run_in("sh", place, script)
}

fn run_in(shell: &str, place: &Place, script: &str) -> Outcome {
    place.shell(shell, script).env("CP_BACKEND", "stub").run()
}

#[test]
fn text_from_pipe_or_file_is_joined_to_question() {
    let place = Place::new();
    place.work.executable("echo", ECHO);
    place.work.write("list", "one\ntwo\n");
    for (script, asked) in [
        ("printf 'one\ntwo\n' | cp-ask --backend ./echo sum", "sum\n\none\ntwo"),
        ("cp-ask --backend ./echo sum <list", "sum\n\none\ntwo"),
        ("cp-ask --backend ./echo sum - <list", "sum\n\none\ntwo"),
        ("cp-ask --backend ./echo <list", "one\ntwo"),
        ("cp-ask --backend ./echo - <list", "one\ntwo"),
        ("printf ' \n' | cp-ask --backend ./echo sum", "sum"),
        ("cp-ask --backend ./echo sum </dev/null", "sum"),
        ("cp-ask --backend ./echo sum <&-", "sum"),
    ] {
        let ran = run_in("bash", &place, script);
        assert_eq!(ran.records()[0][2], asked, "{script}: {}", ran.stderr);
    }
}

#[test]
fn a_text_arrives_as_it_is() {
    let place = Place::new();
    place.work.executable("echo", ECHO);
    let odd = "-a \"b\\c $x `y` $(touch pwned) 'z'\n\tänd 🦀 %s \\n";
    place.work.write("odd", odd);
    place.work.write("words.md", "You read logs.\n");
    place.work.write("two words", "Of a file.");
    let ran = run(
        &place,
        r#"set -- --backend ./echo
        cp-ask "$@" -- "$(cat odd)"; printf %s "$(cat odd)" | cp-ask "$@" -s "$(cat odd)"; cp-ask "$@" "q" - <odd; exec </dev/null
        cp-ask "$@" -s words.md -m m1 x; cp-ask "$@" -s 'two words' x; cp-ask "$@" -s @words.md x; cp-ask "$@" -s @@a/b x; cp-ask "$@" --model=m2 x
        echo '{"ok":true,"schema_version":"1.0","type":"prompt","data":{"messages":[]},"meta":{}}' | cp-ask "$@"; cp-ask "$@" -- help"#,
    );
    let told: Vec<serde_json::Value> = ran.records();
    let asked: Vec<&str> = told.iter().map(|answer| answer[2].as_str().unwrap_or_default()).collect();
    assert_eq!((asked[0], asked[1]), (odd, odd), "{}", ran.stderr);
    assert_eq!(asked[2], format!("q\n\n{odd}"));
    assert_eq!((&told[1][0], &told[3][0], &told[3][1]), (&odd.into(), &"You read logs.".into(), &"m1".into()));
    assert_eq!(
        (&told[4][0], &told[5][0], &told[6][0]),
        (&"Of a file.".into(), &"You read logs.".into(), &"@a/b".into())
    );
    assert_eq!(told[7][1], "m2");
    assert!(asked[8].starts_with(r#"{"ok":true"#), "standard input is a text: {}", asked[8]);
    assert_eq!(asked[9], "help");
    assert!(!place.work.join("pwned").exists());
}

#[test]
fn a_lone_word_that_is_a_verb_of_any_program_is_not_sent() {
    let place = Place::new();
    let mut verbs: BTreeSet<&str> = cp_tests::verbs().filter_map(|verb| verb.path().split(' ').next()).collect();
    let own = WORDS.split(' ').chain([""]);
    verbs.retain(|verb| !own.clone().any(|word| word == *verb));
    assert!(verbs.len() > 50 && verbs.contains("query"), "{verbs:?}");
    for verb in verbs {
        let ran = run(&place, &format!("cp-ask {verb}"));
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{verb}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("cp-ask -- {verb}")), "{}", ran.stderr);
    }
    // With a text on standard input the word is a prompt, and a person is asked.
    place.work.executable("echo", ECHO);
    for (script, status) in [
        ("echo log | cp-ask audit", 0),
        ("echo log | cp-ask sesion", 2),
        ("cp-ask log", 2),
        ("cp-ask key", 2),
        ("echo | cp-ask audit", 2),
        ("cp-ask audit </dev/null", 2),
    ] {
        let ran = run(&place, &format!("CP_BACKEND=./echo; {script}"));
        assert_eq!((ran.status, ran.stdout.contains("audit\\n\\nlog")), (status, status == 0), "{script}: {ran:?}");
    }
    for (key, status) in [("y", 0), ("n", 2)] {
        let mut terminal = place.shell("sh", "cp-ask audit").env("CP_BACKEND", "stub").terminal(80);
        terminal.wait_for("Send the word to the model? [y/N] ");
        terminal.send(&format!("{key}\r"));
        assert_eq!(terminal.end(), Some(status), "{}", terminal.text());
    }
    assert_eq!(run(&place, "cp-ask -- query; cp-ask 'query this'").stdout, "stub response 1\nstub response 1\n");
}

#[test]
fn programs_beside_cp_ask_are_found_without_path_and_without_jq() {
    let place = Place::new();
    let bin = place.root.directory("usr/bin");
    for program in cp_testkit::PROGRAMS.into_iter().chain(["cp-ask"]) {
        place.program("cp").arg(cp_testkit::program(program)).arg(&bin).run().success();
    }
    let run = |arguments: &[&str]| {
        let asking = place.program(bin.join("cp-ask")).args(arguments).env("PATH", "/nowhere");
        asking.env("CP_BACKEND", "stub").stdin_from(Stdio::null()).run()
    };
    for (arguments, printed) in [
        (&["hello"][..], "stub response 1\n"),
        (&["-c", "more"], "stub response 2\n"),
        (&["session", "--last", "1"], "assistant: stub response 2\n"),
    ] {
        assert_eq!(run(arguments).stdout, printed, "{}", run(arguments).stderr);
    }
    assert!(run(&["completions", "bash"]).stdout.contains("-F _clap_complete_cp_ask cp-ask"));
}

#[test]
fn with_tools_the_model_decides_and_its_last_words_are_the_answer() {
    cp_testkit::needs!("curl");
    let place = Place::new();
    place.work.executable("skills/weather.sh", "#!/bin/sh\njq -r '\"sunny in \" + .city'\n");
    place.work.write("tools.json", "[{\"name\":\"weather\",\"description\":\"d\"}]");
    let call = |name: &str| {
        format!(
            "{{\"content\":\"Let me see.\",\"tool_calls\":[{{\"name\":\"{name}\",\"input\":{{\"city\":\"Rome\"}}}}]}}\n"
        )
    };
    place.work.write("calls", format!("{}{}{{\"content\":\"It is sunny.\"}}\n", call("weather"), call("shell")));
    let ran = run(
        &place,
        r#"export CP_STUB_SCRIPT=calls SHELLCLAW_SKILLS_DIR=skills; echo 'Rome?' | cp-ask --tools tools.json -s "Look it up."
        cp-session list | jq .data.count; cp-ask session | grep -e "^user: Rome" -e "^assistant: It""#,
    );
    assert_eq!(ran.stdout, "It is sunny.\n1\nuser: Rome?\nassistant: It is sunny.\n", "{}", ran.stderr);
    let ran = run(&place, "export CP_STUB_SCRIPT=calls; cp-ask --tools tools.json --tool-backend /nowhere x");
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
}

#[test]
fn an_interrupt_ends_the_turn_and_leaves_nothing_behind() {
    use std::os::unix::process::CommandExt as _;
    let place = Place::new();
    let temporary = place.work.directory("tmp");
    place.work.executable("slow", "#!/bin/sh\nread -r line\n: >asked\nexec sleep 600\n");
    run(&place, "cp-ask before");
    for shell in ["exec", ""] {
        let script = format!("{shell} cp-ask --backend ./slow after");
        let asking = place.program("sh").args(["-c", &script]).with_programs();
        let asking = asking.env("TMPDIR", &temporary).stdin_from(Stdio::null());
        let asking = asking.with(|command| _ = command.process_group(0)).start();
        cp_testkit::until("the model is asked", || place.work.join("asked").exists());
        std::fs::remove_file(place.work.join("asked")).unwrap();
        rustix::process::kill_process_group(asking.pid(), rustix::process::Signal::INT).unwrap();
        asking.wait().code(130);
        assert!(temporary.names().is_empty(), "{shell}");
    }
    assert_eq!(run(&place, "cp-ask session | head -n 1").stdout, "user: before\n");
    // A question that was killed was sent, so it is listed.
    place.work.executable("idle", "#!/bin/sh\nread -r line\n: >idle.asked\nread -r line\n");
    let script = "cp-ask --backend ./idle killed >/dev/null 2>&1 & until [ -e idle.asked ]; do sleep 0.05; done; \
        pkill -KILL -P $!; kill -KILL $!; wait";
    run(&place, script);
    for (options, listed) in
        [("", "before after after killed"), ("--limit 1", "killed"), ("--search KILL", "killed"), ("-n 0", "")]
    {
        let ran = run(&place, &format!("cp-ask logs {options}"));
        let questions: Vec<&str> = ran.stdout.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!((ran.status, questions.join(" ").as_str()), (0, listed), "{options}: {ran:?}");
    }
}

#[test]
fn continue_and_session_follow_conversation_that_was_used_last() {
    let (chat, ask, again) = ("echo chat | cp-ask chat", "cp-ask ask", "cp-ask -c again");
    for (calls, first) in [
        ([ask, chat].as_slice(), "chat"),
        (&[chat], "chat"),
        (&[chat, ask], "ask"),
        (&[ask, chat, again], "chat"),
        (&[chat, ask, again, chat, again], "chat"),
        (&[chat, "cp-ask reset", again], "again"),
        (&[ask, chat, "cp-ask --agent default ask"], "ask"),
    ] {
        let place = Place::new();
        let script = format!("{}; exec 2>&1; cp-ask session; cp-ask -c last; cp-ask session", calls.join("; "));
        let ran = run(&place, &script);
        let users: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("user: ")).collect();
        let head = format!("user: {first}");
        assert_eq!(users.iter().filter(|line| **line == head).count(), 2, "{calls:?}: {ran:?}");
        assert_eq!(users.last(), Some(&"user: last"), "{calls:?}: {ran:?}");
    }
}

/// One line that is damaged hides no other question.
#[test]
fn logs_skip_and_report_what_cannot_be_read() {
    let place = Place::new();
    let ran = run(&place, "cp-ask one >/dev/null; cp-ask two >/dev/null; cp-ask logs").success();
    assert_eq!((ran.stdout.lines().count(), ran.stderr.as_str()), (2, ""), "the control");
    let damaged = "for file in $(find $CP_HOME -name session.jsonl); do echo torn >>$file; done";
    run(&place, damaged).success();
    for options in ["", "--search one"] {
        let ran = run(&place, &format!("cp-ask logs {options}")).success();
        assert!(ran.stdout.contains("one") && ran.stderr.contains("left out"), "{ran:?}");
    }
}

/// What cannot be continued is named, and nothing is sent in its place.
#[test]
fn lost_conversation_is_not_replaced_in_silence() {
    let place = Place::new();
    let session = run(&place, "cp-ask ask >/dev/null; cp-session list --format json | jq -r .data.items[0].session_id");
    let session = session.success().stdout.trim_end().to_owned();
    run(&place, "cp-ask -c again").success();
    run(&place, &format!("rm -r $(find $CP_HOME -type d -name {session})")).success();
    let lost = run(&place, "cp-ask -c again").code(3);
    assert!(lost.stdout.is_empty() && lost.stderr.contains(&session), "{lost:?}");
    assert!(lost.stderr.contains("cp-ask --agent default reset"), "{lost:?}");
    let shown = run(&place, "cp-ask session").code(3);
    assert!(shown.stderr.contains(&session) && !shown.stderr.contains("yet"), "{shown:?}");
    let reset = run(&place, "cp-ask --agent default reset").success();
    assert!(!reset.stdout.contains("is kept"), "{reset:?}");
    run(&place, "cp-ask -c again").success();
}

#[test]
fn options_of_a_verb_may_replace_its_defaults() {
    let place = Place::new();
    let start = "cp-ask one >/dev/null; cp-ask --name other two >/dev/null; cp-ask three >/dev/null; exec </dev/null";
    run(&place, start).success();
    for (words, answer) in [
        ("session", "user: three\n"),
        ("session --session other", "user: two\n"),
        ("session --format text", "user: three\n"),
        ("session --format json", "{\"ok\":true"),
        ("session other --format=text", "user: two\n"),
        ("config --format json", "{\"ok\":true"),
        ("doctor --format json", "{\"ok\":true"),
        ("models --format json", "{\"ok\":true"),
    ] {
        let ran = run(&place, &format!("cp-ask {words}"));
        assert!(ran.stdout.starts_with(answer), "{words}: {ran:?}");
    }
}

#[test]
fn on_a_terminal_there_is_help_instead_of_waiting_and_no_control_character() {
    let place = Place::new();
    place.work.write("answer", "{\"content\":\"a\\u001b[31mb\\u0007\\u009bc\\nd\"}\n");
    let mut terminal = place.shell("sh", "exec cp-ask").terminal(80);
    assert_eq!(terminal.end(), Some(2));
    assert!(terminal.text().starts_with("Usage: cp-ask"), "{}", terminal.text());
    let answer = place.shell("sh", "exec cp-ask hi").env("CP_STUB_SCRIPT", "answer").env("CP_BACKEND", "stub");
    let mut terminal = answer.terminal(80);
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(terminal.raw(), "a^[[31mb^G<U+009B>c\r\nd\r\n");
    place.work.directory("tools");
    let mut terminal = place.shell("sh", "exec cp-ask --tools tools hi").env("CP_BACKEND", "stub").terminal(80);
    assert_eq!(terminal.end(), Some(0));
    let shown = terminal.text();
    assert!(shown.contains("stub response 1") && !shown.contains("sha256:"), "{shown}");
    run(&place, &format!("cp-ask {} >/dev/null", "word-".repeat(40)));
    let mut terminal = place.shell("sh", "exec cp-ask logs -n 1").terminal(80);
    assert_eq!(terminal.end(), Some(0));
    let lines: Vec<String> = terminal.text().lines().map(str::to_owned).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.len() <= 80), "{lines:?}");
}

const WORDS: &str = "init config doctor models keys templates chat session reset logs completions help";

/// The options that a text names.
fn options(text: &str) -> BTreeSet<&str> {
    let words = text.split([' ', ',', '\n', '[']);
    words.filter(|word| word.starts_with('-') && !["-", "--", "-]"].contains(word)).collect()
}

#[test]
fn the_page_names_every_option_and_every_word_of_the_help() {
    let help = Place::new().sh("cp-ask help").stdout;
    let page = std::fs::read_to_string(repository().join("man/cp-ask.1")).unwrap();
    assert!(options(&help).len() > 30);
    for option in options(&help) {
        assert!(page.contains(&format!("Fl {}", &option[1..])), "cp-ask(1) lacks {option}");
    }
    for word in WORDS.split(' ') {
        assert!(help.contains(&format!("\n  {word} ")) && page.contains(&format!(".It Cm {word}")), "{word}");
    }
    assert_eq!(help, Place::new().sh("cp-ask --help").stdout);
}

#[test]
fn completions_offer_options_words_and_values() {
    let place = Place::new();
    let offered = |typed: &str| {
        let lines = run(&place, &format!("_CP_COMPLETE=fish cp-ask -- cp-ask {typed}")).stdout;
        lines.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let found = [offered("-"), offered("--")].concat();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), options(&run(&place, "cp-ask help").stdout));
    let words: Vec<_> = offered("''").into_iter().filter(|word| !word.starts_with('-')).collect();
    assert_eq!(words, WORDS.split(' ').collect::<Vec<_>>());
    run(&place, "cp-ask --name trip hi; cp-ask init; echo >question.md; mkdir -p \"$CP_HOME/agents/ada\"");
    for (words, found) in [
        ("-c -s ques", "question.md"),
        ("--backend ollama", "ollama"),
        ("--session t", "trip"),
        ("-t rev", "review.md"),
        ("-m claude-son", "claude-sonnet-4-5"),
        ("re", "reset"),
        ("--tool", "--tools --tool-backend"),
        ("-c --agent a", "ada"),
    ] {
        assert_eq!(offered(words).join(" "), found, "{words}");
    }
    assert_eq!(run(&place, "cp-ask completions tcsh").status, 2);
}
