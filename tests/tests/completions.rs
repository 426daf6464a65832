//! A real Tab in a real shell: what is typed is completed as a person sees it.

use cp_testkit::{PROGRAMS, Place, Terminal};

/// The line that makes the completions of a program those of the shell.
fn source(shell: &str, program: &str) -> String {
    match shell {
        "fish" => format!("{program} completions fish --format raw | source"),
        _ => format!("source <({program} completions {shell} --format raw)"),
    }
}

/// A shell at a terminal that knows the completions of these programs, twice, and stops at a variable that is not set.
fn shell(place: &Place, shell: &str, programs: &[&str]) -> Terminal {
    let options: &[&str] = match shell {
        "bash" => &["--norc", "--noprofile", "-i"],
        "zsh" => &["-f", "-i"],
        _ => &["--no-config", "-i"],
    };
    let command = place.program(shell).args(options).env("TERM", "xterm").env("PS1", "> ");
    let mut terminal = command.with_programs().terminal(200);
    if shell == "fish" {
        terminal.send("set -g fish_autosuggestion_enabled 0\r");
    } else {
        terminal.send("set -u\r");
    }
    if shell == "zsh" {
        terminal.send("autoload -Uz compinit && compinit -i\r");
    }
    for program in programs.iter().chain(programs) {
        terminal.send(&format!("{}\r", source(shell, program)));
    }
    terminal.send("echo read''y\r");
    terminal.wait_for("ready");
    terminal
}

/// Types a line up to a Tab, waits for what it becomes, and takes it back.
fn completes(terminal: &mut Terminal, typed: &str, whole: &str) {
    let rest = whole.strip_prefix(typed).expect("the line goes on");
    terminal.send(typed);
    terminal.wait_for(&typed[typed.len().min(5)..]);
    terminal.send("\t");
    terminal.wait_for(rest);
    terminal.send("\x15\r");
    terminal.send("echo nex''t\r");
    terminal.wait_for("next");
}

fn completes_everything(name: &str) {
    let place = Place::new();
    let session = place.sh("cp-session start --format text").stdout.trim().to_owned();
    place.sh("cp-llm --backend stub -- hello; cp-log append hello; mkdir -p \"$CP_HOME/config\"").success();
    place.home.write("config/prices.toml", "[some-model]\ninput = 1.0\noutput = 2.0\n");
    let run = place.sh("cp-toolloop --backend stub -- hello >run; cp-toolloop runs").closing();
    let run = run["data"]["items"][0]["id"].as_str().unwrap().to_owned();
    let mut terminal = shell(&place, name, &["cp-log", "cp-session", "cp-llm", "cp-exec", "cp-toolloop"]);
    for (typed, whole) in [
        ("cp-log que", "cp-log query "),
        ("cp-log query --ev", "cp-log query --event "),
        ("cp-log --quiet query --rev", "cp-log --quiet query --reverse "),
        ("cp-log query --format t", "cp-log query --format text "),
        ("cp-log query --format=t", "cp-log query --format=text "),
        ("cp-llm --budget-t", "cp-llm --budget-tokens "),
        ("cp-llm --backend st", "cp-llm --backend stub "),
        ("cp-llm -m some", "cp-llm -m some-model "),
        ("cp-llm mod", "cp-llm models "),
        ("cp-exec policy in", "cp-exec policy init "),
        ("cp-exec --cw", "cp-exec --cwd "),
        ("cp-exec undo l", "cp-exec undo last "),
        ("cp-toolloop --max-it", "cp-toolloop --max-iterations "),
        ("cp-session list --agent defa", "cp-session list --agent default "),
    ] {
        completes(&mut terminal, typed, whole);
    }
    completes(&mut terminal, "cp-session show SES", &format!("cp-session show {session} "));
    completes(&mut terminal, "cp-llm --session SES", &format!("cp-llm --session {session} "));
    completes(&mut terminal, "cp-toolloop show RU", &format!("cp-toolloop show {run} "));
    place.work.write("question.md", "why?");
    completes(&mut terminal, "cp-log verify --checkpoint=ques", "cp-log verify --checkpoint=question.md ");
    // zsh and fish show the descriptions of more than one candidate, and none where there is none.
    if name != "bash" {
        terminal.send("cp-toolloop tools --format \t");
        terminal.wait_for("Envelopes, one a line");
        terminal.send("\x15\r");
        terminal.send("cp-llm --backend openai\t");
        let shown = terminal.wait_for("openai-responses");
        assert!(!shown.contains("-- openai") && !shown.contains("(openai"), "{shown}");
    }
    terminal.send("\x15\r");
    terminal.send("exit\r");
    terminal.end();
}

#[test]
fn bash_completes_verbs_options_and_values() {
    completes_everything("bash");
}

#[test]
fn zsh_completes_verbs_options_and_values() {
    cp_testkit::needs!("zsh");
    completes_everything("zsh");
}

#[test]
fn fish_completes_verbs_options_and_values() {
    cp_testkit::needs!("fish");
    completes_everything("fish");
}

#[test]
fn files_are_completed_for_options_and_for_commands() {
    let place = Place::new();
    place.work.write("question.md", "why?");
    let mut terminal = shell(&place, "bash", &["cp-compose", "cp-exec"]);
    completes(&mut terminal, "cp-compose --context ques", "cp-compose --context question.md ");
    completes(&mut terminal, "cp-exec -- cat ques", "cp-exec -- cat question.md ");
}

/// What the program answers to the scripts: the words of a line, the last of them the one that is being typed.
#[test]
fn every_verb_and_every_option_is_offered_and_no_word_that_nobody_types() {
    for program in PROGRAMS {
        let place = Place::new();
        let ask = |words: &str| -> Vec<String> {
            let ran = place.sh(&format!("_CP_COMPLETE=fish {program} -- {program} {words}")).success();
            ran.stdout.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
        };
        let offered = ask("''");
        for hidden in ["send", "run", "compose", "session"] {
            assert!(!offered.iter().any(|word| word == hidden), "{program}: {offered:?}");
        }
        for verb in cp_tests::verbs_of(program) {
            let path = verb.path();
            let first = path.split(' ').next().unwrap();
            assert!(path.is_empty() || offered.iter().any(|word| word == first), "{program} {path}");
            let options = [ask(&format!("{path} -")), ask(&format!("{path} --"))].concat();
            let is_missing = |name: &&str| name.starts_with('-') && !options.iter().any(|option| option == name);
            let missing: Vec<&str> = verb.names("name").filter(is_missing).collect();
            assert!(missing.is_empty(), "{program} {path}: {missing:?}");
        }
    }
    let ran = Place::new().sh("cp-toolloop --backend stub -- hi; _CP_COMPLETE=fish cp-exec -- cp-exec undo ''");
    assert!(ran.stdout.contains("\nlast\n") && !ran.stdout.contains("\nRUN-"), "{}", ran.stdout);
    let sent = Place::new()
        .sh("_CP_COMPLETE=fish cp-llm --backend stub -- hi; CP_BACKEND=stub _CP_COMPLETE=none cp-llm -- hi");
    assert_eq!(sent.stdout.matches("stub response").count(), 2, "{}", sent.stdout);
}
