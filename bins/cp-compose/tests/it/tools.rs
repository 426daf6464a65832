use crate::house::House;

#[test]
fn tools_come_from_files_in_three_shapes() {
    let house = House::new();
    let tool = |name: &str| {
        format!("{{\"name\":\"{name}\",\"description\":\"d\",\"input_schema\":{{\"type\":\"object\",\"n\":1e2}}}}")
    };
    house.write("list.json", &format!("[{},{}]", tool("a"), tool("b")));
    house.write("object.json", &format!("{{\"tools\":[{}]}}", tool("c")));
    house.write("lines.jsonl", &format!("{}\n{}\n", tool("d"), tool("e")));
    let ran = house.run(&["--tools", "list.json", "--tools", "object.json", "--tools", "lines.jsonl", "--", "x"]);
    let data = ran.data();
    let names: Vec<&str> =
        data["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert!(ran.stdout.contains("1e2"), "a schema keeps its bytes");
    house.run(&["--tools", "list.json", "--tools", "list.json", "--", "x"]).failed(2, "E_VALIDATION");
    house.write("bad.json", "[{\"name\":\"no spaces\",\"input_schema\":{}}]");
    house.run(&["--tools", "bad.json", "--", "x"]).failed(2, "E_VALIDATION");
}
