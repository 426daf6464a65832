use crate::house::House;

#[test]
fn every_part_is_told_with_its_source_size_and_hash() {
    let house = House::new();
    house.write("agents/default/soul.md", "You are brief.");
    house.write("notes.md", "password=hunter2hunter");
    let data = house.run(&["--explain", "-s", "more", "--context", "notes.md", "--", "x"]).data();
    let parts = data["parts"].as_array().unwrap();
    let kinds: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["soul", "system", "context", "user"]);
    assert_eq!((&parts[0]["bytes"], &parts[2]["redactions"]), (&14.into(), &1.into()));
    assert!(parts[0]["source"].as_str().unwrap().ends_with("agents/default/soul.md"));
    assert!(parts.iter().all(|part| part["sha256"].as_str().unwrap().len() == 71));
    assert!(data["estimated_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn a_prompt_that_cannot_fit_is_refused() {
    let house = House::new();
    let error = house.run(&["--fit-tokens", "3", "--", &"word ".repeat(50)]).failed(2, "E_VALIDATION");
    assert!(error["details"]["estimated_tokens"].as_u64().unwrap() > 3);
    house.run(&["--fit-tokens", "300", "--", &"word ".repeat(50)]).data();
}
