//! Signals in mid-work, for every verb that waits for somebody else.

use std::time::{Duration, Instant};

use cp_testkit::{Background, Place, Signal};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use super::rows::{World, verbs};

/// What is promised: 200 milliseconds, and the grace of a child that does not end by itself; longer on machines that do
/// other things meanwhile.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn every_verb_that_waits_ends_at_a_signal_with_its_closing_line() {
    let world = World::new("022");
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", server.local_addr().unwrap());
    let held: Vec<_> =
        ["locked", "locked.jsonl"].map(|name| std::fs::File::open(world.place.work.join(name)).unwrap()).into();
    for file in &held {
        file.lock().unwrap();
    }
    let mut faults = Vec::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let waiting: Vec<_> = verbs()
            .into_iter()
            .filter(|verb| !verb.row.waits.is_empty())
            .map(|verb| {
                let script = format!("exec {} {}", verb.row.verb, verb.row.waits);
                let program = world.unbounded(&verb.row, &script);
                let program = program.env("OPENAI_API_KEY", "key-of-the-test").env("OPENAI_BASE_URL", &base);
                (verb.row.verb.clone(), program.start())
            })
            .collect();
        assert!(waiting.len() > 15, "{}", waiting.len());
        std::thread::sleep(Duration::from_millis(1500));
        for (verb, mut child) in waiting {
            if child.has_ended() {
                faults.push(format!("{verb} does not wait: {:?}", child.wait()));
                continue;
            }
            let sent = Instant::now();
            child.signal(signal);
            let ran = child.wait();
            if sent.elapsed() > SOON {
                faults.push(format!("{verb}: it took {:?}", sent.elapsed()));
            }
            if ran.status != 130 || !ran.stdout.contains("E_INTERRUPTED") {
                faults.push(format!("{verb} {ran:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// True if a thread of the process waits in `write` to standard output, as `/proc` shows where the kernel allows it.
fn is_blocked(child: &Background) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.pid().as_raw_nonzero())).into_iter().flatten();
    let calls = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok());
    let write = if cfg!(target_arch = "x86_64") { "1 0x1 " } else { "64 0x1 " };
    calls.into_iter().any(|call| call.starts_with(write))
}

#[test]
fn every_verb_whose_output_is_full_ends_at_signal() {
    let world = World::new("022");
    world.place.sh("mkfifo full").success();
    let flags = OFlags::RDWR | OFlags::NONBLOCK;
    let full = rustix::fs::open(world.place.work.join("full"), flags, Mode::empty()).unwrap();
    for chunk in [&[0; 4096][..], &[0]] {
        while rustix::io::write(&full, chunk).is_ok() {}
    }
    let (mut faults, mut blocked) = (Vec::new(), 0);
    for (at, verbs) in verbs().chunks(16).enumerate() {
        let signal = if at % 2 == 0 { Signal::TERM } else { Signal::INT };
        let started: Vec<_> = verbs
            .iter()
            .map(|verb| {
                let script = format!("exec {} {} >full", verb.row.verb, verb.row.words);
                (&verb.row.verb, world.unbounded(&verb.row, &script).start())
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(3);
        for (verb, mut child) in started {
            while !child.has_ended() && !is_blocked(&child) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            if child.has_ended() {
                continue;
            }
            blocked += 1;
            let sent = Instant::now();
            child.signal(signal);
            let ran = child.wait();
            if sent.elapsed() > SOON || ran.status != 130 {
                faults.push(format!("{verb}: {:?} {ran:?}", sent.elapsed()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(blocked > 100, "{blocked}");
}

#[test]
fn children_that_ignore_the_signal_do_not_hold_their_parent() {
    let world = World::new("022");
    world.place.work.executable("stubborn", "#!/bin/sh\ntrap '' TERM INT\nexec sleep 30\n");
    let request = "{\"operation\":\"execute_command\",\"command\":\"! sleep 30\"}\n";
    for signal in [Signal::TERM, Signal::INT] {
        for (line, input) in [
            ("cp-llm --backend ./stubborn -- text", ""),
            ("cp-toolloop --backend ./stubborn -- task", ""),
            ("cp-toolloop --llm ./stubborn -- task", ""),
            ("cp-shell", request),
        ] {
            let (program, words) = line.split_once(' ').unwrap_or((line, ""));
            let mut child = world.place.program(program).args(words.split_whitespace()).start();
            child.write(input);
            std::thread::sleep(Duration::from_millis(700));
            assert!(!child.has_ended(), "{line} does not wait: {:?}", child.wait());
            let sent = Instant::now();
            child.signal(signal);
            let ran = child.wait();
            assert!(sent.elapsed() < SOON, "{line}: it took {:?}", sent.elapsed());
            assert_eq!(ran.status, 130, "{line}: {ran:?}");
            assert!(ran.stdout.lines().last().unwrap().contains("\"E_INTERRUPTED\""), "{line}: {ran:?}");
        }
    }
}

#[test]
fn non_blocking_standard_input_is_awaited() {
    let place = Place::new();
    place.sh("cp-exec policy init").success();
    let question = serde_json::json!({"hook_event_name": "PreToolUse", "tool_use_id": "c", "tool_name": "Read",
        "tool_input": {"file_path": "a"}, "cwd": place.work.display().to_string(), "session_id": "s"});
    let question = question.to_string();
    for (line, input, output) in [
        ("cp-exec hook claude", question.as_str(), ""),
        ("cp-exec --stdin - -- cat", "whole", "\"stdout\":\"whole\""),
        ("cp-llm --backend stub --input text", "whole", "\"content\":\"whole\""),
        ("cp-log append -f L", "whole", "\"seq\":1"),
    ] {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let child = place.program(words[0]).args(&words[1..]).stdin_from(reader).start();
        std::thread::sleep(Duration::from_millis(700));
        rustix::io::write(&writer, input.as_bytes()).unwrap();
        drop(writer);
        let ran = child.wait();
        assert!(ran.status == 0 && ran.stdout.contains(output), "{line}: {ran:?}");
    }
}
