//! `--template` and `--rows`: a prompt from each row.

use cp_testkit::Place;

#[test]
fn row_becomes_prompt_and_is_kept() {
    let place = Place::of("cp-compose");
    place.work.write("t.md", "Greet {{ name }} in {{ lang }}.\n");
    let rows = "{\"name\":\"Ada\",\"n\":1e2}\n{\"nmae\":\"Lin\"}\n{\"name\":\"Lin\"}\n";
    let ran = place.feed(&["--rows", "--template", "t.md", "--var", "lang=French"], rows);
    let lines: Vec<serde_json::Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["data"]["messages"][0]["content"], "Greet Ada in French.");
    assert!(ran.stdout.contains("\"row\":{\"name\":\"Ada\",\"n\":1e2}"), "the row keeps its bytes");
    let error = &lines[1]["error"];
    assert_eq!((error["code"].as_str(), &error["details"]["variable"]), (Some("E_VALIDATION"), &"name".into()));
    assert!(error["message"].as_str().unwrap().contains("line 1") && error["details"]["file"] == "t.md", "{error}");
    assert_eq!(
        (&error["details"]["template_line"], &error["details"]["row"]),
        (&1.into(), &serde_json::json!({"nmae": "Lin"}))
    );
    assert_eq!(error["details"]["_untrusted"][0], "/row");
    assert_eq!((ran.status, lines[3]["error"]["code"].as_str()), (1, Some("E_PARTIAL")));
}

#[test]
fn template_accepts_text_or_variables() {
    let place = Place::of("cp-compose");
    place.work.write("t.md", "{% if text is defined %}Translate: {{ text }}{% else %}Hello {{ who }}{% endif %}");
    assert_eq!(place.feed(&["--template", "t.md"], "one\n").data()["messages"][0]["content"], "Translate: one");
    let data = place.run(&["--template", "t.md", "--var", "who=Ada"]).data();
    assert_eq!(data["messages"][0]["content"], "Hello Ada");
}

#[test]
fn invalid_template_is_reported_with_line() {
    let place = Place::of("cp-compose");
    place.work.write("t.md", "fine\n{% if %}\n");
    let error = place.run(&["--template", "t.md", "--", "x"]).failed(2, "E_VALIDATION");
    assert_eq!((&error["details"]["line"], &error["details"]["file"]), (&2.into(), &"t.md".into()));
    place.run(&["--template", "none.md", "--", "x"]).failed(3, "E_NOT_FOUND");
    place.run(&["--var", "novalue", "--", "x"]).failed(2, "E_USAGE");
}

#[test]
fn variable_that_nothing_uses_is_refused() {
    let place = Place::of("cp-compose");
    place.work.write(
        "t.md",
        "{% set own = 1 %}{% for n in range(own) %}{{ language | default('English') }}: {{ text }}{% endfor %}",
    );
    for (words, unknown) in [
        (&["--var", "langauge=French"][..], Some("langauge")),
        (&["--var", "language=French", "--var", "own=2"], Some("own")),
        (&["--var", "n=2"], Some("n")),
        (&["--var", "language=French"], None),
        (&["--var", "text=hi"], None),
    ] {
        for source in [&["--", "hello"][..], &["--rows"]] {
            let ran = place.feed(&[&["--template", "t.md"], words, source].concat(), "{\"text\":\"hello\"}\n");
            let Some(unknown) = unknown else {
                assert_eq!(ran.status, 0, "{words:?}: {ran:?}");
                continue;
            };
            let error = ran.failed(2, "E_USAGE");
            let message = format!("nothing uses the variable `{unknown}`; the template has language, text");
            assert_eq!(error["message"], message, "{words:?}");
        }
    }
}
