//! The places of the default home: data, configuration and state, and the move out of the single directory of before.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cp_testkit::{Outcome, Place, Program, counterpart, is_sampled, times, until};
use rustix::fs::{FlockOperation, flock};

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

/// A home of before, with a ledger, a policy, a setting, a pending approval, and a confirm token that is spent.
fn of_before() -> (Place, String) {
    let place = Place::new();
    let data = place.user.at(".local/share/cp");
    data.write("config/policy.toml", POLICY);
    data.write("config/cp.toml", "tier = \"ho3\"\n");
    data.directory("state");
    let made = sh(
        &place,
        "cp-log append one >/dev/null; cp-exec -- true | jq -r .error.details.id
        token=$(cp-session start --name bug >/dev/null; cp-session delete bug --dangerous --dry-run | jq -r .data.confirm_token)
        cp-session delete bug --dangerous --confirm \"$token\" >/dev/null; echo \"$token\"",
    );
    let words: Vec<&str> = made.stdout.lines().collect();
    assert!(words[0].starts_with("APR-") && words[1].starts_with("ct_"), "{made:?}");
    let approval = words[0].to_owned();
    place.user.write("token", words[1]);
    (place, approval)
}

/// Checks that every program still finds the home, and that it is one home. Each check appends a line.
fn check_home(place: &Place, approval: &str, lines: usize, what: &str) {
    check_home_with(place, &place.user.join(".config"), approval, lines, what);
}

fn check_home_with(place: &Place, config_base: &Path, approval: &str, lines: usize, what: &str) {
    let ran = shell(
        place,
        "cp-log append again | jq -c .ok; cp-log verify ~/.local/share/cp/ledger | jq -c .ok | sort -u
        cp-shell config get tier --format text; cp-exec approve | jq -r '.data.items[].id'
        cp-session delete bug --dangerous --confirm \"$(cat ~/token)\" | jq -r .error.details.reason
        cp-exec policy show | jq -c '.data.policy.exec.allowed_commands'
        find ~ -name cp-log.jsonl; grep -c again ~/.local/share/cp/ledger/cp-log.jsonl",
    )
    .env("XDG_CONFIG_HOME", config_base)
    .run();
    let ledger = places(place)[0].join("ledger/cp-log.jsonl");
    let expected =
        format!("true\ntrue\nho3\n{approval}\nreplayed\n[\"cat\",\"tee\",\"true\"]\n{}\n{lines}\n", ledger.display());
    assert_eq!(ran.stdout, expected, "{what}: {}", ran.stderr);
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

#[test]
fn home_of_before_is_used_until_doctor_moves_it() {
    let (place, approval) = of_before();
    let [data, config, state] = places(&place);
    check_home(&place, &approval, 1, "before");
    let check = doctor(&place);
    assert_eq!(check["status"], "warn");
    assert!(check["fix"].as_str().unwrap().starts_with("`cp-shell doctor --move` moves"), "{check}");
    assert!(!config.exists() && !state.exists());
    let ledger = data.join("ledger/cp-log.jsonl").metadata().unwrap().ino();

    let moved = sh(&place, "cp-shell doctor --move --format text");
    assert!(
        moved.stdout.contains(&format!("✓ move: {} is now {}", data.join("config").display(), config.display())),
        "{moved:?}"
    );
    assert!(config.join("policy.toml").is_file() && state.join("approvals").is_dir() && !config.is_symlink());
    // An earlier version, and a host that names the home, find the files by the paths of before.
    assert_eq!(data.join("config").read_link().unwrap(), config);
    assert_eq!(data.join("ledger/cp-log.jsonl").metadata().unwrap().ino(), ledger);
    check_home(&place, &approval, 2, "after");
    assert_eq!(doctor(&place)["status"], "pass");
    assert!(sh(&place, "cp-log query --event command").stdout.contains("--move"));
    sh(&place, "cp-shell doctor --move >/dev/null");
    check_home(&place, &approval, 3, "moved twice");
    // The links lead there without the variables, too.
    let ran = shell(&place, "cp-shell config get tier --format text --home ~/.local/share/cp")
        .env("XDG_DATA_HOME", "/elsewhere")
        .run();
    assert_eq!(ran.stdout, "ho3\n");
}

#[test]
fn move_refuses_directory_that_has_files() {
    let (place, approval) = of_before();
    place.user.write(".config/cp/policy.toml", "[exec]\nallowed_commands = [\"*\"]\n");
    let ran = sh(&place, "cp-shell doctor --move");
    ran.failed(6, "E_CONFLICT");
    check_home(&place, &approval, 1, "refused");
    // An empty directory is no obstacle.
    sh(&place, "rm -r ~/.config/cp; mkdir ~/.config/cp; cp-shell doctor --move >/dev/null");
    check_home(&place, &approval, 2, "moved");
    assert!(places(&place)[0].join("config").is_symlink());
}

#[test]
fn move_across_file_systems_keeps_everything() {
    let (place, approval) = of_before();
    let Some(elsewhere) = on_other_file_system(&place.user) else { return };
    let set = format!("export XDG_CONFIG_HOME={0}/c XDG_STATE_HOME={0}/s; ", elsewhere.0.display());
    let moved = sh(&place, &(set + "cp-shell doctor --move"));
    assert!(elsewhere.0.join("c/cp/policy.toml").is_file(), "{moved:?}");
    let names: Vec<_> =
        std::fs::read_dir(elsewhere.0.join("c/cp")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    check_home(&place, &approval, 1, "moved");
    assert_eq!(place.user.at(".local/share/cp").names(), ["config", "keys", "ledger", "planes", "state"]);
}

/// A directory on another file system, which is removed with the test.
struct Elsewhere(PathBuf);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes a directory on another file system than `path`, if the machine has one.
fn on_other_file_system(path: &Path) -> Option<Elsewhere> {
    let other = Path::new("/dev/shm").join(path.parent()?.file_name()?);
    std::fs::create_dir(&other).ok()?;
    let other = Elsewhere(other);
    (other.0.metadata().ok()?.dev() != path.metadata().ok()?.dev()).then_some(other)
}

/// The system calls of a move that change something, in both of its ways.
const CALLS: [&str; 10] =
    ["symlink", "renameat2", "rename", "mkdir", "unlink", "unlinkat", "rmdir", "flock", "syncfs", "copy_file_range"];

#[test]
fn killed_move_leaves_one_home() {
    let Some(strace) = counterpart("strace") else { return };
    let (mut killed, mut moved_before_death) = (0, 0);
    for is_far in [false, true] {
        for (_, call) in CALLS.iter().enumerate().filter(|(at, _)| is_sampled(*at, usize::from(is_far), 4)) {
            for when in (1..).step_by(times(3, 1)) {
                let (place, approval) = of_before();
                let elsewhere = if is_far { on_other_file_system(&place.user) } else { None };
                if is_far && elsewhere.is_none() {
                    return;
                }
                let base = elsewhere.as_ref().map_or(place.user.join(".config"), |elsewhere| elsewhere.0.clone());
                let with_base = |words: &str| shell(&place, words).env("XDG_CONFIG_HOME", &base);
                let inject = format!("-e inject={call}:signal=SIGKILL:when={when}");
                let line = format!("{} -qq -o /dev/null {inject} cp-shell doctor --move >/dev/null", strace.display());
                let done = with_base(&line).run();
                let what = format!("{inject}, far: {is_far}");
                // The home is whole, before anything else runs and after the move is repeated.
                let data = places(&place)[0].clone();
                moved_before_death += usize::from(done.status == 137 && data.join("config").is_symlink());
                check_home_with(&place, &base, &approval, 1, &what);
                with_base("cp-shell doctor --move >/dev/null").run();
                assert!(data.join("config").is_symlink() && data.join("state").is_symlink(), "{what}");
                check_home_with(&place, &base, &approval, 2, &what);
                assert_eq!(
                    place.user.at(".local/share/cp").names(),
                    ["config", "keys", "ledger", "planes", "state"],
                    "{what}"
                );
                if done.status != 137 {
                    break;
                }
                killed += 1;
            }
        }
    }
    assert!(
        killed > times(3, 10) && moved_before_death > times(0, 2),
        "{killed} were killed, {moved_before_death} of them after a move"
    );
}

#[test]
fn move_waits_for_other_processes_and_they_wait_for_it() {
    let (place, approval) = of_before();
    let data = places(&place)[0].clone();
    // A long-running program uses the home.
    let mut follow = shell(&place, "exec cp-log follow --format json").start();
    until("the program has begun", || !follow.has_ended() && is_locked(&data));
    let mut moving = shell(&place, "exec cp-shell doctor --move").start();
    sh(&place, "cp-log append while >/dev/null").success();
    assert!(!moving.has_ended() && !data.join("config").is_symlink());
    follow.signal(cp_testkit::Signal::TERM);
    follow.finish();
    moving.wait();
    assert!(data.join("config").is_symlink() && data.join("state").is_symlink());
    check_home(&place, &approval, 1, "moved");

    // A program that starts during a move waits for its end. The test plays the move.
    let (place, approval) = of_before();
    let data = places(&place)[0].clone();
    let lock = File::open(&data).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut waiting =
        shell(&place, "cp-log append again >/dev/null; exec cp-shell config get tier --format text").start();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!waiting.has_ended());
    std::fs::create_dir_all(place.user.join(".config")).unwrap();
    std::fs::rename(data.join("config"), place.user.join(".config/cp")).unwrap();
    drop(lock);
    assert_eq!(waiting.wait().stdout, "ho3\n");
    check_home(&place, &approval, 2, "played");
}

/// True if a process has a lock on the directory.
fn is_locked(directory: &Path) -> bool {
    flock(File::open(directory).unwrap(), FlockOperation::NonBlockingLockExclusive).is_err()
}
