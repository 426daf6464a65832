//! `cp-log` as a shell user meets it: a file for each verb, one program, so that it is linked once.
#![expect(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod append;
mod audit;
mod bundle;
mod create;
mod damage;
mod follow;
mod forgeries;
mod ledgers;
mod made;
mod otlp;
mod page;
mod pages;
mod proofs;
mod query;
mod repair;
mod rotate;
mod sources;
mod stats;
mod sweep;
mod tee;
mod tip;
mod verify;
mod whole;
mod work;
mod writers;

#[test]
fn no_file_is_forgotten() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap();
    for file in files.map(|file| file.unwrap().file_name().into_string().unwrap()) {
        let name = file.trim_end_matches(".rs");
        assert!(
            ["main", "data"].contains(&name) || include_str!("main.rs").contains(&format!("mod {name};")),
            "{name}"
        );
    }
}
