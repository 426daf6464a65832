//! `cp-shell update` that is interrupted, killed, run concurrently, or cannot update the skill.

use cp_testkit::server::Step;
use cp_testkit::{Server, Signal, counterpart, until};

use crate::release::{Installed, NEW, OLD, serve};

/// A release with a program that the installer runs, and that waits until the file `go` exists.
fn that_waits(place: &Installed) {
    let (came, go) = (place.root.join("../came"), place.root.join("../go"));
    // It ends with its tree, too.
    let until = format!("[ -e {} ] || ! [ -e \"$0\" ]", go.display());
    let wait = format!("touch {}; until {until}; do sleep 0.01; done", came.display());
    place.release_of(NEW, "info", &format!("sed -i '2i {wait}' bin/cp-log"), "", "");
}

#[test]
fn update_signal_keeps_old_version() {
    for (stage, waits_for) in [
        ("discover", "latest"),
        ("verify_signature", "SHA256SUMS.note"),
        ("download", ".tar.gz"),
        ("replace", "the installer"),
    ] {
        let place = Installed::new();
        that_waits(&place);
        let releases = place.releases.to_path_buf();
        let server = Server::replying(move |request| match request.line() {
            line if line.ends_with(waits_for) => {
                vec![Step::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 9999\r\n\r\nxx".to_vec()), Step::Stall]
            }
            line => serve(&releases, line),
        });
        let running = place.update_from(&server).start();
        let is_there = || {
            let requests = server.requests();
            requests.last().is_some_and(|last| last.line().ends_with(waits_for)) || place.root.join("../came").exists()
        };
        until(waits_for, is_there);
        running.signal(Signal::TERM);
        let error = running.wait().failed(130, "E_INTERRUPTED");
        assert_eq!((&error["details"]["stage"], &error["details"]["current_version"]), (&stage.into(), &OLD.into()));
        assert_eq!(place.in_force(), OLD);
        place.is_tidy();
    }
}

#[test]
fn concurrent_update_is_refused() {
    let place = Installed::new();
    that_waits(&place);
    let first = place.update().start();
    until("the installer runs the new program", || place.root.join("../came").exists());
    let error = place.update().run().failed(6, "E_CONFLICT");
    assert_eq!(error["details"]["stage"], "discover");
    place.prefix.write("lib/go", "");
    assert_eq!(first.wait().data()["status"], "updated");
}

#[test]
fn killed_update_leaves_a_whole_version() {
    let Some(strace) = counterpart("strace") else { return };
    let calls = [
        "renameat,rename",
        "renameat2",
        "symlink,symlinkat",
        "mkdir,mkdirat",
        "unlink,unlinkat,rmdir",
        "flock",
        "write",
    ];
    let (mut killed, mut replaced) = (0, 0);
    for calls in calls {
        for when in 1..=cp_testkit::times(4, 40) {
            let place = Installed::new();
            place.release(NEW);
            let inject = format!("inject={calls}:signal=SIGKILL:when={when}");
            let done = place.update().under(&strace, ["-qq", "-o", "/dev/null", "-e", &inject]).run();
            let now = place.in_force();
            assert!([OLD, NEW].contains(&now.as_str()), "{inject}: {now}");
            let said = place.program(place.prefix.join("bin/cp-shell")).arg("--version").run().success().stdout;
            assert_eq!(said, format!("cp-shell {now}\n"), "{inject}");
            killed += usize::from(done.status == 137);
            replaced += usize::from(done.status == 137 && now == NEW);
            place.update().run().success();
            assert_eq!(place.in_force(), NEW, "{inject}");
            assert!(place.prefix.join("bin/cp-new").exists() && place.skill.read("SKILL.md").contains(NEW), "{inject}");
            place.is_tidy();
            if done.status == 0 {
                break;
            }
        }
    }
    assert!(killed > 12 && replaced > 2, "{killed} were killed, {replaced} of them after the replacing");
}

#[test]
fn failed_skill_sync_is_partial() {
    let place = Installed::new();
    place.release(NEW);
    // Another file is in the place of the new skill.
    place.user.write(".claude/skills/.cp-tools-new", "");
    let error = place.update().run().failed(1, "E_PARTIAL");
    let details = &error["details"];
    assert_eq!((&details["stage"], &details["current_version"]), (&"skill_sync".into(), &NEW.into()));
    let [replaced, skill] = [&details["binary_replaced"], &details["skill_sync_status"]];
    assert_eq!((replaced, skill), (&true.into(), &"failed".into()));
    assert!(place.skill.read("SKILL.md").contains("older"));
    place.sh(details["skill_sync_command"].as_str().unwrap()).success();
    assert!(place.skill.read("SKILL.md").contains(NEW));
    assert_eq!(place.update().run().data()["skill_sync_status"], "current");
}

#[test]
fn foreign_and_linked_skills_are_kept() {
    let place = Installed::new();
    place.release(NEW);
    let other = "---\nname: other\n---\n";
    place.skill.write("SKILL.md", other);
    let link = place.user.directory(".agents/skills").join("cp-tools");
    std::os::unix::fs::symlink(place.root.join("current/share/cp-tools/skill"), &link).unwrap();
    assert_eq!(place.update().run().data()["skill_sync_status"], "not_installed");
    assert_eq!(place.skill.read("SKILL.md"), other);
    assert!(link.read_link().is_ok() && std::fs::read_to_string(link.join("SKILL.md")).unwrap().contains(NEW));
}

#[test]
fn unwritable_installation_is_named() {
    let place = Installed::new();
    place.release(NEW);
    // The size limit of files simulates a full disk.
    let program = place.root.join(OLD).join("bin/cp-shell");
    let line = format!("ulimit -f 0; exec '{}' update --trust '{}' --from", program.display(), Installed::key());
    let error = place.sh(&format!("{line} '{}'", place.releases.display())).failed(1, "E_IO");
    assert_eq!((&error["details"]["stage"], place.in_force()), (&"download".into(), OLD.to_owned()), "{error}");
    place.is_tidy();
}
