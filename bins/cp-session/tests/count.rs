//! `cp-session count`, as a shell user meets it.

use crate::sessions::{Sessions, message};

#[test]
fn only_turns_count() {
    let place = Sessions::new();
    let session = place.start();
    assert_eq!(place.count(&session), 0);
    for round in 1..=3 {
        place.feed(&["tee", &session], message("q", "a"));
        assert_eq!(place.count(&session), round * 2);
    }
    assert_eq!(place.run(&["count", &session, "--format", "text"]).stdout, "6\n");
}
