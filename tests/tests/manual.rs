//! What the manual shows, this runs; what the programs take, the manual names.

use std::collections::BTreeMap;
use std::path::Path;

use cp_testkit::{PROGRAMS, Place, is_long, repository};
use cp_tests::transcript::{self, Block, consoles_of_markdown, examples_of_page};

fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<(String, String)> = std::fs::read_dir(repository().join("man"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    pages.sort();
    pages
}

/// The shells that a reader may type an example into.
const SHELLS: [&str; 2] = ["dash", "bash"];

/// A place that has the examples of `docs`, as a checkout has them.
fn checkout() -> Place {
    let place = Place::new();
    std::os::unix::fs::symlink(repository().join("docs"), place.work.join("docs")).unwrap();
    place
}

/// Runs each block of a file in each of these shells, in a place of its own.
fn run(shells: &[&str], path: &Path, blocks: &[Block], written: fn(&str) -> String) {
    let name = path.file_name().unwrap().to_string_lossy();
    for shell in shells {
        let mut differences = Vec::new();
        for block in blocks {
            differences.extend(transcript::run(&name, shell, block, &checkout()));
        }
        transcript::same_or_update(path, &differences, written);
        if !differences.is_empty() {
            return;
        }
    }
}

#[test]
fn every_example_of_every_page_runs() {
    let check = |(name, page): &(String, String)| {
        let blocks = examples_of_page(page);
        let is_program = Path::new(name).extension().is_some_and(|section| section == "1");
        assert!(!is_program || !blocks.is_empty(), "{name} has no EXAMPLES block with a `$ ` line");
        if !blocks.is_empty() {
            let blocks = [transcript::joined(&blocks)];
            run(&SHELLS, &repository().join("man").join(name), &blocks, transcript::escaped);
        }
    };
    std::thread::scope(|scope| {
        for share in pages().chunks(6) {
            let share = share.to_vec();
            scope.spawn(move || share.iter().for_each(check));
        }
    });
}

/// An event as the table in cp-ledger(5) has it.
#[derive(serde::Deserialize)]
struct Event {
    what: String,
    members: BTreeMap<String, String>,
    pair: Option<Pair>,
    #[serde(default)]
    because: BTreeMap<String, String>,
}

#[derive(serde::Deserialize)]
struct Pair {
    of: String,
    start: bool,
}

/// Rows of the page, of which no line is longer than others in it.
fn rows_of_events() -> String {
    let events: BTreeMap<String, Event> = serde_json::from_str(cp_ledger::EVENTS).unwrap();
    let mut rows = String::new();
    for (name, Event { what, members, pair, because }) in &events {
        let is_end = |other: &Pair| pair.as_ref().is_some_and(|pair| pair.start && !other.start && other.of == pair.of);
        let end = events.iter().find(|(_, event)| event.pair.as_ref().is_some_and(is_end));
        let end = end.map(|(name, _)| format!("; ends with {name}")).unwrap_or_default();
        let causes: Vec<String> = because.iter().map(|(member, event)| format!("{event} by {member}")).collect();
        let causes = if causes.is_empty() { String::new() } else { format!("; because of {}", causes.join(" and ")) };
        let members = members.iter().map(|(name, types)| match types.strip_prefix("string") {
            Some(rest) => format!("{name}{rest}"),
            None => format!("{name} {types}"),
        });
        let row = format!(".It Cm {name} Ta {what}{end}{causes}: {}", members.collect::<Vec<_>>().join(", "));
        let mut length = 0;
        for word in row.split(' ') {
            let gap = if length == 0 {
                ""
            } else if length + word.len() > 130 {
                "\n"
            } else {
                " "
            };
            length = if gap == "\n" { 0 } else { length + gap.len() } + word.len();
            rows.push_str(gap);
            rows.push_str(word);
        }
        rows.push('\n');
    }
    rows
}

#[test]
fn cp_ledger_has_the_table_of_events() {
    let path = repository().join("man/cp-ledger.5");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(".Bl -column \"session_inbox_read\" \"text\"\n").unwrap();
    let rest = &rest[rest.find(".El\n").unwrap()..];
    let written = format!("{before}.Bl -column \"session_inbox_read\" \"text\"\n{}{rest}", rows_of_events());
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(&path, &written).unwrap();
    }
    assert!(page == written, "the page has another table of events: run this test with UPDATE=1, and look at it");
}

#[test]
fn the_readme_runs() {
    cp_testkit::needs!("make");
    let readme = repository().join("README.md");
    let blocks = consoles_of_markdown(&std::fs::read_to_string(&readme).unwrap());
    assert!(!blocks.is_empty());
    run(&SHELLS, &readme, &[transcript::joined(&blocks)], str::to_owned);
    run(&SHELLS, &readme, &blocks, str::to_owned);
}

/// The parts of a transcript: each below a heading with `# `, in a place of its own.
fn parts(text: &str) -> Vec<Block> {
    let mut parts = vec![Block { before: 0, text: String::new() }];
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("# ") {
            parts.push(Block { before: number + 1, text: String::new() });
        } else if let Some(part) = parts.last_mut() {
            part.text.extend([line, "\n"]);
        }
    }
    parts.retain(|part| !part.text.is_empty());
    parts
}

#[test]
fn the_transcripts_run() {
    let mut paths: Vec<_> = std::fs::read_dir(repository().join("tests/transcripts")).unwrap().collect();
    paths.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    for (file, entry) in paths.into_iter().enumerate() {
        let path = entry.unwrap().path();
        // In one shell each, because every example of the manual runs in both.
        let shells = if is_long() { &SHELLS[..] } else { &SHELLS[file % 2..][..1] };
        run(shells, &path, &parts(&std::fs::read_to_string(&path).unwrap()), str::to_owned);
    }
}

#[test]
fn a_page_says_what_its_program_says_and_names_every_verb() {
    let read = |name: &str| std::fs::read_to_string(repository().join("man").join(name)).unwrap();
    let overview = read("cp-options.7");
    for program in PROGRAMS {
        let page = read(&format!("{program}.1"));
        let about = page.lines().find_map(|line| line.strip_prefix(".Nd ")).unwrap_or_default();
        let said = cp_tests::reference(program)["about"].as_str().unwrap();
        assert_eq!(about.to_lowercase(), said.to_lowercase(), "{program}: .Nd and about differ");
        for path in cp_tests::verbs_of(program).map(|verb| verb.path()) {
            assert!(page.contains(path) || overview.contains(path), "{program}: the verb {path} is in no page");
        }
        for sections in [&["EXIT STATUS"][..], &["EXAMPLES", "WHAT PEOPLE DO"], &["SEE ALSO"]] {
            let has_section = |section: &&str| page.contains(&format!(".Sh {section}\n"));
            assert!(sections.iter().any(has_section), "{program}: no {sections:?}");
        }
    }
}

/// groff, unlike mandoc, breaks a table with an open bracket, and fills a narrow last column word by word.
#[test]
fn tables_fit_a_terminal_of_80_columns() {
    cp_testkit::needs!("man");
    let place = Place::new();
    for (name, page) in pages() {
        let open = page.lines().find(|line| line.starts_with(".It ") && line.contains(" Op ") && line.contains(" Ta "));
        assert_eq!(open, None, "{name}: write Oo and Oc");
        let path = repository().join("man").join(&name);
        let shown = place
            .program("man")
            .args(["--warnings", "-l"])
            .arg(path)
            .env("MANWIDTH", "80")
            .env("LC_ALL", "C.UTF-8")
            .run();
        assert_eq!((shown.status, shown.stderr.as_str()), (0, ""), "{name}");
        let narrow: Vec<&str> = shown.stdout.lines().filter(|line| line.starts_with(&" ".repeat(50))).collect();
        assert!(narrow.is_empty(), "{name}: the last column is too narrow: {narrow:#?}");
    }
}

#[test]
fn the_table_of_cp_exit_is_the_contract() {
    let page = std::fs::read_to_string(repository().join("man/cp-exit.7")).unwrap();
    for (code, row) in cp_tests::codes().as_object().unwrap() {
        let start = format!(".It {} Ta {code} Ta ", row["exit"]);
        let line = page.lines().find_map(|line| line.strip_prefix(&start));
        let is_retryable = line.unwrap_or_else(|| panic!("cp-exit(7) lacks `{start}`")).starts_with("retryable: ");
        assert_eq!(row["retryable"], is_retryable, "{code}");
    }
}
