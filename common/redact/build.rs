//! Turns the tables in `tables/` into static arrays, so that a process that writes one line has no startup cost.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=tables");
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("keys.rs"), keys(&std::fs::read_to_string("tables/keys.txt")?)?)?;
    std::fs::write(Path::new(&out).join("words.rs"), words(&std::fs::read_to_string("tables/words.txt")?)?)?;
    Ok(())
}

fn keys(table: &str) -> Result<String, Box<dyn Error>> {
    let mut source = "/// The keys. If two prefixes begin alike, the longer one is first.\n\
        pub(crate) static KEYS: &[Key] = &[\n"
        .to_owned();
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let [rule, prefix, rest, least] = row.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("not a row of keys: {row}").into());
        };
        writeln!(source, "Key {{ rule: {rule:?}, prefix: {prefix:?}, rest: Rest::{rest}, least: {least} }},")?;
    }
    Ok(source + "];\n")
}

fn words(table: &str) -> Result<String, Box<dyn Error>> {
    let mut source = String::new();
    for list in table.split("\n[").skip(1) {
        let (name, words) = list.split_once("]\n").ok_or("a list has no name")?;
        let words: Vec<String> =
            words.lines().filter(|word| !word.is_empty()).map(|word| word.replace('␣', " ")).collect();
        writeln!(source, "pub(crate) static {name}: &[&str] = &{words:?};")?;
    }
    Ok(source)
}
