//! `cp-log page`: what it takes, and its pages in a real browser, Debian's Chromium, driven over a pipe by
//! `data/browser.mjs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use cp_testkit::{Place, counterpart, packages, repository};
use serde_json::{Value, json};

use crate::made::{RUN, eventful, id, ledger};

/// What the browser shows of a page, which asks for nothing but itself; `None` where there is no browser.
fn opened(page: &Path, asked: &Value) -> Option<Value> {
    let (node, chromium) = (counterpart("node")?, counterpart("chromium")?);
    let driver = repository().join("bins/cp-log/tests/data/browser.mjs");
    let ran = Command::new(node).arg(driver).arg(chromium).arg(page).arg(asked.to_string()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let seen: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(seen["noise"], json!([]), "{seen}");
    assert_eq!(seen["requests"].as_array().unwrap().len(), 1, "only itself: {seen}");
    Some(seen)
}

/// The page of these operands.
fn page(place: &Place, words: &str) -> PathBuf {
    place.sh(&format!("cp-log page {words} >page.html")).success();
    place.work.join("page.html")
}

/// The signed page of a run in which everything happens once.
fn signed(place: &Place) -> PathBuf {
    ledger(place, "run.jsonl", &eventful());
    place.sh("cp-log keygen K && cp-log checkpoint -f run.jsonl --sign-with K").success();
    page(place, "run.jsonl")
}

/// What says the class of the verdict with this key.
fn with_key(key: &str) -> String {
    format!("find('key').value = '{key}'; check().then(() => find('verdict').className)")
}

#[test]
fn page_takes_a_run_a_session_a_bundle_and_a_ledger() {
    let place = Place::new();
    let started = place.sh("cp-session start").success().data();
    let session = started["session_id"].as_str().unwrap();
    place.sh(&format!("cp-session append --session {session} --role user 'a question'")).success();
    let run = place.home.join(format!("planes/ho1/runs/{RUN}.jsonl"));
    std::fs::create_dir_all(run.parent().unwrap()).unwrap();
    ledger(&place, "run.jsonl", &eventful());
    std::fs::copy(place.work.join("run.jsonl"), &run).unwrap();
    place.sh("cp-log bundle run.jsonl -o bundle").success();
    for (words, text) in [
        (RUN, "It is mended."),
        (session, "a question"),
        ("bundle", "It is mended."),
        ("run.jsonl", "It is mended."),
        ("- <bundle", "It is mended."),
        (".", "It is mended."),
        (&format!("--run {RUN}"), "It is mended."),
        ("", "a question"),
    ] {
        let page = std::fs::read_to_string(page(&place, words)).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{words}: {page}");
        assert!(page.contains(text), "{words}");
    }
    // The same bundle gives the same page, so that a page can be compared.
    place.sh("cp-log page bundle >one.html; cp-log page - <bundle >other.html; cmp one.html other.html").success();
    place.sh("cp-log page run.jsonl | cmp one.html").success();
    let answer = place.sh("cp-log page bundle -o new.html").success().data();
    assert_eq!((&answer["ledgers"], &answer["files"]), (&json!(1), &json!(1)));
    place.sh("cmp one.html new.html").success();
    place.sh("cp-log page bundle -o new.html").failed(6, "E_CONFLICT");
    for (made, status, code) in [
        ("cp-log page RUN-none", 3, "E_NOT_FOUND"),
        ("printf '' | cp-log page -", 2, "E_VALIDATION"),
        ("echo hello | cp-log page -", 2, "E_VALIDATION"),
        ("sed 1d bundle | cp-log page -", 2, "E_VALIDATION"),
        ("sed '$d' bundle | cp-log page -", 1, "E_INTEGRITY"),
        ("cat bundle bundle | cp-log page -", 1, "E_INTEGRITY"),
    ] {
        let ran = place.sh(made);
        ran.failed(status, code);
        assert!(!ran.stdout.contains("<html"), "{made}");
    }
    let full = place.sh("cp-log page bundle >/dev/full");
    assert!(full.status == 1 && full.stderr.contains("cp-log: "), "{full:?}");
    let mut terminal = place.program("cp-log").args(["page", "bundle"]).terminal(100);
    assert_eq!(terminal.end(), Some(2));
    assert!(terminal.text().contains("standard output is a terminal"), "{}", terminal.text());
}

#[test]
fn only_a_key_that_the_reader_gives_is_green() {
    let place = Place::new();
    let page = signed(&place);
    let key = place.work.read("K.pub");
    let (right, other) = (with_key(key.trim()), with_key(&key.trim().replacen("K+", "L+", 1)));
    let without =
        "Object.defineProperty(globalThis, 'crypto', { value: {} }); check().then(() => find('verdict').className)";
    let asked =
        json!({"evaluate": ["check().then(() => find('verdict').className)", with_key("nonsense"), other, right]});
    let Some(seen) = opened(&page, &asked) else { return };
    assert_eq!(seen["values"], json!(["unsure", "unsure", "unsure", "holds"]), "{seen}");
    assert!(seen["verdict"].as_str().unwrap().starts_with("All 18 lines hold, and the key"), "{seen}");
    assert!(seen["proved"].as_str().unwrap().contains("17 lines are signed by K+"), "{seen}");
    let seen = opened(&page, &json!({"evaluate": [right, without]})).unwrap();
    assert_eq!(seen["values"], json!(["holds", "unsure"]), "{seen}");
    assert!(seen["proved"].as_str().unwrap().contains("cannot be checked here: cp-log verify"), "{seen}");

    // A signature that was changed, a line after the checkpoint, and a ledger beside it that nobody signed.
    let text = std::fs::read_to_string(&page).unwrap();
    let at = text.rfind("\u{2014} K ").map(|at| at + "\u{2014} K ".len() + 20).unwrap();
    let letter = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
    std::fs::write(&page, format!("{}{letter}{}", &text[..at], &text[at + 1..])).unwrap();
    let seen = opened(&page, &json!({"evaluate": [right]})).unwrap();
    assert_eq!(seen["values"][0], "broken", "{seen}");
    assert!(seen["faults"].as_str().unwrap().contains("the signature of K+"), "{seen}");
    place.sh("cp-log append -f run.jsonl later; mkdir d; cp run.jsonl d; cp-log append -f d/other.jsonl x").success();
    for words in ["run.jsonl", "d"] {
        self::page(&place, words);
        let seen = opened(&page, &json!({"evaluate": [right]})).unwrap();
        assert_eq!(seen["values"][0], "unsure", "{words}: {seen}");
    }
}

#[test]
fn a_changed_byte_is_found_at_its_line_and_nothing_is_counted() {
    let place = Place::new();
    let page = signed(&place);
    let text = std::fs::read_to_string(&page).unwrap();
    let whole = id("run.jsonl", 0).strip_suffix("-0").unwrap().to_owned();
    for (from, to, fault, place) in [
        ("It is mended.", "It is mendEd.", "line 15: its bytes are not those that were hashed", &id("run.jsonl", 15)),
        (r#"\"seq\":5,"#, r#"\"seq\":6,"#, "line 6: its bytes are not", &id("run.jsonl", 6)),
        (r#""{\"seq\":7,"#, r#"" {\"seq\":7,"#, "line 7: these bytes are not a line of a ledger", &id("run.jsonl", 7)),
        ("\"17\"", "\"16\"", "its lines are not those that were signed", &whole),
        (r#""path":"run.jsonl""#, r#""path":"cut.jsonl""#, "run.jsonl is signed, and not here", &"lines".to_owned()),
        ("[\n{\"path\"", "[\n,{\"path\"", "the lines cannot be read", &"lines".to_owned()),
    ] {
        let at = text.rfind(from).unwrap_or_else(|| panic!("{from}"));
        std::fs::write(&page, format!("{}{to}{}", &text[..at], &text[at + from.len()..])).unwrap();
        let links = "[...document.querySelectorAll('#faults a')].map((a) => a.hash.slice(1)).join()";
        let counts = "[facts.calls.length, facts.answers.length].join()";
        let Some(seen) = opened(&page, &json!({"evaluate": [links, counts, "find('verdict').className"]})) else {
            return;
        };
        assert!(seen["faults"].as_str().unwrap().contains(fault), "{from}: {seen}");
        assert!(seen["verdict"].as_str().unwrap().starts_with("It does not hold"), "{seen}");
        assert!(!seen["proved"].as_str().unwrap().contains('\u{2713}'), "a ledger with a fault proves nothing: {seen}");
        assert!(seen["values"][0].as_str().unwrap().split(',').any(|id| id == *place), "{from}: {seen}");
        assert_eq!(seen["values"][2], "broken", "{seen}");
        let is_of_ledger = *place != "lines";
        assert!(!is_of_ledger || seen["values"][1] == "0,0", "{from}: {seen}");
    }
}

#[test]
fn a_large_value_is_proved_and_a_changed_one_is_found() {
    let place = Place::new();
    place.sh("head -c 1500000 /dev/zero | tr '\\0' x | cp-log append -f big.jsonl >/dev/null").success();
    let page = page(&place, "big.jsonl");
    let Some(seen) = opened(&page, &json!({})) else { return };
    assert!(seen["verdict"].as_str().unwrap().starts_with("All 2 lines hold"), "{seen}");
    place.work.write("page.html", place.work.read("page.html").replacen("eHh4", "eHh5", 1));
    let seen = opened(&page, &json!({})).unwrap();
    assert!(seen["faults"].as_str().unwrap().contains("are not those that it is named for"), "{seen}");
}

#[test]
fn page_draws_what_the_lines_say() {
    let place = Place::new();
    let mut entries = eventful();
    entries.insert(10, json!({"event": "approval.spent", "run": RUN, "data": {"id": "APR-1", "by": "ada"}}));
    entries[12]["data"]["intent"] = 12.into();
    ledger(&place, "run.jsonl", &entries);
    let text = |id: &str| format!("document.getElementById('{id}').innerText");
    let sections = ["task", "approvals", "effects", "calls", "cost", "strip", "facts"].map(text);
    let spans = "document.querySelectorAll('#time svg a').length";
    let asked = json!({"evaluate": sections.into_iter().chain([spans.to_owned()]).collect::<Vec<_>>()});
    let Some(seen) = opened(&page(&place, "run.jsonl"), &asked) else { return };
    for (at, said) in [
        (0, "Mend it"),
        (1, "Approved, and used for what ran."),
        (1, "rm 'a b'"),
        (1, "ada"),
        (2, "killed by signal 9"),
        (2, "an approval"),
        (2, "rm -rf /"),
        (3, "filesystem"),
        (3, "12 ms"),
        (4, "$1.00, and 1 answer without a price"),
        (5, "Refusals\n1"),
        (6, "completed"),
    ] {
        assert!(seen["values"][at].as_str().unwrap().contains(said), "{said}: {seen}");
    }
    assert_eq!(seen["values"][7], 6, "{seen}");
    assert!(!seen.to_string().contains("exit 9"), "{seen}");
}

#[test]
fn effects_show_the_difference_of_each_file() {
    let place = Place::new();
    place.work.write("edited", "one\ntwo\n");
    let call = json!({"tool_calls": [{"name": "filesystem", "input":
        {"operation": "edit_file", "path": "edited", "old": "two", "new": "2"}}]});
    let look = json!({"tool_calls": [{"name": "filesystem", "input": {"operation": "read_file", "path": "edited"}}]});
    place.work.write("script", format!("{look}\n{call}\n{{\"content\":\"done\"}}\n"));
    let run = place.sh("cp-toolloop --backend stub --stub-script script go").success().closing();
    let page = page(&place, run["data"]["run_id"].as_str().unwrap());
    let rows = "[...document.querySelectorAll('#effects :is(ins, del)')].map((e) => e.textContent).join()";
    let Some(seen) = opened(&page, &json!({"evaluate": [rows]})) else { return };
    assert_eq!(seen["values"][0], "-two,+2", "{seen}");
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
    let endings = "|</title>|</style>|</script>|</pre></code>|</article></section></main>|</dd></dl>|-->|]]>|</svg>|\
        <!--<script>|<plaintext>";
    let endings = endings.split('|');
    endings.flat_map(|end| payloads.iter().map(move |payload| format!("{end}{payload}"))).collect()
}

#[test]
fn two_hundred_hostile_texts_in_every_member_do_nothing() {
    let place = Place::new();
    let texts = hostile();
    assert!(texts.len() >= 200, "{}", texts.len());
    let mut entries = eventful();
    for text in &texts {
        let object = |event: &str| {
            json!({"event": event, "agent": text, "role": text, "message": text, "content": [{"type": "text", "text": text},
                {"type": text, "name": text}], "data": {text: text, "name": text, "id": text, "rule": text, "asked": [text],
                "input": {"old": text, "new": format!("{text}\n{text}"), text: text}, "by": text, "argv": [text]}})
        };
        entries.extend(["message", "tool_call", "exec.refused", "approval.asked", "exec.intent", text].map(object));
    }
    for mut entry in eventful() {
        spoil(&mut entry, &texts[3]);
        entries.push(entry);
    }
    ledger(&place, "run.jsonl", &entries);
    let page = page(&place, "run.jsonl");
    let html = place.work.read("page.html");
    assert_eq!((html.matches("<script").count(), html.matches("</script").count()), (2, 2));
    let all = "globalThis.dispatchEvent(new Event('beforeprint')); document.querySelectorAll('.entry').length > 1000";
    let strange = "document.querySelectorAll('img,iframe,object,embed,form,base,link,article svg,a:not([href^=\"#\"]),[onload],[onerror],[onfocus],[onmouseover]').length";
    let scripts = "document.querySelectorAll('script').length";
    let asked = json!({"evaluate": [all, strange, scripts, "document.title"]});
    let Some(seen) = opened(&page, &asked) else { return };
    let shown = (&seen["values"][0], &seen["values"][1], &seen["values"][2]);
    assert_eq!(shown, (&json!(true), &json!(0), &json!(2)), "{seen}");
    assert!(!seen["values"][3].as_str().unwrap().contains("hit"), "{seen}");
    assert!(seen["verdict"].as_str().unwrap().starts_with("All"), "every byte comes back: {seen}");
}

/// Puts a text in the place of every text but those that say what kind of line it is.
fn spoil(value: &mut Value, with: &str) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if !["event", "run", "operation"].contains(&name.as_str()) {
                    spoil(value, with);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| spoil(item, with)),
        Value::String(text) => with.clone_into(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Elements that reach out of the window, other than what scrolls in a frame of its own.
const OUTSIDE: &str = "[...document.querySelectorAll('body *:not(script)')].filter((e) => !e.closest('.wide *, .skip') && \
    (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)).map((e) => e.outerHTML.slice(0, 200))";
const GROUND: &str =
    "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + +part, 0)";

#[test]
fn a_page_fits_every_width_and_can_be_read_by_everybody() {
    let place = Place::new();
    let mut entries = eventful();
    let long = "a-word-without-end-".repeat(40);
    entries.push(json!({"event": long, "message": long, "data": {"name": long, "rule": long, long.clone(): 1}}));
    ledger(&place, "run.jsonl", &entries);
    let page = page(&place, "run.jsonl");
    let axe = packages().join("node_modules/axe-core/axe.min.js");
    if !cp_testkit::required("axe-core (.ci/run installs it)", axe.is_file()) {
        return;
    }
    for (width, dark) in [(320, false), (320, true), (1280, false), (1280, true), (3840, false)] {
        let open = "document.querySelectorAll('details').forEach((e) => { e.open = true; }); document.documentElement.scrollWidth <= innerWidth";
        let asked = json!({"axe": axe, "width": width, "dark": dark, "evaluate": [OUTSIDE, GROUND, open, OUTSIDE]});
        let Some(seen) = opened(&page, &asked) else { return };
        assert_eq!(seen["violations"], json!([]), "{width} {seen}");
        assert_eq!((&seen["values"][0], &seen["values"][3]), (&json!([]), &json!([])), "{width}");
        assert_eq!(seen["values"][2], true, "{width}: nothing is cut off");
        let ground = seen["values"][1].as_u64().unwrap();
        assert!(if dark { ground < 3 * 64 } else { ground > 3 * 192 }, "{ground}");
    }
}

#[test]
fn page_without_script_says_nothing_was_checked() {
    let place = Place::new();
    let page = signed(&place);
    let pdf = place.work.join("page.pdf");
    let Some(_) = opened(&page, &json!({"scripts": false, "pdf": pdf})) else { return };
    let text = place.sh("pdftotext page.pdf -").success().stdout;
    assert!(text.contains("Nothing has been checked:"), "{text}");
}

/// The share of dark points of each page of a PDF.
fn inked(pdf: &Path, place: &Place, name: &str) -> Option<Vec<f64>> {
    let draw = counterpart("pdftoppm")?;
    let pages = place.work.join(name);
    assert!(Command::new(draw).args(["-gray", "-r", "40"]).arg(pdf).arg(&pages).status().unwrap().success());
    let is_page =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "pgm") && path.to_string_lossy().contains(name);
    let files = std::fs::read_dir(place.work.join(".")).unwrap().map(|file| file.unwrap().path()).filter(is_page);
    let inked = |file: PathBuf| {
        let points = std::fs::read(file).unwrap();
        let dark = points.iter().skip(20).filter(|point| **point < 160).count();
        f64::from(u32::try_from(dark).unwrap()) / f64::from(u32::try_from(points.len()).unwrap())
    };
    Some(files.map(inked).collect())
}

#[test]
fn page_prints_with_folded_parts() {
    let place = Place::new();
    let mut entries = eventful();
    let many: Vec<String> = (0..60).map(|row| format!("row {row} of many")).collect();
    entries.push(json!({"event": "tool_result", "role": "tool", "content": many.join("\n"), "data": {"name": "x"}}));
    ledger(&place, "run.jsonl", &entries);
    let page = page(&place, "run.jsonl");
    for (name, dark) in [("light", false), ("dark", true)] {
        let pdf = place.work.join(format!("{name}.pdf"));
        let Some(_) = opened(&page, &json!({"dark": dark, "pdf": pdf})) else { return };
        let Some(pages) = inked(&pdf, &place, name) else { return };
        assert!(pages.iter().all(|ink| (0.001..0.3).contains(ink)), "{name}: none is blank, none is black: {pages:?}");
        let text = place.sh(&format!("pdftotext {name}.pdf -")).success().stdout;
        for said in ["Mend it", "row 0 of many", "row 59 of many", "Tokens and cost", "killed by signal 9"] {
            assert!(text.contains(said), "{name}: {said}\n{text}");
        }
    }
}

#[test]
fn lines_are_found_by_kind_and_by_text() {
    let place = Place::new();
    let page = signed(&place);
    let put = "find('search').value = 'MENDED'; filter()";
    let shown = "[...document.querySelectorAll('.entry:not([hidden])')].map((e) => e.id).join()";
    let uncheck = "for (const box of document.querySelectorAll('[type=checkbox]')) box.checked = box.value === 'person'; find('search').value = ''; filter()";
    let draw = "chunks.forEach((chunk) => chunk.render())";
    let Some(seen) = opened(&page, &json!({"evaluate": [draw, put, shown, uncheck, shown]})) else { return };
    let people = format!("{},{}", id("run.jsonl", 9), id("run.jsonl", 10));
    assert_eq!((&seen["values"][2], &seen["values"][4]), (&json!(id("run.jsonl", 15)), &json!(people)), "{seen}");
}

/// A run of many turns, each with an answer, a call and its result.
fn long(turns: u64) -> Vec<Value> {
    let of = |event: &str, turn: u64, data: Value| json!({"event": event, "run": RUN, "turn": turn, "data": data});
    let start = json!({"event": "run_start", "run": RUN, "role": "user", "content": "Count", "data": {"limits": {"max_iterations": turns}}});
    let turn = |turn: u64| {
        let name = format!("c{turn}");
        let usage = json!({"input_tokens": 100 + turn % 50, "output_tokens": turn % 7, "cost_usd": 0.001});
        let hash = format!("sha256:{:064x}", turn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut result = of("tool_result", turn, json!({"id": name, "name": "count", "duration_ms": turn % 90}));
        result["content"] = format!("{turn} lines, {} of them new", turn % 13).into();
        [
            of("iteration", turn, json!({})),
            of("llm.request", turn, json!({"model": "m", "attempt": 1, "request_hash": hash})),
            of(
                "llm.response",
                turn,
                json!({"model": "m", "attempt": 1, "request_hash": hash, "duration_ms": 20, "usage": usage}),
            ),
            of("tool_call", turn, json!({"id": name, "name": "count", "input": {"path": format!("file-{turn}")}})),
            result,
        ]
    };
    let end = of("run_end", turns, json!({"status": "completed"}));
    std::iter::once(start).chain((1..=turns).flat_map(turn)).chain([end]).collect()
}

/// With `CP_LONG=1`, ten times as many turns.
#[test]
fn a_long_run_opens_and_scrolls() {
    let turns = cp_testkit::times(1000, 10_000);
    let place = Place::new();
    let entries = long(turns);
    ledger(&place, "run.jsonl", &entries);
    let page = page(&place, "run.jsonl");
    let last = id("run.jsonl", entries.len() as u64);
    let scroll = format!(
        "new Promise((done) => {{ location.hash = '{last}'; setTimeout(() => {{ \
         const {{ top }} = document.getElementById('{last}').getBoundingClientRect(); \
         done([scrollY > innerHeight * 10, top >= 0 && top < innerHeight]); }}, 1000); }})"
    );
    let spans = "document.querySelectorAll('svg a').length";
    let Some(seen) = opened(&page, &json!({"evaluate": ["performance.now()", scroll, spans]})) else { return };
    assert!(seen["values"][0].as_f64().is_some_and(|took| took < 4000.0), "{seen}");
    assert_eq!(seen["values"][1], json!([true, true]), "{last} is at hand: {seen}");
    assert!(seen["values"][2].as_u64().is_some_and(|spans| (2..=2000).contains(&spans)), "{seen}");
    let all = format!("All {} lines hold", entries.len() + 1);
    assert!(seen["verdict"].as_str().unwrap().starts_with(&all), "{seen}");
}
