//! `--tool-schemas`: descriptions of tools from files.

use cp_testkit::Place;

#[test]
fn tools_are_read_from_three_shapes() {
    let place = Place::of("cp-compose");
    let tool = |name: &str| {
        format!("{{\"name\":\"{name}\",\"description\":\"d\",\"input_schema\":{{\"type\":\"object\",\"n\":1e2}}}}")
    };
    place.work.write("list.json", format!("[{},{}]", tool("a"), tool("b")));
    place.work.write("object.json", format!("{{\"tools\":[{}]}}", tool("c")));
    place.work.write("lines.jsonl", format!("{}\n{}\n", tool("d"), tool("e")));
    let files = ["list.json", "object.json", "lines.jsonl"].map(|file| ["--tool-schemas", file]).concat();
    let ran = place.run(&[&files[..], &["--", "x"]].concat());
    let data = ran.data();
    let names: Vec<&str> =
        data["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert!(ran.stdout.contains("1e2"), "a schema keeps its bytes");
    place.run(&["--tool-schemas", "list.json", "--tool-schemas", "list.json", "--", "x"]).failed(2, "E_VALIDATION");
    place.work.write("bad.json", "[{\"name\":\"no spaces\",\"input_schema\":{}}]");
    place.run(&["--tool-schemas", "bad.json", "--", "x"]).failed(2, "E_VALIDATION");
}
