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

fn stub(script: &str) -> (Place, Outcome) {
    let place = Place::new();
    let ran = run(&place, script);
    (place, ran)
}

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
    let place = Place::new();
    let chat = "while read -r msg; do cp-ask -c \"$msg\" </dev/null; done <<<$'one\ntwo\nthree'";
    let ran = run_in("bash", &place, chat);
    assert_eq!(ran.stdout, "stub response 1\nstub response 2\nstub response 3\n", "{}", ran.stderr);
}

/// Command lines in a place of their own: what they are about, and what they print; standard error stays empty.
const STORIES: [(&str, &str, &str); 11] = [
    (
        "words after an option are a text",
        "exec </dev/null; for word in help reset sesion log; do cp-ask -c $word; done | tail -n 1; cp-ask hello; cp-ask rests; cp-ask -- help",
        "stub response 4\nstub response 1\nstub response 1\nstub response 1\n",
    ),
    (
        "a loop with null input keeps its list",
        "printf 'a\\nb\\nc\\n' | while read -r l; do cp-ask \"$l\" </dev/null; done; cp-ask -s <(echo be brief) x </dev/null; cp-ask x - < <(echo y)",
        "stub response 1\nstub response 1\nstub response 1\nstub response 1\nstub response 1\n",
    ),
    (
        "the conversation that was used last goes on",
        "cp-ask --name foo one; cp-ask --name bar two; cp-ask --session foo three; cp-ask -c four; cp-ask session | grep -c user",
        "stub response 1\nstub response 1\nstub response 2\nstub response 3\n3\n",
    ),
    (
        "what is not to be kept leaves nothing",
        r#"mkdir t; export TMPDIR=$PWD/t; cp-ask one; cp-ask -n zebra; cp-ask --no-log --dry-run -s tiger lion | jq -c '[.messages[].content]'; grep -rlE 'zebra|lion' "$CP_HOME"
        cp-ask --dry-run -c horse | jq -c '[.messages[].content]'; cp-ask session | wc -l; cp-session list | jq .data.count; ls t | wc -l"#,
        "stub response 1\nstub response 1\n[\"lion\"]\n[\"one\",\"stub response 1\",\"horse\"]\n2\n1\n0\n",
    ),
    (
        "a link that somebody replaced by a session that is gone is no conversation",
        r#"cp-ask one; rm -r "$CP_HOME"/planes/ho1/sessions/*; cp-ask session 2>/dev/null; echo $?; cp-ask -c two"#,
        "stub response 1\n3\nstub response 1\n",
    ),
    (
        "a failed turn leaves the conversation as it was",
        r#"printf '{"error":{"code":"E_AUTH","message":"no"}}\n%.0s' 1 2 >fails
        cp-ask one; CP_STUB_SCRIPT=fails cp-ask two 2>/dev/null; CP_STUB_SCRIPT=fails cp-ask -c three 2>/dev/null; cp-ask session; cp-ask -c four"#,
        "stub response 1\nuser: one\nassistant: stub response 1\nstub response 2\n",
    ),
    (
        "the links lead to the session and its trace, and hold when the home moves",
        r#"cp-ask one >/dev/null; cd "$CP_HOME/agents/default"; jq -r 'select(.role).content' sessions/current.jsonl; jq -r .event agent.jsonl | head -n 3
        cd; mv "$CP_HOME" moved; export CP_HOME=$PWD/moved; cp-ask -c two; cp-ask log --event llm.response | jq -r .content"#,
        "one\nstub response 1\nledger.open\nllm.request\nllm.response\nstub response 2\nstub response 1\nstub response 2\n",
    ),
    (
        "a conversation that has ended does not go on",
        "cp-ask one; cp-session end \"$(cp-session list | jq -r '.data.items[0].session_id')\" >/dev/null; cp-ask -c two; cp-ask session",
        "stub response 1\nstub response 1\nuser: two\nassistant: stub response 1\n",
    ),
    (
        "a session that is named keeps every turn, and its history goes along when asked",
        r#"export CP_SESSION; CP_SESSION=$(cp-session start --format text); cp-ask one; cp-ask two; cp-ask -c three; cp-ask session | wc -l
        ls "$CP_HOME/agents" 2>/dev/null; cp-ask reset | sed 's/SES-[^ ]*/S/'; cp-ask session; cp-session list | jq .data.count"#,
        "stub response 1\nstub response 1\nstub response 3\n6\nS is cleared, its turns are archived\n1\n",
    ),
    (
        "where policy requires a governed prompt, nothing else is asked",
        r#"cp-ask init >/dev/null; printf '\n[llm]\ngoverned_prompts = "require"\n' >>"$CP_HOME/config/policy.toml"
        { cp-ask hi; echo $?; . cp.sh; llm_call hi --system mine; echo $?; tool_loop hi mine "$CP_HOME/tools"; echo $?; } 2>/dev/null
        cp-ask --prompt PRM-DEFAULT-SOUL-001 hi"#,
        "4\n1\n1\nstub response 1\n",
    ),
    (
        "a reader that leaves early is no failure, and the turn is kept",
        "{ cp-ask one; echo $? >status; } | true; cp-ask session | wc -l; cat status; cp-ask config | head -n 1 | cut -d ' ' -f 1",
        "2\n0\nagent\n",
    ),
];

#[test]
fn each_story_prints_what_it_says() {
    for (what, script, expected) in STORIES {
        let ran = run_in("bash", &Place::new(), script);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (expected, ""), "{what}");
    }
}

#[test]
fn open_silent_pipe_is_explained() {
    let place = Place::new();
    let ran = run(&place, "sleep 3 | cp-ask hi");
    assert_eq!(ran.stdout, "stub response 1\n");
    assert!(ran.stderr.contains("waiting for the end of standard input"), "{}", ran.stderr);
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
fn the_agent_speaks_with_its_soul_and_has_a_conversation_of_its_own() {
    let place = Place::new();
    place.work.executable("echo", ECHO);
    let agent = place.home.join("agents/ada");
    std::fs::create_dir_all(&agent).unwrap();
    std::fs::write(agent.join("soul.md"), "I am Ada.").unwrap();
    let ran = run(
        &place,
        r"cp-ask --agent ada --backend ./echo -s more hi | jq -r '.[0]'; cp-ask -c mine; cp-ask --agent=ada session | head -n 1; cp-ask session | head -n 1
        cp-ask --agent ada -c next; SHELLCLAW_AGENT_ID=ada cp-ask session | wc -l",
    );
    assert_eq!(
        ran.stdout, "I am Ada.\n\nmore\nstub response 1\nuser: hi\nuser: mine\nstub response 2\n4\n",
        "{}",
        ran.stderr
    );
}

#[test]
fn what_is_wrong_is_said_and_has_its_exit_status() {
    let place = Place::new();
    place.work.write("fails", "{\"error\":{\"code\":\"E_AUTH\",\"message\":\"the key is wrong\"}}\n");
    for (script, status, complaint) in [
        ("cp-ask session", 3, "no conversation yet"),
        ("cp-ask log", 3, "no conversation yet"),
        ("cp-ask </dev/null", 2, "the input is empty"),
        ("cp-ask hi - </dev/null", 2, "the input is empty"),
        ("printf '\n' | cp-ask - hi", 2, "the input is empty"),
        ("printf '\n' | cp-ask -C - hi", 2, "the input is empty"),
        ("cp-ask -c </dev/null", 2, "the input is empty"),
        ("cp-ask a b", 2, "more than one text: b"),
        ("cp-ask --wrong", 2, "unexpected argument '--wrong'"),
        ("cp-ask -s", 2, "a value is required for '--system"),
        ("cp-ask rest", 2, "unknown command rest"),
        ("cp-ask --agent x sesion", 2, "unknown command sesion"),
        ("cp-ask modles", 2, "did you mean `models`?"),
        ("cp-ask --tool-backend bash x", 2, "--tools"),
        ("cp-ask -p a=b x", 2, "--template"),
        ("cp-ask -x --tools . x", 2, "cannot be used with"),
        ("cp-ask -t none x", 3, "no template `none`"),
        ("cp-ask -f none x", 3, "no such file"),
        ("cp-ask -a none x", 3, "no such file"),
        ("cp-ask reset now", 2, "unexpected argument 'now'"),
        ("cp-ask -s prompts/sre.md x", 3, "no such file"),
        ("cp-ask --agent nobody x", 3, "nobody"),
        ("cp-ask --agent nobody -c x", 3, "nobody"),
        ("cp-ask --agent ../x -c x", 2, "not a valid agent id"),
        ("cp-ask --backend ./none x", 3, "none"),
        ("CP_SESSION=SES-none cp-ask x", 3, "SES-none"),
        ("CP_BACKEND= cp-ask x", 4, ""),
        ("CP_STUB_SCRIPT=fails cp-ask x", 4, "the key is wrong"),
        ("cp-ask --tools none x", 3, "none"),
        ("echo '[' >bad.json; cp-ask --tools bad.json x", 2, "not a list of tools"),
        ("cp-ask x >&-", 1, "standard output is closed"),
        ("cp-ask x >/dev/full", 1, "could not be printed"),
        (". cp.sh; llm_call a b", 1, "more than one message"),
        ("cp-ask --save x -f a b", 2, "cannot be used with"),
        ("cp-ask --save ../x b", 2, "cannot be the name"),
        ("cp-ask --session foo --name bar x", 2, "cannot be used with"),
        ("cp-ask -n -c x", 2, "cannot be used with"),
        ("mkdir -p $CP_HOME/config; echo 'x = [' >$CP_HOME/config/cp.toml; cp-ask x", 4, "cp.toml"),
        ("cp-ask x", 4, "cp.toml"),
        ("cp-llm x", 4, "cp.toml"),
    ] {
        let ran = run(&place, script);
        // What cp-llm answers is a record.
        assert_eq!((ran.status, ran.stdout.is_empty()), (status, script != "cp-llm x"), "{script}: {ran:?}");
        assert!(ran.stderr.contains(complaint), "{script}: {}", ran.stderr);
        let said = ran.stderr.lines().filter(|line| !line.starts_with("  "));
        assert!(script == "cp-llm x" || said.count() == 1, "{script}: said once: {}", ran.stderr);
    }
    assert!(!place.home.join("agents/nobody").exists(), "nobody is nobody still");
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
fn two_at_once_without_a_conversation_begin_one() {
    let (place, ran) = stub(
        "for n in 1 2 3 4; do cp-ask -c $n >/dev/null & done; wait; cp-ask session | grep -c user; cp-session list | jq .data.count",
    );
    assert_eq!(ran.stdout, "4\n1\n", "{}", ran.stderr);
    let ran = run(
        &place,
        "for n in 1 2 3; do cp-ask reset >/dev/null & cp-ask $n >/dev/null & done; wait; cp-ask -c x >/dev/null; cp-log verify | jq -s 'all(.ok)'",
    );
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("true\n", ""));
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
    assert_eq!(terminal.raw(), "a[31mbc\r\nd\r\n");
}

const OPTIONS: &str = "--system -s --model -m --option -o --schema --extract -x --retries --timeout --continue -c --session --name --no-log -n \
    --attach -a --file -f --no-redact --template -t --param -p --save --command -C --stream --usage -u --dry-run --agent --prompt --tools \
    --tool-backend --backend --help --version -h -V";
const WORDS: &str = "init config doctor models keys templates chat session reset logs log completions help";

#[test]
fn the_page_names_every_option_and_every_word_of_the_help() {
    let help = Place::new().sh("cp-ask help").stdout;
    let page = std::fs::read_to_string(repository().join("man/cp-ask.1")).unwrap();
    for option in OPTIONS.split_whitespace() {
        assert!(help.contains(option), "the help lacks {option}");
        assert!(page.contains(&format!("Fl {}", &option[1..])), "cp-ask(1) lacks {option}");
    }
    let named = help.split([' ', ',', '\n', '[']).filter(|word| word.starts_with('-') && word.len() > 1);
    assert!(named.clone().count() > 30);
    for option in named.filter(|word| *word != "-]" && *word != "--") {
        assert!(OPTIONS.split_whitespace().any(|known| known == option), "{option} is in no list");
    }
    for word in WORDS.split(' ') {
        assert!(
            help.contains(&format!("\n  {word} ")) && page.contains(&format!(".It Cm {word}")),
            "{word} is not described"
        );
    }
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    assert_eq!(help, Place::new().sh("cp-ask --help").stdout);
}

#[test]
fn completions_offer_options_words_and_values() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = run(&place, &format!("cp-ask completions {shell}")).stdout;
        assert!(text.contains("cp-ask") && !text.contains("cp-llm"), "{shell}: {text}");
    }
    let offered = |typed: &str| {
        let lines = run(&place, &format!("_CP_COMPLETE=fish cp-ask -- cp-ask {typed}")).stdout;
        lines.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut options = [offered("-"), offered("--")].concat();
    options.sort();
    options.dedup();
    let mut known: Vec<_> = OPTIONS.split_whitespace().collect();
    known.sort_unstable();
    assert_eq!(options, known);
    let words: Vec<_> = offered("''").into_iter().filter(|word| !word.starts_with('-')).collect();
    assert_eq!(words, WORDS.split(' ').collect::<Vec<_>>());
    std::fs::create_dir_all(place.home.join("agents/ada")).unwrap();
    run(&place, "cp-ask --name trip hi; cp-ask init; echo >question.md");
    let complete = |words: &str| {
        let script = format!(
            "eval \"$(cp-ask completions bash)\"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            COMP_TYPE=9; _clap_complete_cp_ask cp-ask \"${{COMP_WORDS[COMP_CWORD]}}\" 2>/dev/null; echo \"${{COMPREPLY[*]}}\""
        );
        run_in("bash", &place, &script).stdout
    };
    for (words, found) in [
        ("-c -s ques", "question.md"),
        ("--backend ollama", "ollama"),
        ("--backend = openai-re", "openai-responses"),
        ("--session t", "trip"),
        ("-t rev", "review.md"),
        ("-m claude-son", "claude-sonnet-4-5"),
        ("re", "reset"),
        ("--tool", "--tools --tool-backend"),
        ("-c --agent a", "ada"),
        ("--backend st", "stub"),
    ] {
        assert_eq!(complete(&format!("cp-ask {words}")), format!("{found}\n"), "{words}");
    }
    assert_eq!(run(&place, "cp-ask completions tcsh").status, 2);
}
