//! The places of the default home: data, configuration and state.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cp_testkit::{Outcome, Place, Program};

const POLICY: &str = "[exec]\nconfirm = \"owner\"\nallowed_commands = [\"cat\", \"tee\", \"true\"]\n\
    [[exec.rule]]\ncommand = \"true\"\ndecision = \"ask\"\n";

/// A script without `CP_HOME`.
fn shell(place: &Place, script: &str) -> Program {
    place.shell("sh", script).without_env("CP_HOME")
}

fn sh(place: &Place, script: &str) -> Outcome {
    shell(place, script).run()
}

/// The directories of data, configuration and state below the user's home directory.
fn places(place: &Place) -> [PathBuf; 3] {
    [".local/share/cp", ".config/cp", ".local/state/cp"].map(|below| place.user.join(below))
}

fn doctor(place: &Place) -> serde_json::Value {
    let checks = sh(place, "cp-log doctor | jq -c '[.. | .checks? // empty][0]'").stdout;
    let checks: serde_json::Value = serde_json::from_str(&checks).unwrap();
    checks.as_array().unwrap().iter().find(|check| check["check"] == "home").unwrap().clone()
}

#[test]
fn new_home_has_configuration_and_state_in_their_own_directories() {
    let place = Place::new();
    place.user.write(".config/cp/policy.toml", POLICY);
    place.user.write(".config/cp/cp.toml", "tier = \"ho2\"\n");
    let ran = sh(
        &place,
        "cp-log append one >/dev/null; cp-shell config get tier --format text; cp-exec -- true | jq -r .error.code",
    );
    assert_eq!(ran.stdout, "ho2\nE_HUMAN_REQUIRED\n", "{}", ran.stderr);
    let [data, config, state] = places(&place);
    assert!(data.join("ledger").is_dir() && state.join("approvals").is_dir() && !data.join("config").exists());
    assert!(!data.join("state").exists() && !config.join("keys").exists());
    for directory in [&data, &state] {
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700, "{}", directory.display());
    }
    assert_eq!(doctor(&place)["status"], "pass");
    // `--home` with the directory of data is the same home, as `cp-toolloop` and hosts name it.
    let ran = sh(
        &place,
        "cp-shell config get tier --format text --home ~/.local/share/cp; CP_HOME=$HOME/.local/share/cp cp-exec approve | jq .data.count",
    );
    assert_eq!(ran.stdout, "ho2\n1\n");
    // Any other directory holds everything.
    sh(&place, "cp-exec policy init --home ~/other >/dev/null; cp-exec --home ~/other -- id").success();
    assert!(place.user.join("other/config/policy.toml").exists() && place.user.join("other/state").exists());
}

#[test]
fn init_writes_configuration_where_programs_read_it() {
    let place = Place::new();
    let [data, config, _] = places(&place);
    let ran = sh(&place, "cp-shell init | jq -r .data.config_directory; cp-shell config | jq -r .data.file");
    assert_eq!(ran.stdout, format!("{0}\n{0}/cp.toml\n", config.display()), "{}", ran.stderr);
    assert!(config.join("policy.toml").is_file() && config.join("agents.json").is_file());
    assert!(!data.join("config").exists() && data.join("agents/default/soul.md").is_file());
    let ran = sh(&place, "echo 'CP_MODEL=from-file' >>~/.config/cp/cp.env; . cp.sh && config_init && echo $CP_MODEL");
    assert_eq!(ran.stdout, "from-file\n", "{}", ran.stderr);
}

#[test]
fn each_variable_names_its_place_unless_it_is_relative() {
    for (variable, below, file) in [
        ("XDG_DATA_HOME", ".local/share/cp", "ledger/cp-log.jsonl"),
        ("XDG_CONFIG_HOME", ".config/cp", "policy.toml"),
        ("XDG_STATE_HOME", ".local/state/cp", "runs"),
    ] {
        for (value, is_used) in [("DIR/x y", true), ("rel", false), ("", false)] {
            let place = Place::new();
            let value = value.replace("DIR", &place.root.to_string_lossy());
            shell(&place, "cp-exec policy init && cp-log append one && cp-exec -- id")
                .env(variable, &value)
                .run()
                .success();
            let directory = if is_used { Path::new(&value).join("cp") } else { place.user.join(below) };
            assert!(directory.join(file).exists(), "{variable}={value}");
            assert!(!place.work.join("rel").exists() && place.work.names().is_empty(), "{variable}={value}");
        }
    }
}

#[test]
fn relative_home_is_refused_and_makes_nothing() {
    for home in ["rel", "", "./rel"] {
        let place = Place::new();
        let ran = shell(&place, "cp-log append one").env("HOME", home).run();
        let hint = ran.failed(4, "E_CONFIG")["details"]["hint"].as_str().unwrap().to_owned();
        assert!(hint.contains("CP_HOME"), "{hint}");
        assert!(place.work.names().is_empty());
    }
}

#[test]
fn unwritable_places_are_named() {
    let place = Place::new();
    for variable in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        let ran = shell(&place, "cp-log doctor").env(variable, "/dev/null/none").run().code(1);
        assert!(ran.stdout.contains("/dev/null/none/cp cannot be written"), "{variable}: {}", ran.stdout);
    }
}

#[test]
fn commands_neither_read_nor_write_any_place() {
    let place = Place::new();
    let exec = "[exec]\nallowed_commands = [\"cat\", \"tee\"]\nintent = \"off\"\n";
    let user = place.user.display();
    let policy = format!("{exec}[paths]\nread = [\".\", \"{user}\"]\nwrite = [\"{user}\"]\n");
    place.user.write(".config/cp/policy.toml", policy);
    place.user.write("free", "free");
    sh(&place, "cp-log append one; cp-exec -- cat ~/free").success();
    let [data, config, state] = places(&place);
    place.user.write(".local/state/cp/secret", "secret");
    for file in [data.join("ledger/cp-log.jsonl"), config.join("policy.toml"), state.join("secret")] {
        let before = std::fs::read(&file).unwrap();
        let file = file.display();
        let ran = sh(
            &place,
            &format!("cp-exec -- cat {file}; echo x | cp-exec -- tee -a {file}; cp-exec -- tee {file}.new </dev/null"),
        );
        assert!(ran.records().iter().all(|record| record["ok"] == false), "{file}: {}", ran.stdout);
        assert_eq!(std::fs::read(file.to_string()).unwrap(), before);
        assert!(!Path::new(&format!("{file}.new")).exists());
    }
    // The same words about another file are allowed.
    let ran = sh(&place, "cp-exec -- cat ~/free; cp-exec -- tee ~/other </dev/null");
    assert!(ran.records().iter().all(|record| record["ok"] == true), "{}", ran.stdout);
}
