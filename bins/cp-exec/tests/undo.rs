//! `cp-exec undo`, and the changes that results list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_testkit::{Place, Sweep};
use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who, details, everyone, program};
use crate::guard::undone;

/// Kind, permissions and content of each path.
type Contents = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn contents(directory: &Path) -> Contents {
    let mut found = Contents::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let bytes = match (meta.is_dir(), meta.is_symlink()) {
            (true, _) => Vec::new(),
            (_, true) => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            _ => fs::read(&path).unwrap(),
        };
        found.insert(path.clone(), (meta.mode(), bytes));
        if meta.is_dir() {
            found.extend(contents(&path));
        }
    }
    found
}

/// Runs a script of the project, and gives the result.
fn run(exec: &Exec, script: &str) -> Value {
    exec.write("run.sh", script);
    let (answer, _) = exec.sh(". ./run.sh");
    assert_eq!(answer["ok"], true, "{answer}");
    answer["data"].clone()
}

fn undo(exec: &Exec, arguments: &[&str]) -> Value {
    exec.confirmed(&[&["undo"], arguments].concat())
}

/// Lines of a script, drawn at random: what programs do to files.
fn script(seed: u64) -> String {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut lines = Vec::new();
    for _ in 0..14 {
        let names = ["a", "b", "d/a", "d/b", "d/e/a", "d/e", "d", "link", "new", "new/x", "d/e/new"];
        let mut name = || names[usize::try_from(draw(names.len() as u64)).unwrap()];
        let (one, other) = (name(), name());
        lines.push(match draw(9) {
            0 => format!("echo {} > {one}\n", draw(1000)),
            1 => format!("true > {one}"),
            2 => format!("rm -rf {one}"),
            3 => format!("mv {one} {other}"),
            4 => format!("chmod {} {one}\n", ["600", "755", "700"][usize::try_from(draw(3)).unwrap()]),
            5 => format!("mkdir -p {one}"),
            6 => format!("ln -s {other} {one}"),
            7 => format!("cp -r {one} {other}"),
            _ => format!("echo more >> {one}"),
        });
    }
    format!("exec 2> /dev/null\n{}\ntrue\n", lines.join("\n"))
}

fn project(exec: &Exec) {
    for name in ["a", "b", "d/a", "d/b", "d/e/a"] {
        exec.write(name, &format!("{name} as the owner has it\n"));
    }
    fs::set_permissions(exec.work.join("d/b"), fs::Permissions::from_mode(0o751)).unwrap();
    std::os::unix::fs::symlink("d/a", exec.work.join("link")).unwrap();
}

/// The newest entry about changes.
fn newest(exec: &Exec) -> Value {
    exec.entries("exec.changes").pop().unwrap()
}

#[test]
fn undo_restores_content_permissions_and_absence_after_random_scripts() {
    for who in everyone() {
        let exec = Exec::new(who);
        project(&exec);
        for seed in who.turns(0..8) {
            let text = script(seed);
            exec.write("run.sh", &text);
            let before = contents(&exec.work);
            let changed = run(&exec, &text)["files_changed"].clone();
            let after = contents(&exec.work);
            let paths = before.keys().chain(after.keys()).collect::<BTreeSet<_>>().into_iter();
            let differing: BTreeSet<&str> =
                paths.filter(|path| before.get(*path) != after.get(*path)).map(|path| path.to_str().unwrap()).collect();
            let listed = changed["files"].as_array().into_iter().flatten();
            let listed: BTreeSet<&str> = listed.map(|change| change["path"].as_str().unwrap()).collect();
            assert_eq!(listed, differing, "{who:?}, seed {seed}: {text}");
            if changed.is_null() {
                continue;
            }
            undo(&exec, &["last"]);
            assert_eq!(contents(&exec.work), before, "{who:?}, seed {seed}: {text}");
            // The undo can be undone, and that can be undone.
            undo(&exec, &[&newest(&exec)["seq"].to_string()]);
            assert_eq!(contents(&exec.work), after, "{who:?}, seed {seed}: {text}");
            undo(&exec, &["last"]);
        }
    }
}

#[test]
fn undo_of_killed_run_restores_all_and_keeps_work_of_others() {
    for who in everyone() {
        for seed in 0..8_u64 {
            let exec = Exec::new(who);
            project(&exec);
            exec.write("shared", "as the owner has it\n");
            exec.write("run.sh", &format!("echo run >> shared\ntouch begun\n{}touch ended; sleep 60\n", script(seed)));
            let mut before = contents(&exec.work);
            let run = exec.command(&["--", "sh", "-c", ". ./run.sh"]).start();
            if seed % 2 == 0 {
                exec.wait_for("ended");
                // Another run captures the tree meanwhile.
                exec.ask(&["--", "true"]);
            } else {
                exec.wait_for("begun");
                std::thread::sleep(std::time::Duration::from_millis(20 * seed));
            }
            run.kill();
            let before_next_start = seed % 4 == 0;
            if before_next_start {
                std::thread::sleep(std::time::Duration::from_millis(1200));
                exec.write("shared", "by the owner\n");
            }
            if seed % 4 < 2 {
                exec.ask(&["--", "true"]);
            } else {
                exec.ask(&["undo", "last", "--dry-run"]);
            }
            let changes = exec.entries("exec.changes").pop().unwrap_or_default();
            exec.write("mine", "by the owner\n");
            exec.write("shared", "by the owner\n");
            for name in ["mine", "shared"].map(|name| exec.work.join(name)) {
                before.insert(name.clone(), contents(&exec.work)[&name].clone());
            }
            let is_recorded = changes["data"]["files"].to_string().contains("/shared\"");
            assert_eq!(is_recorded, !before_next_start, "{who:?}, seed {seed}");
            let undone = undo(&exec, &["last", "--except-changed"]);
            assert_eq!(undone["undoes"], json!([changes["data"]["intent"]]), "{who:?}, seed {seed}");
            assert_eq!(contents(&exec.work), before, "{who:?}, seed {seed}: {undone}");
        }
    }
}

#[test]
fn undo_of_all_restores_edits_of_tools_and_programs_and_keeps_work_of_others() {
    for who in everyone() {
        for seed in who.turns(0..6) {
            let exec = Exec::new(who);
            project(&exec);
            for name in ["run.sh", "mine", "shared", "owned"] {
                exec.write(name, "as the owner has it\n");
            }
            let mut before = contents(&exec.work);
            let name = format!("RUN-{seed}");
            let program = |text: &str| {
                fs::write(exec.work.join("run.sh"), text).unwrap();
                assert_eq!(exec.ask(&["--run", &name, "--", "sh", "-c", ". ./run.sh"]).0["ok"], true);
            };
            let tool = |operation: &str, arguments: Value| exec.file(&["--run", &name], operation, &arguments);
            let mut edits = 0;
            for round in 0..3 {
                program(&script(seed * 3 + round));
                for path in ["a", "d/b", "shared", "owned"] {
                    let edit = json!({"path": path, "old": "owner", "new": format!("tool {round} and owner")});
                    edits += u64::from(tool("edit_file", edit)["ok"] == true);
                }
                tool("write_file", json!({"path": format!("made/{round}/new"), "content": "x"}));
                tool("edit_file", json!({"path": "mine", "old": "missing", "new": "x"}));
            }
            assert!(edits > 5, "{edits}");
            // The owner works too: on a file that a tool edited, on one that no tool did, and on permissions.
            exec.write("shared", "by the owner\n");
            exec.write("mine", "by the owner\n");
            fs::set_permissions(exec.work.join("owned"), fs::Permissions::from_mode(0o740)).unwrap();
            exec.write("run.sh", "as the owner has it\n");
            let owners = contents(&exec.work);
            let all = ["undo", "all", "--run", &name];
            let (refused, _) = exec.ask(&[&all[..], &["--dry-run"]].concat());
            assert_eq!(refused["error"]["details"]["files"], json!([exec.work.join("shared")]), "{refused}");
            let undone = exec.confirmed(&[&all[..], &["--except-changed"]].concat());
            assert_eq!(undone["left_out"][0]["path"], json!(exec.work.join("shared")), "{undone}");
            for path in ["shared", "mine", "owned"].map(|name| exec.work.join(name)) {
                let (mode, bytes) = owners[&path].clone();
                let bytes = if path.ends_with("owned") { before[&path].1.clone() } else { bytes };
                before.insert(path, (mode, bytes));
            }
            assert_eq!(contents(&exec.work), before, "{who:?}, seed {seed}");
            let (again, _) = exec.ask(&[&all[..], &["--except-changed", "--dry-run"]].concat());
            assert_eq!((&again["data"]["files"], &again["data"]["receipt"]), (&json!([]), &Value::Null), "{again}");
        }
    }
}

#[test]
fn undo_of_call_and_edit_requires_no_later_change() {
    let exec = Exec::new(Who::Me);
    exec.write("a", "one two");
    let call = |id: &str, old: &str, new: &str| {
        let input = json!({"operation": "edit_file", "path": "a", "old": old, "new": new});
        let data = json!({"id": id, "name": "filesystem", "input": input});
        let call = json!({"ok": true, "schema_version": "1.0", "type": "tool_call", "data": data}).to_string();
        assert_eq!(exec.answers(&[], &call).0[0]["data"]["is_error"], false);
    };
    call("c1", "one", "1");
    call("c2", "two", "2");
    let (refused, status) = exec.ask(&["undo", "c1", "--dry-run"]);
    assert!(
        status == 6 && refused["error"]["details"]["hint"].as_str().unwrap().contains("undo first what was done later"),
        "{refused}"
    );
    // By its entry, and by its call.
    let second = newest(&exec)["seq"].to_string();
    exec.confirmed(&["undo", &second]);
    assert_eq!(exec.work.read("a"), "1 two");
    exec.confirmed(&["undo", "c1"]);
    assert_eq!(exec.work.read("a"), "one two");
    for (named, code) in [("c3", "E_NOT_FOUND"), ("all", "E_USAGE")] {
        let (answer, _) = exec.ask(&["undo", named, "--dry-run"]);
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
}

#[test]
fn undo_restores_permissions_without_user_access() {
    for who in everyone() {
        let exec = Exec::new(who);
        project(&exec);
        exec.write("run.sh", "");
        let before = contents(&exec.work);
        run(&exec, "mkdir n; echo n > n/n; rm d/a; chmod 000 a; chmod 500 d/e d n");
        exec.write("run.sh", "");
        undo(&exec, &["last", "--except-changed"]);
        assert_eq!(contents(&exec.work), before, "{who:?}");
    }
}

#[test]
fn result_and_ledger_list_changes() {
    let exec = Exec::new(Who::Me);
    project(&exec);
    assert_eq!(run(&exec, "cat a")["files_changed"], Value::Null);
    let changed = run(&exec, "echo x > a; rm b; mkdir n; chmod 600 d/a")["files_changed"].clone();
    let counts = ["created", "changed", "removed"].map(|count| changed[count].as_u64().unwrap());
    assert_eq!(counts, [1, 2, 1], "{changed}");
    let kinds: Vec<&str> =
        changed["files"].as_array().unwrap().iter().map(|file| file["change"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["changed", "removed", "mode", "created"], "{changed}");
    let entry = newest(&exec);
    assert_eq!(entry["data"]["files"], changed["files"]);
    assert_eq!(entry["data"]["intent"], exec.entries("exec.intent").pop().unwrap()["seq"]);
    // A command that fails is listed and undone like any other.
    exec.write("run.sh", "rm a; exit 3");
    let (failed, _) = exec.sh(". ./run.sh");
    assert_eq!(failed["error"]["details"]["files_changed"]["removed"], 1, "{failed}");
    undo(&exec, &["last"]);
    assert_eq!(exec.work.read("a"), "x\n");
}

#[test]
fn changes_in_directories_that_were_long_unchanged_are_found() {
    let exec = Exec::new(Who::Me);
    for directory in ["added", "guarded", "inside", "less", "moved", "renamed", "same"] {
        exec.write(&format!("{directory}/below/f"), "f");
    }
    // Until then, the time stamp of a directory does not tell whether its entries are those that were read.
    std::thread::sleep(Duration::from_millis(2200));
    let script = "echo x >added/below/new; echo x >guarded/below/.envrc; echo x >inside/below/f; rm less/below/f; \
                  mv moved/below/f moved/below/g; mv renamed/below renamed/other; mkdir renamed/below";
    let (answer, _) = exec.sh(script);
    let changed = details(&answer)["files_changed"]["files"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let below = |path: &Value| text(path).strip_prefix(&format!("{}/", exec.work.display())).unwrap().to_owned();
    let changed: Vec<_> = changed.iter().map(|file| (below(&file["path"]), text(&file["change"]))).collect();
    let expected = [
        ("added/below/new", "created"),
        ("inside/below/f", "changed"),
        ("less/below/f", "removed"),
        ("moved/below/f", "removed"),
        ("moved/below/g", "created"),
        ("renamed/below/f", "removed"),
        ("renamed/other", "created"),
        ("renamed/other/f", "created"),
    ];
    assert_eq!(changed, expected.map(|(path, change)| (path.to_owned(), change.to_owned())));
    assert!(undone(&answer)[0].0.ends_with("guarded/below/.envrc"), "{answer}");
}

#[test]
fn undo_in_another_directory_names_the_line_that_works() {
    let exec = Exec::new(Who::Me);
    let [one, other] = ["it's one", "other"].map(|name| {
        std::fs::create_dir(exec.work.join(name)).unwrap();
        exec.work.join(name)
    });
    exec.command(&["-c", "echo x >made"]).current_dir(&one).run().success();
    let refused = exec.command(&["undo", "last", "--dry-run"]).current_dir(&other).run().failed(4, "E_FORBIDDEN");
    let line = refused["details"]["hint"].as_str().unwrap().split_once(": ").unwrap().1.to_owned();
    let ours = format!("{} --home '{}'", program().display(), exec.home.display());
    let line = format!("{} --dry-run", line.replace("cp-exec", &ours));
    exec.outside(&line).without_env("CP_HOME").run().success();
    exec.command(&["undo", "last", "--dry-run"]).current_dir(&one).run().success();
    // A run and an edit in a directory that was moved.
    let edit =
        json!({"tool": "filesystem", "operation": "write_file", "arguments": {"path": "edited", "content": "x"}});
    for is_run in [true, false] {
        if is_run {
            exec.command(&["-c", "mkdir sub; echo x >sub/made"]).current_dir(&one).run().success();
        } else {
            exec.command(&[]).current_dir(&one).stdin(edit.to_string()).run().success();
        }
        let moved = exec.work.join("moved");
        std::fs::rename(&one, &moved).unwrap();
        for place in [&moved, &other] {
            let refused =
                exec.command(&["undo", "last", "--dry-run"]).current_dir(place).run().failed(3, "E_NOT_FOUND");
            assert!(refused["message"].as_str().unwrap().contains("moved or removed"), "{refused}");
            let line = refused["details"]["hint"].as_str().unwrap().split_once(": ").unwrap().1.to_owned();
            std::fs::rename(&moved, &one).unwrap();
            let line = format!("{} --dry-run", line.replace("cp-exec", &ours));
            exec.outside(&line).without_env("CP_HOME").run().success();
            std::fs::rename(&one, &moved).unwrap();
        }
        std::fs::rename(&moved, &one).unwrap();
    }
}

#[test]
fn undo_finds_run_by_receipt_of_result() {
    let exec = Exec::new(Who::Me);
    project(&exec);
    let was = exec.work.read("a");
    let first = run(&exec, "echo first > a")["receipt"].clone();
    let intent = exec.entries("exec.intent").pop().unwrap()["seq"].to_string();
    let hash = first["hash"].as_str().unwrap();
    for name in [first["seq"].to_string().as_str(), hash, &hash[..15], &hash[7..17], &intent, "last"] {
        undo(&exec, &[name]);
        assert_eq!(exec.work.read("a"), was, "{name}");
        let redo = newest(&exec)["seq"].to_string();
        undo(&exec, &[&redo]);
        assert_eq!(exec.work.read("a"), "first\n");
    }
    run(&exec, "true");
    let nothing = exec.entries("exec.result").pop().unwrap()["seq"].to_string();
    for name in ["1000000", "sha256:00", "nonsense", &nothing] {
        let (answer, status) = exec.ask(&["undo", name, "--dry-run"]);
        assert_eq!((status, answer["error"]["code"].as_str()), (3, Some("E_NOT_FOUND")), "{name}: {answer}");
        assert!(answer["error"]["details"]["hint"].is_null(), "{answer}");
    }
    let refused = exec.command(&["undo", "RUN-a b", "--dry-run"]).run().failed(3, "E_NOT_FOUND");
    assert_eq!(refused["details"]["hint"], "to undo a whole run: cp-exec --run 'RUN-a b' undo all");
}

#[test]
fn undo_refuses_or_skips_files_changed_after_run() {
    let exec = Exec::new(Who::Me);
    project(&exec);
    let was = contents(&exec.work);
    run(&exec, "echo run > a; rm b; echo n > n; rm -r d/e; mkdir m; echo m > m/m");
    exec.write("a", "the owner's");
    exec.write("m/mine", "the owner's");
    exec.write("b", "the owner's");
    exec.write("d/e", "the owner's");
    let (refused, status) = exec.ask(&["undo", "last", "--dry-run"]);
    assert_eq!((status, refused["error"]["code"].as_str()), (6, Some("E_CONFLICT")), "{refused}");
    let named = refused["error"]["details"]["files"].to_string();
    assert!(named.contains("/a\"") && named.contains("/b\"") && !named.contains("/n\""), "{refused}");
    assert_eq!(exec.work.read("n"), "n\n");
    let undone = undo(&exec, &["last", "--except-changed"]);
    let left_out = undone["left_out"].to_string();
    assert!(["/a\"", "/b\"", "/m\"", "/d/e\"", "/d/e/a\""].iter().all(|name| left_out.contains(name)), "{undone}");
    for name in ["a", "b", "m/mine"] {
        assert_eq!(exec.work.read(name), "the owner's");
    }
    assert!(!exec.work.join("n").exists() && !exec.work.join("m/m").exists());
    fs::remove_file(exec.work.join("d/e")).unwrap();
    undo(&exec, &["last", "--except-changed"]);
    assert_eq!(
        contents(&exec.work.join("d")),
        was.into_iter()
            .filter(|(path, _)| path.starts_with(exec.work.join("d")) && *path != exec.work.join("d"))
            .collect()
    );
}

#[test]
fn undo_changes_only_writable_paths() {
    let exec = Exec::new(Who::Me);
    project(&exec);
    run(&exec, "echo run > a");
    exec.policy(&format!("{POLICY}\n[paths]\nwrite = [\"d\"]\n"));
    let (refused, _) = exec.ask(&["undo", "last", "--dry-run"]);
    assert_eq!(refused["error"]["code"], "E_FORBIDDEN", "{refused}");
    assert_eq!(exec.work.read("a"), "run\n");
    // The control: with the policy of the run it is undone.
    exec.policy(POLICY);
    undo(&exec, &["last"]);
    assert_eq!(exec.work.read("a"), "a as the owner has it\n");
}

#[test]
fn undo_reports_content_above_limit() {
    let exec = Exec::new(Who::Me);
    project(&exec);
    fs::File::create(exec.work.join("large")).unwrap().set_len((16 << 20) + 1).unwrap();
    let result = run(&exec, "rm large a");
    let missing = result["enforcement"]["missing"].to_string();
    assert!(missing.contains("undo: 1 not kept") && missing.contains("/large (it is larger than 16 MiB)"), "{missing}");
    let undone = undo(&exec, &["last"]);
    assert_eq!(undone["left_out"][0]["reason"], "its content was not kept", "{undone}");
    assert!(!exec.work.join("large").exists() && exec.work.join("a").exists());
}

#[test]
fn undo_restores_file_that_run_grew_above_limit() {
    for who in everyone() {
        let exec = Exec::new(who);
        project(&exec);
        let was = contents(&exec.work.join("d"));
        let grow = "head -c 20000000 /dev/zero > d/a";
        run(&exec, grow);
        undo(&exec, &["last"]);
        assert_eq!(contents(&exec.work.join("d")), was, "{who:?}");
        // The large content is kept, so that the undo can be undone.
        undo(&exec, &[&newest(&exec)["seq"].to_string()]);
        assert!(exec.work.bytes("d/a") == vec![0; 20_000_000], "{who:?}");

        exec.write("d/a", "small\n");
        run(&exec, grow);
        fs::write(exec.work.join("d/a"), vec![1; 20_000_000]).unwrap();
        let entries = exec.entries("exec.changes").len();
        let (refused, status) = exec.ask(&["undo", "last"]);
        assert_eq!((status, refused["error"]["code"].as_str()), (6, Some("E_CONFLICT")), "{who:?}: {refused}");
        let (left, _) = exec.ask(&["undo", "last", "--except-changed"]);
        assert_eq!(left["data"]["left_out"][0]["reason"], "changed since", "{who:?}: {left}");
        assert_eq!(exec.entries("exec.changes").len(), entries, "{who:?}");
        assert!(exec.work.bytes("d/a") == vec![1; 20_000_000], "{who:?}");
    }
}

#[test]
fn read_only_run_keeps_no_contents() {
    let exec = Exec::new(Who::Me);
    project(&exec);
    exec.write("run.sh", "cat a");
    exec.ask(&["--read-only", "--", "sh", "-c", ". ./run.sh"]);
    assert!(!exec.home.join("state/kept").exists());
    run(&exec, "cat a");
    let kept = exec.home.join("state/kept");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(exec.inside(&format!("ls {}", kept.display()))["return_code"], 2, "a command sees them");
}

#[test]
fn concurrent_runs_are_undone_separately() {
    let exec = Exec::new(Who::Me);
    project(&exec);
    let before = contents(&exec.work);
    let receipts: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|actor| {
                let exec = &exec;
                scope.spawn(move || {
                    let script = format!("echo {actor} > own{actor}; sleep 0.3; echo again >> own{actor}");
                    let (answer, _) = exec.sh(&script);
                    assert_eq!(answer["ok"], true, "{answer}");
                    answer["data"]["receipt"]["seq"].to_string()
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    // A run may have recorded a partial write of another run. Such a file has changed since.
    for receipt in receipts.iter().chain(&receipts) {
        let arguments = ["undo", receipt, "--except-changed"];
        let (shown, _) = exec.ask(&[&arguments[..], &["--dry-run"]].concat());
        if let Some(token) = shown["data"]["confirm_token"].as_str() {
            exec.ask(&[&arguments[..], &["--confirm", token]].concat());
        }
    }
    for (path, state) in before {
        assert_eq!(contents(&exec.work).get(&path), Some(&state), "{}", path.display());
    }
}

/// A project that a script changes, and the arguments that run it.
fn killed() -> Place {
    let place = Place::of("cp-exec");
    place.policy(POLICY);
    for name in ["a", "b", "d/a", "d/b"] {
        place.work.write(name, name);
    }
    place.work.write("one.sh", "echo 1 > a; rm b; rm -r d; mkdir n; echo n > n/n");
    place.work.write("two.sh", "echo 2 > a; rm -rf b d n; mkdir m; echo m > m/m");
    place
}

#[test]
fn killed_undo_can_be_repeated() {
    let place = killed();
    let before = contents(&place.work);
    place.run(&["--run", "RUN-1", "--", "sh", "-c", ". ./one.sh"]);
    let edit =
        json!({"tool": "filesystem", "operation": "edit_file", "arguments": {"path": "a", "old": "1", "new": "t"}});
    assert_eq!(place.program("cp-exec").args(["--run", "RUN-1"]).stdin(format!("{edit}\n")).run().status, 0);
    let all = ["undo", "all", "--run", "RUN-1"];
    let token = |except: &[&str]| {
        let shown = place.run(&[&all[..], &["--dry-run"], except].concat());
        shown.records().pop().unwrap()["data"]["confirm_token"].as_str().map(str::to_owned)
    };
    let first = token(&[]).unwrap();
    Sweep::new(&place, &[&all[..], &["--confirm", &first]].concat()).dies_alone().run(|_, fault| {
        if let Some(again) = token(&[]) {
            let done = place.run(&[&all[..], &["--confirm", &again]].concat());
            assert_eq!(done.status, 0, "{fault}: {done:?}");
        }
        let mut found = contents(&place.work);
        // Temporary files of an interrupted write are ignored.
        found.retain(|path, _| !path.file_name().unwrap().to_string_lossy().starts_with('.'));
        assert_eq!(found, before, "{fault}");
    });
}

#[test]
fn killed_capture_keeps_store_usable() {
    let place = killed();
    let original = contents(&place.work);
    Sweep::new(&place, &["--", "sh", "-c", ". ./one.sh"]).dies_alone().run(|_, fault| {
        let before = contents(&place.work);
        let ran = place.run(&["--", "sh", "-c", ". ./two.sh"]);
        assert_eq!(ran.status, 0, "{fault}: {ran:?}");
        let shown = place.run(&["undo", "last", "--dry-run"]).records().pop().unwrap();
        let token = shown["data"]["confirm_token"].as_str().unwrap_or_else(|| panic!("{fault}: {shown}"));
        let undone = place.run(&["undo", "last", "--confirm", token]);
        assert_eq!(undone.status, 0, "{fault}: {undone:?}");
        assert_eq!(contents(&place.work), before, "{fault}");
        // So can the killed run.
        if before != original {
            let entries = place.home.records(place.home.join("ledger/cp-exec.jsonl"));
            let first = entries.iter().find(|entry| entry["event"] == "exec.changes").unwrap();
            let named = first["data"]["intent"].to_string();
            let shown = place.run(&["undo", &named, "--dry-run"]).records().pop().unwrap();
            let token = shown["data"]["confirm_token"].as_str().unwrap_or_else(|| panic!("{fault}: {shown}"));
            assert_eq!(place.run(&["undo", &named, "--confirm", token]).status, 0, "{fault}");
            assert_eq!(contents(&place.work), original, "{fault}");
        }
    });
}
