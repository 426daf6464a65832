//! `cp-log` as a shell user meets it: a file for each verb, one program, so that it is linked once.

#[cfg(test)]
mod append;
#[cfg(test)]
mod at;
#[cfg(test)]
mod create;
#[cfg(test)]
mod export;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod follow;
#[cfg(test)]
mod proofs;
#[cfg(test)]
mod query;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod rotate;
#[cfg(test)]
mod seal;
#[cfg(test)]
mod stats;
#[cfg(test)]
mod tee;
#[cfg(test)]
mod tip;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod writers;

#[test]
fn no_file_is_forgotten() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap();
    for file in files.map(|file| file.unwrap().file_name().into_string().unwrap()) {
        let name = file.trim_end_matches(".rs");
        assert!(name == "main" || include_str!("main.rs").contains(&format!("mod {name};")), "{name}");
    }
}
