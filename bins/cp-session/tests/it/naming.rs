use crate::house::House;

#[test]
fn a_session_is_named_by_id_beginning_path_option_or_environment() {
    let house = House::new();
    let session = house.start();
    let directory = house.file(&session).parent().unwrap().display().to_string();
    let file = house.file(&session).display().to_string();
    for name in [session.as_str(), &session[..20], &directory, &file] {
        assert_eq!(house.run(&["count", name]).data()["session_id"], session.as_str(), "{name}");
        assert_eq!(house.run(&["count", "--session", name]).data()["session_id"], session.as_str(), "{name}");
    }
    let output = house.command(&["count"]).env("CP_SESSION", &session).output().unwrap();
    assert!(output.status.success());
}

#[test]
fn an_unknown_one_is_told_with_the_nearest() {
    let house = House::new();
    let session = house.start();
    let wrong = format!("{}zz", &session[..19]);
    let error = house.run(&["count", &wrong]).failed(3, "E_NOT_FOUND");
    assert_eq!(error["details"]["nearest"], session.as_str());
    house.run(&["count", "./nowhere"]).failed(3, "E_NOT_FOUND");
}

#[test]
fn a_beginning_of_several_is_refused_with_their_list() {
    let house = House::new();
    let (one, two) = (house.start(), house.start());
    let error = house.run(&["count", "SES-"]).failed(2, "E_VALIDATION");
    let listed = error["details"]["candidates"].to_string();
    assert!(listed.contains(&one) && listed.contains(&two));
}

#[test]
fn no_name_leads_out_of_the_sessions() {
    let house = House::new();
    let session = house.start();
    for name in ["..", ".", "SES-../../x", &format!("{session}/../../.."), "a b", "SES-\u{e9}"] {
        house.run(&["count", name]).failed(2, "E_VALIDATION");
    }
    std::fs::write(house.root.path().join("other.jsonl"), "{}\n").unwrap();
    house.run(&["count", "./other.jsonl"]).failed(2, "E_VALIDATION");
    house.run(&["count"]).failed(2, "E_USAGE");
}
