use crate::house::House;

#[test]
fn what_is_remembered_comes_before_the_words_and_is_accounted_for() {
    let house = House::new();
    house.session_says(r#"{"ok":true,"schema_version":"1.0","data":{"items":[{"text":"likes tea"}],"count":1,"has_more":false},"meta":{"duration_ms":1}}"#);
    let data = house.run(&["--memory", "taste", "--", "tea or coffee?"]).data();
    let content = data["messages"][0]["content"].as_str().unwrap();
    assert!(content.contains("likes tea") && content.ends_with("tea or coffee?"));
    assert_eq!(data["_untrusted"][0], "/messages");
    assert!(house.called().starts_with("recall ") && house.called().contains("--kind taste"));
}
