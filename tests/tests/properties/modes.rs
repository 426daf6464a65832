//! Who may read what the programs make.

use cp_testkit::times;

use super::rows::{World, verbs};

#[test]
fn nothing_in_a_home_is_for_others_whatever_the_mask() {
    let verbs = verbs();
    for mask in ["000", "022", "077"].into_iter().take(times(1, 3)) {
        let world = World::new(mask);
        for verb in &verbs {
            println!("{}", verb.row.verb);
            let ran = world.script(&verb.row, &format!("umask {mask}; {} {}", verb.row.verb, verb.row.words)).run();
            assert_eq!(ran.status, 0, "{}: {ran:?}", verb.row.verb);
            // A ledger that was rotated away is for nobody to write, and its mode says so; it lies in a directory of
            // its owner. After each verb, so that the one that made it is named. Below the `/tmp` of a session,
            // commands choose the modes; its directory is private.
            let wide = world.place.sh(
                "find \"$CP_HOME\" fresh* plane* -path '*/state/tmp/*/*' -prune -o -perm /077 -printf '%m %p\\n' 2>/dev/null",
            );
            assert_eq!(wide.stdout, "", "umask {mask}: {} made what others may use", verb.row.verb);
        }
    }
}
