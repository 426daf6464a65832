//! `--agents-md`: the instructions of a working directory.

use cp_testkit::Place;

#[test]
fn agents_md_is_context_if_requested() {
    let place = Place::of("cp-compose");
    place.work.write("AGENTS.md", "Run the tests. token=ghp_not\npassword=hunter2hunter\n");
    assert!(!place.run(&["--", "x"]).stdout.contains("Run the tests"));
    let data = place.run(&["--agents-md", "--", "what now?"]).data();
    assert_eq!(data.get("system"), None);
    let content = data["messages"][0]["content"].as_str().unwrap();
    assert!(content.contains("Run the tests") && content.ends_with("what now?"), "{content}");
    assert!(!content.contains("hunter2hunter"));
    assert_eq!(
        (&data["_untrusted"][0], &data["report"]["redacted"][0]["part"]),
        (&"/messages".into(), &"agents_md".into())
    );
    let parts = place.run(&["--explain", "--agents-md", "--", "x"]).data()["parts"].clone();
    assert_eq!((&parts[0]["part"], &parts[1]["part"]), (&"agents_md".into(), &"user".into()));
    assert!(parts[0]["source"].as_str().unwrap().ends_with("/AGENTS.md"), "{parts}");
}

#[test]
fn missing_agents_md_and_outside_link_are_errors() {
    let place = Place::of("cp-compose");
    place.run(&["--agents-md", "--", "x"]).failed(3, "E_NOT_FOUND");
    place.work.write("elsewhere/notes.md", "not yours");
    place.work.write("project/own.md", "mine");
    let link = place.work.join("project/AGENTS.md");
    std::os::unix::fs::symlink("../elsewhere/notes.md", &link).unwrap();
    let base = place.work.join("project").display().to_string();
    let error = place.run(&["--base", &base, "--agents-md", "--", "x"]).failed(4, "E_FORBIDDEN");
    assert!(error["details"]["leads_to"].as_str().unwrap().ends_with("notes.md"), "{error}");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("own.md", &link).unwrap();
    assert!(place.run(&["--base", &base, "--agents-md", "--", "x"]).stdout.contains("mine"));
}
