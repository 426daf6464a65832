//! Errors for the authors of parts: each of them lists everything that is wrong, in few lines.

use cp_testkit::Place;

#[test]
fn the_doctor_says_what_a_backend_lacks() {
    let place = Place::new();
    place.work.executable("poor", "#!/bin/sh\nread -r line\necho '{\"ok\":true,\"data\":{\"content\":\"x\"}}'\n");
    place.work.executable("silent", "#!/bin/sh\nexit 0\n");
    place.work.executable("good", "#!/bin/sh\nexec jq -c --unbuffered '{ok:true,schema_version:\"1.0\",type:\"message\",data:{id:\"1\",role:\"assistant\",content:\"x\",model:\"m\",backend:\"b\",stop_reason:\"end_turn\",usage:{}}}'\n");
    let doctor = |name: &str| place.sh(&format!("CP_BACKEND=./{name} cp-llm doctor --format text")).stdout;
    let poor = doctor("poor");
    assert!(poor.contains("schema_version"), "{poor}");
    assert!(doctor("silent").contains("cut short"));
    assert!(doctor("good").contains("./good answered a prompt"));
    let asked = place.sh("cp-llm --backend ./poor --retries 0 hi; cp-llm --backend ./good --format text hi");
    assert!(asked.stderr.contains("schema_version"), "{}", asked.stderr);
    assert!(asked.stdout.ends_with("x\n"), "{}", asked.stdout);
}

#[test]
fn the_check_of_a_tool_says_what_is_wrong_and_nothing_vanishes() {
    let place = Place::new();
    let tool = |name: &str, described: &str| {
        place.work.executable(format!("tools/{name}"), format!("#!/bin/sh\n: --describe\necho '{described}'\n"));
    };
    tool("bad", r#"{"name":"a b","description":3,"parameters":{"type":"string"},"timeout":"x"}"#);
    tool("good", r#"{"name":"good","description":"d"}"#);
    tool("silent", r#"{"name":"silent"}"#);
    place.work.executable("tools/plain", "#!/bin/sh\necho hello\n");
    let ran = place.sh("cp-toolloop tools --tools tools/bad --tools tools/silent").success();
    let broken = ran.data()["items"].as_array().unwrap().iter().find(|item| item["status"] == "broken").cloned();
    let said = broken.unwrap()["why"].as_str().unwrap().to_owned() + &ran.stderr;
    for wrong in ["{name, description, parameters}: invalid type: integer `3`", "silent: `description`"] {
        assert!(said.contains(wrong), "{wrong}: {said}");
    }
    place.sh("cp-toolloop tools --tools tools/none").failed(3, "E_NOT_FOUND");
    let ran = place.sh("cp-toolloop tools --tools tools/good --allow good").success();
    assert_eq!((&ran.data()["count"], ran.stderr.as_str()), (&1.into(), ""));
    let ran = place.sh("cp-toolloop tools --tools tools --format text");
    assert!(ran.stdout.contains("plain: it neither answers --describe nor has a sidecar"), "{}", ran.stdout);
    // At a run nobody is warned of what does not claim to be a tool, but of what is broken.
    let ran = place.sh("echo hi | cp-toolloop --backend stub --tools tools");
    assert!(ran.stderr.contains("bad") && !ran.stderr.contains("plain"), "{}", ran.stderr);
}
