//! `--attach`: images, documents and texts.

use cp_testkit::Place;

#[test]
fn images_and_documents_are_blocks_told_by_their_bytes() {
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
fn a_text_is_marked_off_and_standard_input_can_be_attached() {
    let place = Place::of("cp-compose");
    let data = place.feed(&["--attach", "-", "--", "what failed?"], "a log line\n").data();
    let content = data["messages"][0]["content"].as_str().unwrap();
    assert!(content.contains("a log line") && content.ends_with("what failed?"));
    place.feed(&["--attach", "-"], "x").failed(2, "E_USAGE");
}

#[test]
fn what_is_unknown_or_too_large_is_named() {
    let place = Place::of("cp-compose");
    place.work.write("noise", [0xff, 0x00, 0x9f]);
    assert_eq!(place.run(&["--attach", "noise", "--", "x"]).failed(2, "E_VALIDATION")["details"]["file"], "noise");
    let mut big = b"\x89PNG\r\n\x1a\n".to_vec();
    big.resize((5 << 20) + 1, 0);
    place.work.write("big.png", big);
    assert_eq!(place.run(&["--attach", "big.png", "--", "x"]).failed(2, "E_VALIDATION")["details"]["limit"], 5 << 20);
    place.run(&["--attach", "none", "--", "x"]).failed(3, "E_NOT_FOUND");
}
