//! Calls that are taken back: too early, too late, twice, and while they end.

use serde_json::{Value, json};

use super::{POLICY, Serve, call, cancel, counts, ping, sleep};

#[test]
fn a_call_that_is_cancelled_is_not_answered_and_nothing_of_it_runs_on() {
    let mut serve = Serve::greeted();
    let marker = "600.0101";
    serve.write(&sleep(json!(1), marker));
    Serve::wait_until_runs(marker, true);
    serve.write(&cancel(json!(1)));
    Serve::wait_until_runs(marker, false);
    // Again, and of what nobody asked for.
    for id in [json!(1), json!(2), json!("1"), json!(null), json!([]), json!({"a": 1}), json!(true)] {
        serve.write(&cancel(id));
    }
    serve.lines("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n");
    serve.lines("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{}}\n");
    assert_eq!(serve.is_alive(), [] as [Value; 0]);
    serve.write(&call(json!(3), "cp_run", json!({"argv": ["true"]})));
    assert_eq!(serve.answer_to(&json!(3))["result"]["isError"], false);
    assert_eq!(serve.end().len(), 1);
}

#[test]
fn a_cancellation_that_comes_first_takes_nothing_back() {
    let mut serve = Serve::greeted();
    serve.write(&cancel(json!(1)));
    serve.write(&call(json!(1), "cp_read", json!({"path": "small"})));
    assert_eq!(serve.answer_to(&json!(1))["result"]["isError"], false);
    serve.write(&cancel(json!(1)));
    assert_eq!(counts(&serve.is_alive()), [("1".to_owned(), 1)].into());
    assert_eq!(serve.end(), [] as [Value; 0]);
}

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
    assert!(Serve::runs(one));
    serve.write(&cancel(json!(1)));
    Serve::wait_until_runs(one, false);
    assert_eq!(serve.end(), [] as [Value; 0]);
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
fn two_calls_under_one_id_are_never_answered_more_than_twice_and_one_cancellation_leaves_nothing() {
    let mut serve = Serve::greeted();
    let markers = ["600.0401", "600.0402"];
    serve.write(&sleep(json!(1), markers[0]));
    Serve::wait_until_runs(markers[0], true);
    serve.write(&sleep(json!(1), markers[1]));
    serve.is_alive();
    serve.write(&cancel(json!(1)));
    serve.write(&cancel(json!(1)));
    for marker in markers {
        Serve::wait_until_runs(marker, false);
    }
    assert!(serve.end().len() <= 1);
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
