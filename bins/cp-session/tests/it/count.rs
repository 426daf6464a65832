use crate::house::{House, message};

#[test]
fn only_turns_count() {
    let house = House::new();
    let session = house.start();
    assert_eq!(house.count(&session), 0);
    for round in 1..=3 {
        house.feed(&["tee", &session], &message("q", "a"));
        assert_eq!(house.count(&session), round * 2);
    }
    assert_eq!(house.run(&["count", &session, "--format", "text"]).stdout, "6\n");
}
