//! Calls that are taken back: too early, too late, twice, and while they end.

use serde_json::{Value, json};

use super::{POLICY, Serve, call, cancel, counts, ping, sleep};
use crate::session::is_running;

#[test]
fn only_the_call_that_is_meant_is_cancelled() {
    let mut serve = Serve::greeted();
    let (one, other) = ("600.0201", "600.0202");
    // A number and the text of it are two ids.
    serve.write(&sleep(json!(1), one));
    serve.write(&sleep(json!("1"), other));
    Serve::wait_until_runs(one, true);
    Serve::wait_until_runs(other, true);
    serve.write(&cancel(json!("1")));
    Serve::wait_until_runs(other, false);
    for id in [json!(2), json!(null), json!([]), json!({"a": 1}), json!(true)] {
        serve.write(&cancel(id));
    }
    serve.lines("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n");
    assert_eq!(serve.is_alive(), [] as [Value; 0]);
    assert!(is_running(&["sleep", one]));
    serve.write(&cancel(json!(1)));
    Serve::wait_until_runs(one, false);
    let place = serve.place.clone();
    assert_eq!(serve.end(), [] as [Value; 0]);
    let ledgers = place.sh("find \"$CP_HOME\" -name '*.jsonl' -exec cat {} +").stdout;
    assert_eq!(ledgers.matches(r#""sha256":null"#).count(), 2, "{ledgers}");
}

#[test]
fn a_call_that_ends_while_it_is_cancelled_is_answered_once_or_not_at_all() {
    let mut serve = Serve::greeted();
    for id in 0..100 {
        serve.write(&call(json!(id), "cp_run", json!({"argv": ["true"]})));
        std::thread::sleep(std::time::Duration::from_millis(id % 20));
        serve.write(&cancel(json!(id)));
        if id % 3 == 0 {
            serve.write(&cancel(json!(id)));
        }
    }
    let came = serve.is_alive();
    assert!(counts(&came).values().all(|count| *count == 1), "{came:?}");
    serve.write(&ping(json!("last")));
    serve.answer_to(&json!("last"));
    assert_eq!(counts(&serve.end()), [("\"last\"".to_owned(), 1)].into());
}

#[test]
fn a_server_that_is_killed_leaves_nothing_that_runs() {
    // Nobody is left to stop the command before its deadline.
    let mut serve = Serve::under(&POLICY.replace("[exec]\n", "[exec]\ntimeout = 3\n"));
    let marker = "600.0601";
    serve.write(&sleep(json!(1), marker));
    Serve::wait_until_runs(marker, true);
    serve.child.kill();
    Serve::wait_until_runs(marker, false);
}
