//! `cp-shell init`: the home that the programs then work in.

use std::os::unix::fs::PermissionsExt as _;

use cp_testkit::{Place, Server, server};
use cp_tests::check_contract;
use serde_json::json;

#[test]
fn init_makes_what_is_absent_and_nothing_twice() {
    let place = Place::new();
    let first = place.sh("cp-shell init");
    check_contract(&first);
    let items = first.closing()["data"]["items"].as_array().unwrap().clone();
    assert!(items.iter().all(|item| item["action"] == "created"), "{}", first.stdout);
    for item in &items {
        let path = place.home.join(item["path"].as_str().unwrap());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    place.home.write("agents/default/soul.md", "mine\n");
    let second = place.sh("cp-shell init");
    assert!(
        second.closing()["data"]["items"].as_array().unwrap().iter().all(|item| item["action"] == "kept"),
        "{}",
        second.stdout
    );
    assert_eq!(place.home.read("agents/default/soul.md"), "mine\n");
}

/// A person keeps these under version control elsewhere.
#[test]
fn a_link_in_place_of_a_file_of_the_person_stays() {
    for (name, line) in [
        ("config/cp.toml", "cp-ask models default stub/x"),
        ("config/templates/sum.md", "cp-ask --save sum -- 'Sum {{ text }}'"),
        ("keys/api/openai", "echo sk-0123456789abcdef0123 | cp-ask keys set openai"),
    ] {
        let place = Place::new();
        place.sh(line).success();
        let (file, kept) = (place.home.join(name), place.root.join("kept"));
        let written = std::fs::read(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&kept, "").unwrap();
        std::os::unix::fs::symlink(&kept, &file).unwrap();
        place.sh(line).success();
        assert!(file.is_symlink(), "{name}");
        assert_eq!(std::fs::read(&kept).unwrap(), written, "{name}");
    }
}

/// What a newcomer types first, with nothing but a home and a path.
fn first_words() -> Vec<String> {
    let ran = Place::new().sh("env -i HOME=\"$HOME\" PATH=\"$PATH\" cp-ask hi").code(4);
    assert_eq!(ran.stdout, "");
    ran.stderr.lines().map(str::to_owned).collect()
}

#[test]
fn the_first_answer_without_a_key_is_three_lines_that_say_what_to_do() {
    let said = first_words();
    assert_eq!(said.len(), 3, "{said:?}");
    assert_eq!(said[1], "  Hint: cp-ask keys set openai");
    // What the last line promises is so.
    let offline = "cp-ask --backend stub hi";
    assert!(said[2].ends_with(offline), "{said:?}");
    assert_eq!(Place::new().sh(offline).stdout, "stub response 1\n");
}

#[test]
fn the_checklist_has_a_mark_before_each_check_and_the_cure_below() {
    let ran = Place::new().sh("cp-llm doctor --format text; cp-exec doctor --format text");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let is_check = |line: &str| ["✓ ", "! ", "✗ "].iter().any(|mark| line.starts_with(mark));
    let counts: Vec<&&str> = lines.iter().filter(|line| line.contains(" pass, ") && line.contains(" fail")).collect();
    assert_eq!(counts.len(), 2, "{}", ran.stdout);
    assert!(lines.iter().all(|line| is_check(line) || line.starts_with("  ") || counts.contains(&line)), "{lines:?}");
    let at = lines.iter().position(|line| line.starts_with("! backend: ")).unwrap();
    assert!(lines[at + 1].starts_with("  Hint: cp-ask keys set openai") && lines[at + 2].starts_with("  or anthropic"));
}

#[test]
fn the_prices_that_init_writes_are_read_and_price_the_models_that_they_name() {
    let place = Place::new();
    let names = ["claude-sonnet-4-5-20250929", "gpt-5-mini", "unknown"];
    let server = Server::replying(move |_| {
        let models: Vec<_> = names.iter().map(|id| json!({"id": id})).collect();
        server::json(200, &json!({"object": "list", "data": models}))
    });
    let models =
        format!("OPENAI_BASE_URL={}/v1 cp-llm models | jq -c '[.data.items[] | [.id, .priced]]'", server.url());
    let ran = place.sh(&format!("{models}; cp-shell init >made; {models}"));
    let [before, after] =
        [false, true].map(|priced| json!([[names[0], priced], [names[1], priced], [names[2], false]]).to_string());
    assert_eq!(ran.stdout, format!("{before}\n{after}\n"), "{}", ran.stderr);
    let file = place.home.read("config/prices.toml");
    assert!(file.contains("2025-12") && file.contains("check your provider's page"));
}

#[test]
fn root_makes_no_home_for_another_user() {
    // Nobody else can give a directory away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let (theirs, own) = (place.root.join("ann"), place.root.join("root"));
    for (directory, owner) in [(&theirs, 1000), (&own, 0)] {
        std::fs::create_dir(directory).unwrap();
        std::os::unix::fs::chown(directory, Some(owner), None).unwrap();
    }
    let append = |home: &std::path::Path, more: &str| {
        place.sh(&format!("env -u CP_HOME -u XDG_DATA_HOME HOME={} {more} cp-log append m", home.display()))
    };
    append(&theirs, "").failed(4, "E_CONFIG");
    assert!(!theirs.join(".local").exists());
    append(&own, "").success();
    // A home that is named is the caller's choice.
    append(&theirs, &format!("CP_HOME={}", theirs.join("home").display())).success();
}

#[test]
fn tier_that_no_program_searches_is_refused_by_all() {
    for tier in ["ho4", "HO1", "../../out", "/tmp/out"] {
        let place = Place::new();
        for program in ["cp-session start", "cp-toolloop --backend stub hi", "cp-llm --backend stub --run R hi"] {
            let ran = place.sh(&format!("CP_TIER={tier} {program}")).code(4);
            let error = ran.closing()["error"].clone();
            assert_eq!(error["code"], "E_CONFIG", "{program}: {error}");
            assert!(error["details"]["hint"].as_str().unwrap().contains("ho1, ho2, ho3"), "{program}: {error}");
        }
        assert!(!place.home.join("runs").exists() && !place.root.join("out").exists(), "{tier}");
        place.sh("CP_TIER=ho2 cp-toolloop --backend stub --name mine hi").success();
        let name = "cp-toolloop runs --fields run_id | jq -r 'select(.data.run_id).data.run_id'";
        let run = place.sh(name).success().stdout.trim().to_owned();
        for line in ["query", "stats", "audit", "verify"] {
            for run in [run.as_str(), "mine"] {
                let ran = place.sh(&format!("cp-log {line} {run}")).success();
                assert_ne!(ran.closing()["data"]["entries"], 0, "{line} {run}: {ran:?}");
            }
        }
    }
}
