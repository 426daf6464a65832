//! `cp-compose system`, as a shell user meets it.

use cp_testkit::Place;

#[test]
fn the_system_text_alone() {
    let place = Place::of("cp-compose");
    place.home.write("agents/default/soul.md", "You are brief.\n");
    assert_eq!(place.run(&["system"]).data()["system"], "You are brief.");
    assert_eq!(place.run(&["system", "-s", "Now.", "--format", "text"]).stdout, "You are brief.\n\nNow.\n");
    place.run(&["system", "--agent", "nobody"]).failed(3, "E_NOT_FOUND");
}
