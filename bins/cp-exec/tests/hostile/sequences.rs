//! Several runs of one attacker: each leaves links, renames and odd files for the next, and none gets any further by
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bench::seen;
use cp_testkit::times;

use super::chance::Chance;
use crate::exec::{Exec, POLICY, SCRIPT, details, everyone};

const SECRET: &str = "the-secret-of-the-owner";

/// Names that the policy knows, and some that it does not.
const NAMES: [&str; 9] = ["target", "out", "lib", "conf", "conf/prod", "sub", "sub/deep", "a", "b"];

const PATHS: &str = include_str!("../data/policies/sequences.toml");

/// The second part of a run, after its change: reads and creates files through every name that it can reach.
const GREED: &str = include_str!("../data/hostile/greed.py");

/// A project with things to lose, and a directory outside it.
struct Scene {
    exec: Exec,
    before: BTreeMap<String, Vec<u8>>,
}

impl Scene {
    fn new(exec: Exec) -> Self {
        let outside = exec.root.directory("outside");
        for name in ["secret", ".bashrc", ".token", ".git/config", "sub/secret"] {
            outside.write(name, SECRET);
        }
        for name in ["conf/prod/key", "sub/.token", "sub/deep/.env"] {
            exec.write(name, SECRET);
        }
        for name in ["lib/file", "a/file", "b/file"] {
            exec.write(name, "mine");
        }
        let greed = GREED.replace("OUTSIDE", outside.to_str().unwrap()).replace("CPHOME", exec.home.to_str().unwrap());
        exec.write("probe.py", &greed);
        let before = seen(&outside);
        Self { exec, before }
    }

    /// Nothing that the owner had outside is changed, and nothing was added.
    #[track_caller]
    fn is_untouched(&self, what: &str) {
        assert_eq!(seen(&self.exec.root.at("outside")), self.before, "{what}");
        for part in ["config", "keys"] {
            assert!(!self.exec.home.join(part).join("planted").exists(), "{what}: planted in the home");
        }
    }
}

fn changes(chance: &mut Chance) -> Vec<[&'static str; 3]> {
    const CHANGES: [&str; 14] = [
        "mkdir",
        "rename",
        "link",
        "link_out",
        "link_up",
        "link_home",
        "hard",
        "close",
        "open",
        "fifo",
        "fifo_for_directory",
        "replace",
        "remove",
        "socket",
    ];
    const LINKS: [&str; 4] = ["link", "link_out", "link_up", "link_home"];
    let mut drawn = |kinds: &[&'static str]| [*chance.one_of(kinds), *chance.one_of(&NAMES), *chance.one_of(&NAMES)];
    vec![drawn(&LINKS), drawn(&CHANGES), drawn(&CHANGES)]
}

fn requests(changes: &[[&str; 3]]) -> String {
    let shell = |words: &[&str]| {
        json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": words}}).to_string()
    };
    let mut lines = Vec::new();
    for change in changes {
        lines.push(shell(&[&["python3", "-c", SCRIPT, "probe.py"], &change[..]].concat()));
        for (operation, more) in [("read_file", "/secret"), ("list_directory", "")] {
            let path = format!("{}{more}", change[1]);
            let arguments = json!({"path": path});
            lines.push(json!({"tool": "filesystem", "operation": operation, "arguments": arguments}).to_string());
        }
        let arguments = json!({"path": format!("{}/planted-by-tool", change[1]), "content": "x", "mode": "create"});
        lines.push(json!({"tool": "filesystem", "operation": "write_file", "arguments": arguments}).to_string());
    }
    lines.join("\n")
}

#[test]
fn three_hostile_changes_do_not_free_later_run() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let mut chance = Chance::of_this_test(0x5eed);
        let (mut ran, mut refused) = (0, 0);
        for round in 0..times(8, 400) {
            let changes = changes(&mut chance);
            let scene = Scene::new(Exec::with_policy(who, &format!("{POLICY}{PATHS}")));
            let what = format!("{who:?}, round {round}: {changes:?}");
            let begun = Instant::now();
            let (answers, _) = scene.exec.answers(&["--timeout", "10"], &requests(&changes));
            assert!(begun.elapsed() < Duration::from_mins(1), "{what}: it took {:?}", begun.elapsed());
            let said = answers.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
            assert!(!said.contains("READ") && !said.contains(SECRET), "{what}: {said}");
            scene.is_untouched(&what);
            for (name, text) in [("lib/file", "mine"), ("conf/prod/key", SECRET)] {
                assert_eq!(scene.exec.work.read(name), text, "{what}: {name}");
            }
            ran += answers.iter().filter(|answer| answer["ok"] == true).count();
            let met = |answer: &&Value| {
                ["not_granted: ", "\"rule\":\"link\""].iter().any(|word| answer.to_string().contains(word))
            };
            refused += answers.iter().filter(met).count();
        }
        // The control: most runs do run, and some links are met.
        assert!(ran > 30 && refused > 0, "{who:?}: {ran} ran, {refused} met a link");
    }
}

#[test]
fn concurrent_link_swap_frees_no_run() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let scene =
            Scene::new(Exec::with_policy(who, &format!("{POLICY}\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n")));
        let exec = &scene.exec;
        symlink(exec.root.join("outside"), exec.work.join("l")).unwrap();
        exec.write("d/.bashrc", "the run's own\n");
        exec.write("d/secret", "nothing");
        fs::remove_file(exec.work.join("d/.bashrc")).unwrap();
        exec.write("swap.py", include_str!("../data/hostile/swap.py"));
        let shell = |words: &[&str]| {
            json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": words}}).to_string()
        };
        let file = |operation: &str, arguments: Value| {
            json!({"tool": "filesystem", "operation": operation, "arguments": arguments}).to_string()
        };
        let mut lines = Vec::new();
        let seconds = if times(0, 1) == 1 { "20" } else { "4" };
        let swapping = exec.command(&["--timeout", "30", "--", "python3", "-c", SCRIPT, "swap.py", seconds]).start();
        for at in 0..times(40, 300) {
            lines.push(shell(&["sh", "-c", "cat d/secret; echo planted > d/planted"]));
            lines.push(json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": ["sh", "-c", "cat secret .token; echo > planted"], "cwd": "d"}}).to_string());
            lines.push(file("read_file", json!({"path": "d/secret"})));
            lines.push(file("write_file", json!({"path": format!("d/planted{at}"), "content": "x", "mode": "create"})));
            lines.push(file("write_file", json!({"path": "d/.bashrc", "content": "x", "mode": "create"})));
            lines.push(file("list_directory", json!({"path": "d"})));
        }
        let (answers, _) = exec.answers(&["--timeout", "30"], &lines.join("\n"));
        scene.is_untouched(&format!("{who:?}"));
        let said = answers.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
        assert!(!said.contains(SECRET), "{who:?}");
        let listed =
            |name: &str| answers.iter().any(|answer| answer["type"] == "item" && answer.to_string().contains(name));
        assert!(!listed("\".token\"") && listed("\"secret\""), "{who:?}: a directory outside was listed");
        // The control: it was swapped hundreds of times, and both sides of the swap were met.
        let swapped = details(&swapping.wait().records()[0])["stdout"].as_str().unwrap_or_default().to_owned();
        assert!(swapped.trim().parse::<u32>().is_ok_and(|count| count > 300), "{who:?}: swapped {swapped}");
        let done = answers.iter().filter(|answer| answer["ok"] == true).count();
        assert!(done > 10 && done < answers.len(), "{who:?}: {done} of {}", answers.len());
    }
}

#[test]
fn special_files_do_not_block_later_run() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        for line in who.turns([
            "mkfifo f .env .bashrc .gitattributes package.json",
            "mkdir -p sub/.git && mkfifo sub/.git/config sub/.git/HEAD",
            "mkdir bare && mkfifo bare/HEAD bare/config && mkdir bare/objects bare/refs",
            "mkfifo .git",
            "mkfifo .gitmodules .envrc .mcp.json .npmrc",
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\".git\")'",
            "ln -s . loop; ln -s loop/loop/loop a; ln -s b c; ln -s c b; ln -s .git .git",
            "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; touch .bashrc",
        ]) {
            let exec = Exec::with_policy(who, &format!("{POLICY}\n[paths]\nread = [\".\"]\nwrite = [\".\"]\n"));
            let read = json!({"tool": "filesystem", "operation": "read_file", "arguments": {"path": "f"}});
            let write = json!({"tool": "filesystem", "operation": "write_file", "arguments": {"path": "f", "content": "x", "mode": "overwrite"}});
            let shell = |line: &str| json!({"tool": "shell", "operation": "execute_command", "arguments": {"argv": ["sh", "-c", line]}});
            let input = [shell(line), shell("echo again"), read, write].map(|request| request.to_string()).join("\n");
            let command = exec.command(&["--timeout", "5"]).stdin(input);
            let ran = command.limit(Duration::from_secs(30)).run();
            let answers = ran.records();
            assert!(answers.len() >= 5, "{who:?}: {line}: {ran:?}");
            // Whatever remains there is reported in a result.
            let second = &answers[1];
            let ended = second["data"]["stdout"] == "again\n" || second["error"]["code"] == "E_FORBIDDEN";
            assert!(ended, "{who:?}: {line}: {second}");
        }
    }
}
