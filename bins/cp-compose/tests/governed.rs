//! Governed prompts, and the policy about them.

use cp_testkit::Place;

const ID: &str = "PRM-TEST-001";
/// The hash of `Speak {tone}.`
const HASH: &str = "sha256:ead8899cbc0216d60684282bf3154d0246d3420383655e0cf5c86835b001ba0d";

fn place(status: &str, hash: &str) -> Place {
    let place = Place::of("cp-compose");
    place.home.write("governed_prompts/PRM-TEST-001.md", "Speak {tone}.");
    let row = format!(
        "prompt_id,title,status,hash,created,updated\n{ID},\"A, test\",{status},{hash},2026-01-01,2026-01-01\n"
    );
    place.home.write("registries/prompts_registry.csv", &row);
    place
}

#[test]
fn governed_prompt_begins_system_text() {
    let place = place("active", HASH);
    let data = place.run(&["--prompt", ID, "--var", "tone=softly", "-s", "And briefly.", "--", "x"]).data();
    assert_eq!((&data["system"], &data["prompt_id"]), (&"Speak softly.\n\nAnd briefly.".into(), &ID.into()));
    let error = place.run(&["--prompt", ID, "--", "x"]).failed(2, "E_VALIDATION");
    assert_eq!((&error["details"]["variable"], &error["details"]["line"]), (&"tone".into(), &1.into()));
}

#[test]
fn unregistered_inactive_or_changed_prompt_is_refused() {
    place("active", &HASH.replace('0', "1")).run(&["--prompt", ID, "--", "x"]).failed(1, "E_INTEGRITY");
    place("retired", HASH).run(&["--prompt", ID, "--", "x"]).failed(4, "E_FORBIDDEN");
    let error = place("active", HASH).run(&["--prompt", "PRM-TEST-002", "--", "x"]).failed(3, "E_NOT_FOUND");
    assert_eq!(error["details"]["nearest"], ID);
}

#[test]
fn required_governed_prompt_excludes_other_system_text() {
    let place = place("active", HASH);
    place.home.write("config/policy.toml", "[llm]\ngoverned_prompts = \"require\"\n");
    let governed = ["--prompt", ID, "--var", "tone=softly"];
    let run = |more: &[&str]| place.run(&[&governed[..], more, &["--", "x"]].concat());
    place.run(&["--", "x"]).failed(4, "E_FORBIDDEN");
    assert_eq!(run(&[]).data()["system"], "Speak softly.");
    assert_eq!(run(&["-s", "Shout."]).failed(4, "E_FORBIDDEN")["details"]["rule"], "llm.governed_prompts");
    assert_eq!(place.run(&[&["system"][..], &governed, &["-s", "Shout."]].concat()).status, 4);
    place.home.write("agents/default/soul.md", "Shout.");
    let error = run(&[]).failed(4, "E_FORBIDDEN");
    assert!(error["details"]["file"].as_str().unwrap().ends_with("soul.md"), "{error}");
    // A soul that is the registered text is governed, and not repeated.
    place.home.write("agents/default/soul.md", "Speak {tone}.");
    assert_eq!(run(&[]).data()["system"], "Speak softly.");
    place.home.write("agents/default/context/a.md", "And shout.");
    run(&[]).failed(4, "E_FORBIDDEN");
}

#[test]
fn policy_requires_redaction() {
    let place = Place::of("cp-compose");
    place.work.write("n.md", "password=hunter2hunter");
    let open = place.run(&["--no-redact", "--context", "n.md", "--", "x"]).data();
    assert!(open.to_string().contains("hunter2hunter"));
    place.home.write("config/policy.toml", "[llm]\nredact = \"require\"\n");
    let error = place.run(&["--no-redact", "--context", "n.md", "--", "x"]).failed(4, "E_FORBIDDEN");
    assert_eq!(error["details"]["rule"], "llm.redact");
    assert_eq!(place.run(&["--context", "n.md", "--", "x"]).data()["report"]["redactions"], 1);
}
