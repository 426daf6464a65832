//! Pages in a real browser: Debian's Chromium, driven over a pipe by `browser.mjs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cp_testkit::{Place, counterpart, packages, repository};
use serde_json::{Value, json};

use crate::made::{RUN, bundle, eventful, id, ledger};

/// How the browser was driven; `None` where there is none.
pub(crate) fn driven(page: &Path, asked: &Value) -> Option<Output> {
    let (node, chromium) = (counterpart("node")?, counterpart("chromium")?);
    let driver = repository().join("bins/cp-report/tests/browser.mjs");
    Some(Command::new(node).arg(driver).arg(chromium).arg(page).arg(asked.to_string()).output().unwrap())
}

/// What the browser shows of a page; `None` where there is no browser.
pub(crate) fn opened(page: &Path, asked: &Value) -> Option<Value> {
    let ran = driven(page, asked)?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(serde_json::from_slice(&ran.stdout).unwrap())
}

/// Makes a signed page of a run.
pub(crate) fn signed(place: &Place) -> PathBuf {
    ledger(place, "run.jsonl", &eventful());
    place.sh("cp-log keygen K && cp-log checkpoint -f run.jsonl --sign-with K").success();
    bundle(place, "run.jsonl");
    place.sh("cp-report --trust K.pub bundle >page.html").success();
    place.work.join("page.html")
}

/// The class of the verdict after a reader gives a key.
fn verdict_class(page: &Path, key: &str) -> String {
    let give = format!(
        "const field = document.getElementById('key'); field.value = '{key}'; field.dispatchEvent(new Event('change')); \
         new Promise((done) => setTimeout(() => done(document.getElementById('verdict').className), 1000))"
    );
    opened(page, &json!({"evaluate": [give]})).unwrap()["values"][0].as_str().unwrap().to_owned()
}

pub(crate) fn is_quiet(seen: &Value) {
    assert_eq!(seen["noise"], json!([]), "{seen}");
    assert_eq!(seen["requests"].as_array().unwrap().len(), 1, "only itself: {seen}");
}

#[test]
fn a_page_opens_without_a_request_and_proves_itself() {
    let place = Place::new();
    let page = signed(&place);
    let Some(seen) = opened(&page, &json!({})) else { return };
    is_quiet(&seen);
    assert!(seen["verdict"].as_str().unwrap().starts_with("All 18 lines hold"), "{seen}");
    let proved = seen["proved"].as_str().unwrap();
    let key = place.work.read("K.pub");
    assert!(proved.contains("17 lines are signed by K (given when the page was made)"), "{seen}");
    let strip =
        "[...document.querySelectorAll('#strip div')].map((e) => [e.className, e.querySelector('dd').textContent])";
    let seen = opened(&page, &json!({"evaluate": [strip]})).unwrap();
    let unsure = json!(["unsure", "Signed by a key inside this file"]);
    assert_eq!((&seen["values"][0][0], verdict_class(&page, "")), (&unsure, "unsure".to_owned()), "{seen}");
    // Only a key that the reader gives is green.
    let other = key.trim().replacen("K+", "L+", 1);
    assert_eq!(verdict_class(&page, &other), "unsure");
    assert_eq!(verdict_class(&page, key.trim()), "holds");

    // Without the key it says whose word it takes.
    place.sh("cp-report bundle >page.html").success();
    let seen = opened(&page, &json!({})).unwrap();
    assert!(seen["proved"].as_str().unwrap().contains("(named only by the ledger itself)"), "{seen}");
}

#[test]
fn a_part_of_a_ledger_is_proved_line_by_line() {
    let place = Place::new();
    let mut entries = eventful();
    entries.insert(3, json!({"event": "log", "message": "of somebody else"}));
    ledger(&place, "run.jsonl", &entries);
    place
        .sh("cp-log keygen K && cp-log checkpoint -f run.jsonl --sign-with K && cp-log append -f run.jsonl later")
        .success();
    bundle(&place, &format!("--run {RUN} run.jsonl"));
    place.sh("cp-report --trust K.pub bundle >page.html").success();
    let page = place.work.join("page.html");
    let Some(seen) = opened(&page, &json!({})) else { return };
    assert!(seen["verdict"].as_str().unwrap().starts_with("All 16 lines hold"), "{seen}");
    assert!(seen["proved"].as_str().unwrap().contains("are signed"), "{seen}");

    let text = place.work.read("page.html");
    let at = text.find("{\"seq\":6,").unwrap();
    let proof = at + text[at..].find("\"proof\":[\"").unwrap() + "\"proof\":[\"".len();
    let other = if text.as_bytes()[proof] == b'A' { "B" } else { "A" };
    place.work.write("page.html", format!("{}{other}{}", &text[..proof], &text[proof + 1..]));
    let seen = opened(&page, &json!({})).unwrap();
    assert!(seen["faults"].as_str().unwrap().contains("line 6: its proof is wrong"), "{seen}");
}

#[test]
fn a_changed_byte_is_found_at_its_line() {
    let place = Place::new();
    let page = signed(&place);
    let text = std::fs::read_to_string(&page).unwrap();
    let changed = |from: &str, to: &str| {
        let at = text.rfind(from).unwrap_or_else(|| panic!("{from}"));
        std::fs::write(&page, format!("{}{to}{}", &text[..at], &text[at + from.len()..])).unwrap();
        opened(&page, &json!({"evaluate": ["[...document.querySelectorAll('.changed')].map((e) => e.id).join()"]}))
    };
    let line = id("run.jsonl", 0);
    let ledger_id = line.strip_suffix("-0").unwrap().to_owned();
    for (from, to, fault, place) in [
        ("It is mended.", "It is mendEd.", "line 15: its bytes are not those that were hashed", &id("run.jsonl", 15)),
        (r#"\"seq\":5,"#, r#"\"seq\":6,"#, "line 5: its bytes are not", &id("run.jsonl", 5)),
        (r#"{"seq":9,"raw""#, r#"{"seq":8,"raw""#, "line 8: it cannot be here", &id("run.jsonl", 8)),
        (r#""{\"seq\":7,"#, r#"" {\"seq\":7,"#, "line 7: these bytes are not a line of a ledger", &id("run.jsonl", 7)),
        ("\"size\":18,", "\"size\":17,", "run.jsonl: its lines are not those that the root is of", &ledger_id),
        ("17\\n", "16\\n", "its lines are not those that were signed", &ledger_id),
    ] {
        let Some(seen) = changed(from, to) else { return };
        let faults = seen["faults"].as_str().unwrap();
        assert!(faults.contains(fault), "{from}: {seen}");
        assert!(seen["verdict"].as_str().unwrap().starts_with("It does not hold"), "{seen}");
        assert!(
            !seen["proved"].as_str().unwrap().contains("\u{2713} run.jsonl"),
            "a ledger with a fault proves nothing: {seen}"
        );
        assert!(seen["values"][0].as_str().unwrap().split(',').any(|id| id == *place), "{from}: {seen}");
    }

    // Another key of the same name, and a signature that was changed.
    let signature = text.rfind("\u{2014} K ").map(|at| at + "\u{2014} K ".len() + 20).unwrap();
    let other = if text.as_bytes()[signature] == b'A' { "B" } else { "A" };
    std::fs::write(&page, format!("{}{other}{}", &text[..signature], &text[signature + 1..])).unwrap();
    let Some(seen) = opened(&page, &json!({})) else { return };
    assert!(seen["faults"].as_str().unwrap().contains("the signature of K is wrong"), "{seen}");
}

#[test]
fn a_large_value_is_proved_and_a_changed_one_is_found() {
    let place = Place::new();
    place.sh("head -c 1500000 /dev/zero | tr '\\0' x | cp-log append -f big.jsonl >/dev/null").success();
    bundle(&place, "big.jsonl");
    place.sh("cp-report bundle >page.html").success();
    let page = place.work.join("page.html");
    let Some(seen) = opened(&page, &json!({})) else { return };
    assert!(
        seen["proved"].as_str().unwrap().contains("large values that have the bytes they are named for: 1"),
        "{seen}"
    );
    let text = place.work.read("page.html").replacen("eHh4", "eHh5", 1);
    place.work.write("page.html", text);
    let seen = opened(&page, &json!({})).unwrap();
    assert!(seen["faults"].as_str().unwrap().contains("are not those that it is named for"), "{seen}");
}

/// The picture in the README is one of these pages.
#[test]
fn a_page_has_a_picture_for_the_readme() {
    let place = Place::new();
    let page = signed(&place);
    let kept = repository().join("docs/report.png");
    let picture = if std::env::var_os("UPDATE").is_some() { kept.clone() } else { place.work.join("page.png") };
    let Some(_) = opened(&page, &json!({"picture": picture, "width": 1000})) else { return };
    for file in [picture, kept] {
        assert!(std::fs::read(&file).unwrap().starts_with(b"\x89PNG"), "{}", file.display());
    }
}

/// What tries to get out of each place of a template, and to be what it is not.
fn hostile() -> Vec<String> {
    let payloads = [
        "<script>document.title='hit'</script>",
        "<img src=x onerror=\"document.title='hit'\">",
        "<svg onload=\"document.title='hit'\">",
        "<svg><script>document.title='hit'</script></svg>",
        "<iframe srcdoc=\"<script>parent.document.title='hit'</script>\">",
        "<a href=\"javascript:document.title='hit'\">x</a>",
        "<base href=\"https://example.org/\">",
        "<meta http-equiv=refresh content=\"0;url=https://example.org/\">",
        "<link rel=stylesheet href=https://example.org/a.css>",
        "<form action=https://example.org/><button>x</button></form>",
        "&#60;script&#62;document.title='hit'&#60;/script&#62;",
        "\u{0}\u{1}\u{8}\u{b}\u{1b}[31m\u{7f}\u{85}",
        "\u{202e}txet\u{2066}\u{200f}\u{feff}\u{2028}",
        "https://example.org/ [x](https://example.org/)",
        "{{ 7*7 }}{% raw %}{# #}",
        "\" autofocus onfocus=\"document.title='hit'\" x=\"",
        "' onmouseover='document.title=1' x='",
    ];
    let endings = [
        "",
        "</title>",
        "</style>",
        "</script>",
        "</pre></code>",
        "</article></section></main>",
        "</dd></dl>",
        "-->",
        "]]>",
        "</svg>",
        "<!--<script>",
        "<plaintext>",
    ];
    endings.iter().flat_map(|end| payloads.iter().map(move |payload| format!("{end}{payload}"))).collect()
}

#[test]
fn two_hundred_hostile_texts_do_nothing() {
    let place = Place::new();
    let texts = hostile();
    assert!(texts.len() >= 200, "{}", texts.len());
    let mut entries = eventful();
    entries[0]["content"] = texts[0].clone().into();
    for text in &texts {
        entries.push(json!({"event": "message", "role": text, "content": [{"type": "text", "text": text}, {"type": text, "name": text}]}));
        entries.push(json!({"event": text, "message": text, "data": {"name": text, text: [text]}}));
        entries.push(json!({"event": "tool_call", "data": {"id": text, "name": text, "input": {"old": text, "new": format!("{text}\n{text}"), text: text}}}));
        entries.push(
            json!({"event": "exec.refused", "message": text, "data": {"rule": text, "code": text, "asked": [text]}}),
        );
        entries.push(
            json!({"event": "tool_result", "role": "tool", "content": text, "data": {"name": text, "duration_ms": 1}}),
        );
    }
    ledger(&place, "run.jsonl", &entries);
    bundle(&place, "run.jsonl");
    let page = place.work.join("page.html");
    let all = "globalThis.dispatchEvent(new Event('beforeprint')); document.querySelectorAll('.entry').length > 1000";
    let count = "document.querySelectorAll('img,iframe,object,embed,form:not(#filters),base,link,article svg,article a:not([href^=\"#l\"]):not([href^=\"#approval-\"]):not([href^=\"#t\"]):not([href^=\"#sum\"]),[onload],[onerror],[onfocus],[onmouseover]').length";
    let scripts = "document.querySelectorAll('script:not([type])').length";
    for words in ["", "--overview"] {
        place.sh(&format!("cp-report {words} bundle >page.html")).success();
        let Some(seen) = opened(&page, &json!({"evaluate": [all, count, scripts, "document.title"]})) else { return };
        is_quiet(&seen);
        let shown = (&seen["values"][0], &seen["values"][1], &seen["values"][2]);
        assert_eq!(shown, (&json!(true), &json!(0), &json!(1)), "{seen}");
        assert!(!seen["values"][3].as_str().unwrap().contains("hit"), "{seen}");
        assert!(seen["verdict"].as_str().unwrap().starts_with("All"), "every byte comes back: {seen}");
    }
}

#[test]
fn a_page_can_be_read_by_everybody() {
    let place = Place::new();
    let page = signed(&place);
    let axe = packages().join("node_modules/axe-core/axe.min.js");
    if !cp_testkit::required("axe-core (.ci/run installs it)", axe.is_file()) {
        return;
    }
    for (kind, words) in ["", "--overview"].into_iter().enumerate() {
        place.sh(&format!("cp-report {words} --trust K.pub bundle >page.html")).success();
        let screens = [(320, false), (1280, true), (3840, false)].into_iter().enumerate();
        for (_, (width, dark)) in screens.filter(|(at, _)| cp_testkit::is_sampled(*at, kind, 2)) {
            let wide = "document.documentElement.scrollWidth <= innerWidth";
            let asked = json!({"axe": axe, "width": width, "dark": dark, "evaluate": [wide]});
            let Some(seen) = opened(&page, &asked) else { return };
            assert_eq!(seen["violations"], json!([]), "{width} {seen}");
            assert_eq!(seen["values"][0], true, "{width}: nothing is cut off");
            is_quiet(&seen);
        }
    }
}

#[test]
fn page_without_script_says_nothing_was_checked() {
    let place = Place::new();
    let page = signed(&place);
    let pdf = place.work.join("page.pdf");
    let Some(seen) = opened(&page, &json!({"scripts": false, "pdf": pdf})) else { return };
    is_quiet(&seen);
    assert!(std::fs::read(pdf).unwrap().starts_with(b"%PDF"));
    let shown = place.work.read("page.html");
    assert!(shown.contains("Nothing has been checked:"), "{shown}");
}

#[test]
fn lines_are_found_by_kind_and_by_text() {
    let place = Place::new();
    let page = signed(&place);
    let type_in = "const box = document.getElementById('search'); box.value = 'MENDED'; box.dispatchEvent(new Event('input', {bubbles: true})); new Promise((done) => setTimeout(done, 500))";
    let shown = "[...document.querySelectorAll('.entry:not([hidden])')].map((e) => e.id).join()";
    let uncheck = "for (const box of document.querySelectorAll('[type=checkbox]')) if (box.value !== 'person') box.click(); document.getElementById('search').value = ''; new Promise((done) => setTimeout(done, 500))";
    let asked = json!({"evaluate": [type_in, shown, uncheck, shown]});
    let Some(seen) = opened(&page, &asked) else { return };
    assert_eq!(
        (&seen["values"][1], &seen["values"][3]),
        (&json!(&id("run.jsonl", 15)), &json!(format!("{},{}", id("run.jsonl", 9), id("run.jsonl", 10)))),
        "{seen}"
    );
}
