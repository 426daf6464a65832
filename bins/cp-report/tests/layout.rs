//! How pages look: at each width, in light and dark, on paper, and when they are long.

use std::path::{Path, PathBuf};
use std::process::Command;

use cp_testkit::{Place, counterpart, repository};
use serde_json::{Value, json};

use crate::browser::{driven, is_quiet, opened, signed};
use crate::made::{RUN, bundle, eventful, id, ledger};

/// Where a person finds what the browser drew.
fn kept(name: &str) -> PathBuf {
    let folder = repository().join("target/cp-report-pages");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Elements that reach out of the window, other than what scrolls in a frame of its own.
const OUTSIDE: &str = "[...document.querySelectorAll('body *:not(script)')].filter((e) => !e.closest('.wide *, .skip') && \
    (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)).map((e) => e.outerHTML.slice(0, 200))";
/// Texts of a picture that lie on each other.
const OVERLAPPING: &str = "[...document.querySelectorAll('svg')].flatMap((svg) => { \
    const all = [...svg.querySelectorAll('text')].map((e) => [e.textContent, e.getBoundingClientRect()]); \
    return all.flatMap(([a, one], at) => all.slice(at + 1).filter(([, two]) => \
    one.left < two.right && two.left < one.right && one.top < two.bottom - 4 && two.top < one.bottom - 4).map(([b]) => `${a} and ${b}`)); })";
const GROUND: &str =
    "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + +part, 0)";

#[test]
fn page_fits_every_width_in_light_and_dark() {
    let place = Place::new();
    let page = signed(&place);
    let mut entries = eventful();
    let long = "a-word-without-end-".repeat(40);
    entries.push(json!({"event": long, "message": long, "data": {"name": long, "rule": long}}));
    ledger(&place, "long.jsonl", &entries);
    for (name, words) in [("run", "run.jsonl"), ("overview", "run.jsonl long.jsonl")] {
        bundle(&place, words);
        let option = if name == "overview" { "--overview" } else { "" };
        place.sh(&format!("cp-report {option} --trust K.pub bundle >page.html")).success();
        for (width, dark) in [(320, false), (320, true), (1024, false), (1024, true), (3840, false), (3840, true)] {
            let picture = kept(&format!("{name}-{width}-{}.png", if dark { "dark" } else { "light" }));
            // What is folded must fit too.
            let open = "document.querySelectorAll('details').forEach((e) => { e.open = true; }); document.documentElement.scrollWidth <= innerWidth";
            let asked = json!({"width": width, "dark": dark, "picture": picture, "whole": true,
                "evaluate": [OUTSIDE, OVERLAPPING, GROUND, open, OUTSIDE]});
            let Some(seen) = opened(&page, &asked) else { return };
            let nothing = json!([]);
            assert_eq!((&seen["values"][0], &seen["values"][1]), (&nothing, &nothing), "{name} {width}");
            assert_eq!((&seen["values"][3], &seen["values"][4]), (&json!(true), &nothing), "{name} {width}, unfolded");
            let ground = seen["values"][2].as_u64().unwrap();
            assert_eq!(ground < 3 * 64, dark, "{ground}");
            assert!(dark || ground > 3 * 192, "{ground}");
            is_quiet(&seen);
        }
    }
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
    bundle(&place, "run.jsonl");
    place.sh("cp-report bundle >page.html").success();
    for (name, scripts, dark) in [("scripts", true, false), ("plain", false, false), ("dark", true, true)] {
        let pdf = kept(&format!("{name}.pdf"));
        let asked = json!({"scripts": scripts, "dark": dark, "pdf": pdf});
        let Some(seen) = opened(&place.work.join("page.html"), &asked) else { return };
        is_quiet(&seen);
        let Some(pages) = inked(&pdf, &place, name) else { return };
        assert!((3..=8).contains(&pages.len()), "{name}: {pages:?}");
        assert!(pages.iter().all(|ink| (0.001..0.3).contains(ink)), "{name}: none is blank, none is black: {pages:?}");
        let text = place.sh(&format!("pdftotext '{}' -", pdf.display())).success().stdout;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in ["Mend it", "row 0 of many", "row 59 of many", "Tokens and cost"] {
            assert!(text.contains(said), "{name}: {said}\n{text}");
        }
        // Lines as they were written are for a screen, and for a page without its script.
        assert_eq!((text.contains("Refused: blocked"), text.contains("prev")), (scripts, !scripts), "{name}\n{text}");
    }
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
fn a_long_run_is_small_opens_and_scrolls() {
    let turns = cp_testkit::times(1000, 10_000);
    let place = Place::new();
    let entries = long(turns);
    ledger(&place, "run.jsonl", &entries);
    bundle(&place, "run.jsonl");
    place.sh("cp-report bundle >page.html").success();
    let size =
        |file: &str| place.sh(&format!("gzip -c {file} | wc -c")).success().stdout.trim().parse::<u64>().unwrap();
    assert!(size("page.html") <= 2 * size("bundle"), "{} of {}", size("page.html"), size("bundle"));
    let last = id("run.jsonl", entries.len() as u64);
    let scroll = format!(
        "new Promise((done) => {{ document.documentElement.style.scrollBehavior = 'auto'; location.hash = '{last}'; \
         setTimeout(() => {{ const {{ top }} = document.getElementById('{last}').getBoundingClientRect(); \
         done([scrollY > innerHeight * 10, top >= 0 && top < innerHeight]); }}, 1000); }})"
    );
    let bars = "document.querySelectorAll('svg.bars a').length";
    let shown = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd";
    let asked = json!({"evaluate": [scroll, bars, shown]});
    let Some(seen) = opened(&place.work.join("page.html"), &asked) else { return };
    assert!(seen["values"][2].as_f64().is_some_and(|took| took < 4000.0), "{seen}");
    assert_eq!(seen["values"][0], json!([true, true]), "{last} is at hand: {seen}");
    assert!(seen["values"][1].as_u64().is_some_and(|bars| (200..=400).contains(&bars)), "{seen}");
    let all = format!("All {} lines hold", entries.len() + 1);
    assert!(seen["verdict"].as_str().unwrap().starts_with(&all), "{seen}");
}

#[test]
fn a_page_that_comes_to_no_verdict_is_not_waited_for_without_end() {
    let place = Place::new();
    place.work.write("page.html", "<p id=verdict>?</p><script>console.log('I am lost')</script>");
    let Some(ran) = driven(&place.work.join("page.html"), &json!({"limit": 5})) else { return };
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && said.contains("its script runs") && said.contains("I am lost"), "{said}");
}
