//! `--attach`: images, documents and texts.

use cp_testkit::Place;

#[test]
fn images_and_documents_are_recognised_by_bytes() {
    let place = Place::of("cp-compose");
    place.work.write("wrong.txt", b"\x89PNG\r\n\x1a\nrest");
    place.work.write("d.bin", "%PDF-1.7 x");
    let data = place.run(&["--attach", "wrong.txt", "--attach", "d.bin", "--", "what is this?"]).data();
    let content = &data["messages"][0]["content"];
    assert_eq!((&content[0]["type"], &content[0]["source"]["media_type"]), (&"image".into(), &"image/png".into()));
    assert_eq!((&content[1]["type"], &content[2]["text"]), (&"document".into(), &"what is this?".into()));
    assert_eq!(content[0]["source"]["data"], "iVBORw0KGgpyZXN0");
}

#[test]
fn documents_have_different_titles() {
    let place = Place::of("cp-compose");
    let files = ["a/report.pdf", "b/report.pdf", "report-2.pdf", "notes", "v1.2.PDF"];
    for file in files {
        place.work.write(file, "%PDF-1.7 x");
    }
    place.work.write("i.png", b"\x89PNG\r\n\x1a\nrest");
    let mut words: Vec<&str> = files.iter().chain(&["i.png", "-"]).flat_map(|file| ["--attach", file]).collect();
    words.extend(["--", "compare"]);
    let data = place.feed(&words, "%PDF-1.7 y").data();
    let blocks = data["messages"][0]["content"].as_array().unwrap();
    let titles: Vec<&str> = blocks.iter().map(|block| block["title"].as_str().unwrap_or("")).collect();
    let expected = ["report.pdf", "report-2.pdf", "report-2-2.pdf", "notes.pdf", "v1.2.pdf", "", "document.pdf", ""];
    assert_eq!(titles, expected);
}

#[test]
fn image_as_context_is_refused_with_the_option_that_attaches_it() {
    let place = Place::of("cp-compose");
    for (content, hint) in
        [(&b"\x89PNG\r\n\x1a\nrest"[..], "cp-ask -a FILE"), (b"%PDF-1.7 \xFF", "cp-ask -a FILE"), (b"\xFF", "iconv")]
    {
        place.work.write("file", content);
        let error = place.run(&["--context", "file", "--", "x"]).failed(2, "E_VALIDATION");
        assert!(error["details"]["hint"].as_str().unwrap().contains(hint), "{error}");
    }
}

#[test]
fn text_attachment_is_marked_and_stdin_accepted() {
    let place = Place::of("cp-compose");
    let data = place.feed(&["--attach", "-", "--", "what failed?"], "a log line\n").data();
    let content = data["messages"][0]["content"].as_str().unwrap();
    assert!(content.contains("a log line") && content.ends_with("what failed?"));
    place.feed(&["--attach", "-"], "x").failed(2, "E_USAGE");
}

#[test]
fn unknown_and_too_large_attachments_are_named() {
    let place = Place::of("cp-compose");
    place.work.write("noise", [0xff, 0x00, 0x9f]);
    assert_eq!(place.run(&["--attach", "noise", "--", "x"]).failed(2, "E_VALIDATION")["details"]["file"], "noise");
    let mut big = b"\x89PNG\r\n\x1a\n".to_vec();
    big.resize((5 << 20) + 1, 0);
    place.work.write("big.png", big);
    assert_eq!(place.run(&["--attach", "big.png", "--", "x"]).failed(2, "E_VALIDATION")["details"]["limit"], 5 << 20);
    place.run(&["--attach", "none", "--", "x"]).failed(3, "E_NOT_FOUND");
}

#[test]
fn named_pipe_is_accepted_only_for_options() {
    let place = Place::of("cp-compose");
    let bash = |line: &str| place.shell("bash", line).limit(std::time::Duration::from_secs(20)).run();
    let options = "--context <(echo kept) --attach <(printf '%%PDF-1') -s @<(echo sys)";
    let data = bash(&format!("cp-compose {options} --template <(echo '{{{{text}}}}!') -- hi")).data();
    let content = &data["messages"][0]["content"];
    assert_eq!(data["system"], "sys");
    assert_eq!(content[0]["type"], "document");
    let text = content[1]["text"].as_str().unwrap();
    assert!(text.contains("kept\n") && text.ends_with("hi!"), "{text}");
    assert!(bash("echo in | cp-compose --context - -- hi").data().to_string().contains("in\\n"));
    // A pipe is named by its content, because its path differs with each call.
    let turns =
        |more: &str| bash(&format!("cp-compose {more} --context <(echo kept) -- hi")).data()["messages"].clone();
    assert_eq!(turns(""), turns("-s @<(echo sys)"));
    for twice in ["--context -", "-s @- -", "--attach - --context /dev/stdin -- x"] {
        bash(&format!("echo x | cp-compose {twice}")).failed(2, "E_USAGE");
    }
    let found = bash(
        "mkdir -p \"$CP_HOME/agents/a\"; mkfifo \"$CP_HOME/agents/a/soul.md\"; timeout 10 cp-compose --agent a -- hi",
    );
    assert!(found.failed(2, "E_VALIDATION")["message"].as_str().unwrap().contains("not a regular file"));
}

#[test]
fn attachment_url_becomes_block() {
    let place = Place::of("cp-compose");
    let data = place
        .run(&["--attach", "https://a.example/x?y=1", "--attach", "https://a.example/b.PDF?z", "--", "see"])
        .data();
    let content = &data["messages"][0]["content"];
    assert_eq!((&content[0]["type"], &content[1]["type"]), (&"image".into(), &"document".into()));
    assert_eq!(content[0]["source"], serde_json::json!({"type": "url", "url": "https://a.example/x?y=1"}));
}
