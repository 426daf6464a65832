//! What the manual shows, this runs; what the programs take, the manual names.

use std::path::Path;

use cp_testkit::{PROGRAMS, Place, repository};
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

/// Runs each block of a file in each shell, in a place of its own.
fn run(path: &Path, blocks: &[Block], written: fn(&str) -> String) {
    let name = path.file_name().unwrap().to_string_lossy();
    for shell in SHELLS {
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
    for (name, page) in pages() {
        let blocks = examples_of_page(&page);
        let is_program = Path::new(&name).extension().is_some_and(|section| section == "1");
        assert!(!is_program || !blocks.is_empty(), "{name} has no EXAMPLES block with a `$ ` line");
        if !blocks.is_empty() {
            run(&repository().join("man").join(name), &[transcript::joined(&blocks)], transcript::escaped);
        }
    }
}

#[test]
fn the_readme_runs() {
    cp_testkit::needs!("make");
    let readme = repository().join("README.md");
    let blocks = consoles_of_markdown(&std::fs::read_to_string(&readme).unwrap());
    assert!(!blocks.is_empty());
    run(&readme, &[transcript::joined(&blocks)], str::to_owned);
    run(&readme, &blocks, str::to_owned);
}

#[test]
fn the_transcripts_run() {
    for entry in std::fs::read_dir(repository().join("tests/transcripts")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        run(&path, &[Block { before: 0, text }], str::to_owned);
    }
}

#[test]
fn a_page_says_what_its_program_says_and_names_every_verb() {
    for program in PROGRAMS {
        let page = std::fs::read_to_string(repository().join(format!("man/{program}.1"))).unwrap();
        let overview = std::fs::read_to_string(repository().join("man/cp-options.7")).unwrap();
        let reference = cp_tests::reference(program);
        let about = page.lines().find_map(|line| line.strip_prefix(".Nd ")).unwrap_or_default();
        assert_eq!(
            about.to_lowercase(),
            reference["about"].as_str().unwrap().to_lowercase(),
            "{program}: .Nd and about differ"
        );
        for command in reference["commands"].as_array().unwrap() {
            let path = command["path"].as_str().unwrap();
            assert!(
                path.is_empty() || page.contains(path) || overview.contains(path),
                "{program}: the verb {path} is in no page"
            );
        }
        for sections in [&["EXIT STATUS"][..], &["EXAMPLES", "WHAT PEOPLE DO"], &["SEE ALSO"]] {
            let has_section = |section: &&str| page.contains(&format!(".Sh {section}\n"));
            assert!(sections.iter().any(has_section), "{program}: no {sections:?}");
        }
    }
}

#[test]
fn the_table_of_cp_exit_is_the_contract() {
    let page = std::fs::read_to_string(repository().join("man/cp-exit.7")).unwrap();
    for (file, rows) in [("contract.json", "/error_codes/core"), ("contract-ext.json", "/error_codes")] {
        let text = std::fs::read_to_string(repository().join("common/contract").join(file)).unwrap();
        let contract: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows = contract.pointer(rows).and_then(serde_json::Value::as_object).unwrap().clone();
        assert!(rows.len() >= 4, "{file}");
        for (code, row) in rows {
            let retryable = if row["retryable"] == true { "yes" } else { "no" };
            let line = format!(".It {} Ta {} Ta {retryable}", row["exit"], code);
            assert!(page.contains(&line), "cp-exit(7) lacks `{line}`");
        }
    }
}
