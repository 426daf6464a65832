use crate::house::House;

#[test]
fn what_a_session_is_and_where_it_lies() {
    let house = House::new();
    let session = house.start();
    house.run(&["append", "--session", &session, "--", "x"]);
    let data = house.run(&["show", &session]).data();
    assert_eq!(data["path"], house.file(&session).to_str().unwrap());
    assert_eq!((&data["turns"], &data["ended"], &data["tier"]), (&1.into(), &false.into(), &"ho1".into()));
    assert!(data["started_at"].as_str().unwrap() <= data["updated_at"].as_str().unwrap());
    house.run(&["show", "SES-nobody"]).failed(3, "E_NOT_FOUND");
}
