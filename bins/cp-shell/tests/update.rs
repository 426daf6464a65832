//! `cp-shell update`: installed versions and refused releases.

use cp_testkit::{Fake, Place, Server};
use predicates::str::contains;
use serde_json::{Value, json};

use crate::release::{Installed, NEW, OLD, archive_file, serve};

#[test]
fn update_replaces_programs_and_target_version_restores_them() {
    let place = Installed::new();
    place.release(NEW);
    let server = place.server();
    let done = place.update_from(&server).run().data();
    let expected = json!({
        "status": "updated", "previous_version": OLD, "current_version": NEW, "target_version": NEW,
        "update_available": false, "install_method": "release", "signature_verified": true,
        "signature_status": "verified", "verified_by": Installed::key(), "skill_sync_status": "synced",
        "command": format!("cp-shell changelog --since {OLD}"),
    });
    assert_eq!(done, expected);
    let linked = |name: &str| place.prefix.join(name).exists();
    assert_eq!((place.in_force(), place.root.read("previous/SHA256SUMS").is_empty()), (NEW.to_owned(), false));
    assert!(linked("bin/cp-new") && linked("share/man/man1/cp-new.1"));
    assert!(place.prefix.join("bin/cp-gone").read_link().is_err(), "what leads nowhere is taken away");
    assert_eq!(place.program(place.prefix.join("bin/cp-shell")).run().stdout, format!("cp-shell {NEW}\n"));
    assert!(place.skill.read("SKILL.md").contains(NEW));
    place.is_tidy();

    let asked = server.requests().len();
    let again = place.update_from(&server).run().data();
    assert_eq!((&again["status"], &again["command"]), (&"current".into(), &Value::Null));
    assert_eq!(server.requests().len(), asked + 1, "the version is enough to know that there is nothing to do");
    let text = place.update_from(&server).args(["--format", "text"]).run().success().stdout;
    assert_eq!(text, format!("{NEW} is the newest version that this mirror offers\n"));

    place.release("0.0.1");
    let back = place.update().args(["--target-version", "0.0.1"]).run().data();
    assert_eq!((&back["status"], &back["current_version"]), (&"updated".into(), &"0.0.1".into()));
    assert_eq!(back["command"], Value::Null, "an older version has no changes to read");
    place.releases.write("latest", NEW);
    // A version that was replaced is downloaded again, and the old directory is not trusted.
    place.root.write(format!("{NEW}/bin/cp-new"), "changed");
    assert_eq!(place.update().run().data()["current_version"], NEW);
    assert_eq!(place.root.read(format!("{NEW}/bin/cp-new")), "new\n");
}

/// Asserts that an update is refused at a stage, and that nothing was changed.
#[track_caller]
fn refused(place: &Installed, code: (i32, &str), stage: &str, what: &str) -> Value {
    let error = place.update().run().failed(code.0, code.1);
    let Value::Object(details) = &error["details"] else { panic!("{error}") };
    assert_eq!((&details["stage"], &details["current_version"]), (&stage.into(), &OLD.into()), "{what}: {error}");
    let [replaced, skill] = [&details["binary_replaced"], &details["skill_sync_status"]];
    assert_eq!((replaced, skill), (&false.into(), &"not_started".into()), "{what}: {error}");
    assert_eq!(place.in_force(), OLD, "{what}");
    assert!(place.skill.read("SKILL.md").contains("older"), "{what}");
    place.is_tidy();
    error
}

const INTEGRITY: (i32, &str) = (1, "E_INTEGRITY");

#[test]
fn unsigned_or_changed_release_is_refused() {
    let place = Installed::new();
    let changes = [
        (INTEGRITY, "verify_signature", "rm v9.9.9/SHA256SUMS.note"),
        (INTEGRITY, "verify_signature", "rm v9.9.9/SHA256SUMS*"),
        (INTEGRITY, "verify_signature", "rm -r v9.9.9"),
        (INTEGRITY, "verify_signature", "sed -i s/info/security/ v9.9.9/SHA256SUMS.note"),
        (INTEGRITY, "verify_signature", "sed -i s/test-release/other-name/ v9.9.9/SHA256SUMS.note"),
        (INTEGRITY, "verify_signature", "sed -i '$s/.....$/AAAA=/' v9.9.9/SHA256SUMS.note"),
        // Another release of the same key, under this name.
        (INTEGRITY, "verify_signature", "cp v9.9.8/SHA256SUMS* v9.9.9"),
        (INTEGRITY, "verify_checksum", "truncate -s +1 v9.9.9/*.gz"),
        (INTEGRITY, "verify_checksum", "truncate -s 100 v9.9.9/*.gz"),
        (INTEGRITY, "verify_checksum", "mv v9.9.8/*.gz v9.9.9/$(cd v9.9.9; ls *.gz)"),
        (INTEGRITY, "download", "rm v9.9.9/*.gz"),
    ];
    for (code, stage, change) in changes {
        place.release("9.9.8");
        place.release(NEW);
        place.sh(&format!("cd '{}'; {change}", place.releases.display())).success();
        let error = refused(&place, code, stage, change);
        assert_eq!(error["retryable"], false, "{change}");
        assert!(error["details"]["hint"].as_str().unwrap().contains("do not retry"), "{error}");
    }
    place.release(NEW);
    // The key of the tests is not the built-in one.
    let builtin = place.shell().args(["update", "--from"]).arg(&place.releases).run();
    assert_eq!(builtin.failed(1, "E_INTEGRITY")["details"]["stage"], "verify_signature");
    place.update().run().success();
}

#[test]
fn signed_archive_must_contain_complete_tree() {
    let place = Installed::new();
    let outside = "-P --transform s,^cp-tools-9.9.9/bin/cp-new,cp-tools-9.9.9/../../cp-new,";
    let fails = "printf '#!/no/such/shell\\n' >bin/cp-log";
    let trees = [
        (INTEGRITY, "", "echo more >>bin/cp-new", ""),
        (INTEGRITY, "", "touch bin/cp-more", ""),
        (INTEGRITY, "", "rm bin/cp-new", ""),
        (INTEGRITY, "", "rm SHA256SUMS", ""),
        (INTEGRITY, "", "echo nonsense >>SHA256SUMS", ""),
        (INTEGRITY, "", "ln -s /etc/passwd bin/cp-link", ""),
        (INTEGRITY, "rm install", "", ""),
        (INTEGRITY, "sed -i s/9.9.9/9.9.8/ bin/cp-log", "", ""),
        (INTEGRITY, "", "", "-P --transform s,^cp-tools-9.9.9/bin/cp-new,/tmp/cp-new,"),
        ((1, "E_IO"), "", "", outside),
        ((4, "E_CONFIG"), fails, "", ""),
    ];
    for (code, change, tamper, pack) in trees {
        place.release_of(NEW, "info", change, tamper, pack);
        refused(&place, code, "replace", &[change, tamper, pack].concat());
    }
    place.release_of(NEW, "info", "", "", "");
    place.update().run().success();
}

#[test]
fn network_failure_is_retryable() {
    let place = Installed::new();
    place.release(NEW);
    let (releases, whole) = (place.releases.to_path_buf(), place.releases.bytes(archive_file(NEW)));
    let short = Server::replying(move |request| match request.line() {
        line if line.contains(".tar.") => {
            let head = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n", whole.len());
            let bytes = [head.as_bytes(), &whole[..whole.len() / 2]].concat();
            vec![cp_testkit::server::Step::Bytes(bytes), cp_testkit::server::Step::Close]
        }
        line => serve(&releases, line),
    });
    let failing = |status| Server::playing(vec![cp_testkit::server::reply(status, "text/plain", "", b"")]);
    for (server, status, code, stage) in [
        (short, 7, "E_NETWORK", "download"),
        (failing(503), 7, "E_SERVER", "discover"),
        (failing(429), 7, "E_RATE_LIMITED", "discover"),
        (failing(404), 3, "E_NOT_FOUND", "discover"),
        (failing(302), 4, "E_CONFIG", "discover"),
    ] {
        let error = place.update_from(&server).run().failed(status, code);
        assert_eq!((&error["details"]["stage"], place.in_force()), (&stage.into(), OLD.to_owned()), "{error}");
    }
    place.is_tidy();
    let closed = place.shell().args(["update", "--from", "http://127.0.0.1:1"]).run();
    assert_eq!(closed.failed(7, "E_NETWORK")["retryable"], true);
}

#[test]
fn older_version_requires_target_version() {
    let place = Installed::new();
    place.release("0.0.1");
    refused(&place, (6, "E_CONFLICT"), "discover", "older");
    let named = place.update().args(["--target-version", "0.0.1"]).run().data();
    assert_eq!((&named["current_version"], place.in_force()), (&"0.0.1".into(), "0.0.1".to_owned()));
    place.update().args(["--target-version", "3.0.0"]).run().failed(3, "E_NOT_FOUND");
    // A version with a list of its files exists, so its signature is missing.
    place.releases.write("v3.0.0/SHA256SUMS", "");
    place.update().args(["--target-version", "3.0.0"]).run().failed(1, "E_INTEGRITY");
    place.update().args(["--target-version", "../x"]).run().failed(2, "E_VALIDATION");
    place.shell().arg("update").run().assert().code(4).stdout(contains("update_from"));
    // Versions that are not active, previous or running are removed.
    for version in ["2.0.0", "3.0.0"] {
        place.release(version);
        place.update().run().success();
    }
    assert_eq!(place.root.names(), [OLD, "2.0.0", "3.0.0", "current", "previous"]);
}

#[test]
fn check_records_newest_version_only() {
    let place = Installed::new();
    place.release_of(NEW, "security", "", "", "");
    let planned = place.update().arg("--dry-run").run().data();
    assert_eq!((&planned["status"], place.home.join("state").exists()), (&"planned".into(), false));
    let found = place.update().arg("--check").run().data();
    assert_eq!((&found["status"], &found["verified_by"]), (&"available".into(), &Installed::key().into()));
    assert!(
        found["command"].as_str().unwrap().starts_with("cp-shell update --from ") && place.in_force() == OLD,
        "{found}"
    );
    std::fs::remove_dir_all(&*place.releases).unwrap();
    for verb in ["context", "doctor"] {
        let notices = place.shell().arg(verb).run().closing()["meta"]["notices"].clone();
        assert_eq!((&notices[0]["type"], &notices[0]["severity"]), (&"update_available".into(), &"warning".into()));
    }
    std::fs::create_dir(&*place.releases).unwrap();
    // A routine release of the same major version is a notice, and the current release is not reported.
    let [major, minor, _] = [0, 1, 2].map(|at| OLD.split('.').nth(at).unwrap().parse::<u64>().unwrap());
    place.release(&format!("{major}.{}.0", minor + 1));
    assert_eq!(place.update().arg("--check").run().closing()["meta"]["notices"][0]["severity"], "info");
    place.releases.write("latest", OLD);
    place.update().arg("--check").run().success();
    assert_eq!(place.shell().arg("context").run().closing()["meta"]["notices"], Value::Null);
}

#[test]
fn apt_programs_are_updated_by_apt() {
    let place = Place::of("cp-shell");
    let bin = place.root.directory("bin");
    place.install("cp-shell");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let update = |words: &[&str]| place.subject().arg("update").args(words).env("PATH", &path).run();
    assert_eq!(update(&[]).failed(4, "E_CONFIG")["details"]["stage"], "discover", "a build is not an install");

    Fake::doing(&place, "dpkg", "echo \"cp-tools: $2\"");
    let apt = Fake::doing(&place, "apt-get", "echo unable >&2; exit 100");
    let error = update(&[]).failed(1, "E_COMMAND_FAILED");
    let command = "apt-get install --only-upgrade --yes cp-tools";
    assert_eq!(error["details"]["command"], command);
    assert_eq!(error["details"]["stage"], "replace");
    assert_eq!(format!("apt-get {}", apt.last_call().arguments), command);

    place.user.write(".agents/skills/cp-tools/SKILL.md", "---\nname: cp-tools\n---\n");
    place.root.write("share/cp-tools/skill/SKILL.md", "the new one");
    let script = format!(
        "cd '{}' && rm cp-shell && printf '#!/bin/sh\\necho cp-shell 9.9.9\\n' >cp-shell && chmod +x cp-shell",
        bin.display()
    );
    Fake::doing(&place, "apt-get", &script);
    assert_eq!(update(&["--dry-run"]).data()["command"], command);
    let done = update(&[]).data();
    assert_eq!((&done["status"], &done["current_version"]), (&"updated".into(), &"9.9.9".into()));
    assert_eq!((&done["install_method"], &done["skill_sync_status"]), (&"apt".into(), &"synced".into()));
    assert_eq!(place.user.read(".agents/skills/cp-tools/SKILL.md"), "the new one");
}

#[test]
fn cargo_programs_are_rebuilt_from_their_source() {
    let place = Place::of("cp-shell");
    place.install("cp-shell");
    place.root.write(".crates.toml", "[v1]\n\"cp-log 0.1.0 (git+https://h.example/cp#1)\" = [\"cp-log\"]\n\"cp-shell 0.1.0 (git+https://h.example/cp#1)\" = [\"cp-shell\"]\n\"x 1.0.0 (registry+r)\" = [\"x\"]\n");
    let cargo = Fake::doing(&place, "cargo", "true");
    let update = || {
        let path = format!("{}:/usr/bin:/bin", place.root.join("bin").display());
        place.subject().arg("update").env("CARGO_HOME", &place.root).env("PATH", path).run()
    };
    assert_eq!(update().data()["status"], "current");
    assert_eq!(cargo.last_call().arguments, "install --locked --git https://h.example/cp cp-log cp-shell");
    place.root.write(".crates.toml", "[v1]\n\"cp-shell 0.1.0 (path+file:///src/cp)\" = [\"cp-shell\"]\n");
    update().failed(4, "E_CONFIG");
    assert_eq!(cargo.calls().len(), 1);
}
