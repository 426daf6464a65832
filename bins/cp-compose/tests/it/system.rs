use crate::house::House;

#[test]
fn the_system_text_alone() {
    let house = House::new();
    house.write("agents/default/soul.md", "You are brief.\n");
    assert_eq!(house.run(&["system"]).data()["system"], "You are brief.");
    assert_eq!(house.run(&["system", "-s", "Now.", "--format", "text"]).stdout, "You are brief.\n\nNow.\n");
    house.run(&["system", "--agent", "nobody"]).failed(3, "E_NOT_FOUND");
}
