use crate::house::House;

#[test]
fn the_instructions_of_a_directory_are_context_where_they_are_asked_for() {
    let house = House::new();
    house.write("AGENTS.md", "Run the tests. token=ghp_not\npassword=hunter2hunter\n");
    assert!(!house.run(&["--", "x"]).stdout.contains("Run the tests"));
    let data = house.run(&["--agents-md", "--", "what now?"]).data();
    assert_eq!(data.get("system"), None);
    let content = data["messages"][0]["content"].as_str().unwrap();
    assert!(content.contains("Run the tests") && content.ends_with("what now?"), "{content}");
    assert!(!content.contains("hunter2hunter"));
    assert_eq!(
        (&data["_untrusted"][0], &data["report"]["redacted"][0]["part"]),
        (&"/messages".into(), &"agents_md".into())
    );
    let parts = house.run(&["--explain", "--agents-md", "--", "x"]).data()["parts"].clone();
    assert_eq!((&parts[0]["part"], &parts[1]["part"]), (&"agents_md".into(), &"user".into()));
    assert!(parts[0]["source"].as_str().unwrap().ends_with("/AGENTS.md"), "{parts}");
}

#[test]
fn a_directory_without_any_and_a_link_out_of_it_are_errors() {
    let house = House::new();
    house.run(&["--agents-md", "--", "x"]).failed(3, "E_NOT_FOUND");
    house.write("elsewhere/notes.md", "not yours");
    house.write("work/own.md", "mine");
    let link = house.root.path().join("work/AGENTS.md");
    std::os::unix::fs::symlink("../elsewhere/notes.md", &link).unwrap();
    let base = house.root.path().join("work").display().to_string();
    let error = house.run(&["--base", &base, "--agents-md", "--", "x"]).failed(4, "E_FORBIDDEN");
    assert!(error["details"]["leads_to"].as_str().unwrap().ends_with("notes.md"), "{error}");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("own.md", &link).unwrap();
    assert!(house.run(&["--base", &base, "--agents-md", "--", "x"]).stdout.contains("mine"));
}
