//! The files that a command writes, and which of them it destroys. Also evaluates the clauses of rules, because a write
//! can depend on them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use sha2::{Digest, Sha256};

use super::arguments::{Arguments, Item};
use super::data::{self, Clause, Operands, Place, Write, is_named};
use crate::digest::{format_digest, sha256_of};
use crate::glob::name_matches;
use crate::policy::{Access, Policy, expand};

/// The most directory entries that are compared or hashed.
const ENTRIES: usize = 10_000;

/// Paths that a command writes by its arguments.
pub(crate) fn written_paths(policy: &Policy, arguments: &Arguments<'_>, cwd: &Path) -> Vec<PathBuf> {
    let home = policy.home_text();
    let places = Places::of(policy, &home, cwd);
    writes(arguments, &places).flat_map(|write| targets(write, arguments, &places)).map(|(_, to)| to).collect()
}

/// The hash of the files in the write paths that a command destroys. It covers the content of a single file; for
/// several files, and for entries of directories, it covers names, sizes and change times.
pub(crate) fn hash_of_lost_files(policy: &Policy, argv: &[String], cwd: &Path) -> Result<String> {
    let home = policy.home_text();
    let mut lost = lost_files(&Arguments::read(argv), &Places::of(policy, &home, cwd));
    lost.retain(|path| policy.bounds.lists(Access::Write, path));
    if let [path] = lost.as_slice()
        && path.is_file()
    {
        return fs::File::open(path).and_then(sha256_of).map_err(|e| Error::io("cannot be read", e).in_file(path));
    }
    let mut hash = Sha256::new();
    let (mut left, mut next) = (ENTRIES, lost);
    while let Some(path) = next.pop() {
        let Some(fewer) = left.checked_sub(1) else { break };
        left = fewer;
        hash.update(path.as_os_str().as_encoded_bytes());
        if path.is_dir() && !path.is_symlink() {
            let entries = fs::read_dir(&path).map_err(|e| Error::io("cannot be read", e).in_file(&path))?;
            let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            entries.sort();
            next.append(&mut entries);
        } else if let Ok(meta) = fs::symlink_metadata(&path) {
            hash.update(format!("\0{}\0{}\0{}\n", meta.len(), meta.ctime(), meta.ctime_nsec()));
        }
    }
    Ok(format_digest(hash))
}

/// Existing files and directories that a command destroys.
pub(super) fn lost_files(arguments: &Arguments<'_>, places: &Places<'_>) -> Vec<PathBuf> {
    let mut lost = Vec::new();
    for write in writes(arguments, places).filter(|write| write.loses) {
        for (from, to) in targets(write, arguments, places) {
            let is_source = write.operands == Operands::Last;
            if is_source && to.is_dir() {
                collect_collisions(&from, &to, &mut lost);
            } else if to.is_symlink() || to.metadata().is_ok_and(|meta| meta.is_file() || meta.is_dir()) {
                lost.push(to);
            }
        }
    }
    lost
}

fn writes<'a>(arguments: &'a Arguments<'_>, places: &'a Places<'_>) -> impl Iterator<Item = &'static Write> + 'a {
    let family = data::family_of(arguments.name());
    family.into_iter().flat_map(|family| &family.write).filter(|write| {
        let holds = write.when.is_empty() || write.when.iter().any(|clause| clause.holds(arguments, places));
        is_named(&write.commands, arguments.name()) && holds
    })
}

/// Each path that is written, with the path of its source.
fn targets(write: &Write, arguments: &Arguments<'_>, places: &Places<'_>) -> Vec<(PathBuf, PathBuf)> {
    let directory = places.directory(arguments);
    let path = |word: &str| places.path(&directory, word);
    let mut operands: Vec<&str> = match arguments.name() {
        "git" => arguments.operands_of_command().map(|operand| operand.word).collect(),
        _ => arguments.operands().map(|operand| operand.word).collect(),
    };
    let named = arguments.values_of(&write.options);
    let prefixed =
        write.prefix.iter().flat_map(|prefix| operands.iter().filter_map(|word| word.strip_prefix(prefix.as_str())));
    let mut found: Vec<_> = named.chain(prefixed).map(|word| (directory.clone(), path(word))).collect();
    match write.operands {
        Operands::None => {}
        Operands::All => found.extend(operands.iter().map(|word| (directory.clone(), path(word)))),
        Operands::Second => found.extend(operands.get(1).map(|word| (directory.clone(), path(word)))),
        Operands::Last => {
            let into = arguments.values_of(&["-t", "--target-directory"]).next();
            let target = match into {
                Some(into) => path(into),
                None if operands.len() > 1 => path(operands.pop().unwrap_or_default()),
                // `ln -f a/b` creates `b`.
                None => directory.clone(),
            };
            let is_whole =
                into.is_none() && (arguments.has_option(&["-T", "--no-target-directory"]) || !target.is_dir());
            found.extend(operands.iter().map(|source| {
                let to = match Path::new(source).file_name() {
                    // The content of `a/.` and `..` is copied, not the directory.
                    Some(name) if !is_whole && !source.trim_end_matches('/').ends_with("/.") => target.join(name),
                    _ => target.clone(),
                };
                (path(source), to)
            }));
        }
    }
    found
}

/// Collects the files below `to` that a copy of the directory `from` overwrites.
fn collect_collisions(from: &Path, to: &Path, lost: &mut Vec<PathBuf>) {
    let (mut left, mut next) = (ENTRIES, vec![(from.to_owned(), to.to_owned())]);
    while let Some((from, to)) = next.pop() {
        for entry in fs::read_dir(&from).into_iter().flatten().flatten() {
            let to = to.join(entry.file_name());
            let Some(fewer) = left.checked_sub(1) else { return lost.push(to) };
            left = fewer;
            if to.is_dir() && !to.is_symlink() {
                next.push((entry.path(), to));
            } else if to.symlink_metadata().is_ok() {
                lost.push(to);
            }
        }
    }
}

/// The directories that words are resolved against.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub cwd: &'a Path,
    pub project: &'a Path,
    pub home: &'a str,
}

impl<'a> Places<'a> {
    pub(super) fn of(policy: &'a Policy, home: &'a str, cwd: &'a Path) -> Self {
        Self { cwd, project: &policy.base, home }
    }

    /// The working directory of a command, after the options that change it.
    pub(super) fn directory(&self, arguments: &Arguments<'_>) -> PathBuf {
        arguments.directories().fold(self.cwd.to_owned(), |path, next| path.join(next))
    }

    /// The resolved path of a word.
    pub(super) fn path(&self, directory: &Path, word: &str) -> PathBuf {
        cp_common::home::resolved(&directory.join(expand(word, self.home)))
    }
}

impl Place {
    fn contains(self, path: &Path, places: &Places<'_>) -> bool {
        match self {
            Self::Root => [places.project, Path::new(places.home)].iter().any(|root| root.starts_with(path)),
            Self::Repository => {
                path.iter().any(|part| part == ".git") && path.extension().is_none_or(|extension| extension != "lock")
            }
        }
    }
}

impl Clause {
    pub(super) fn holds(&self, arguments: &Arguments<'_>, places: &Places<'_>) -> bool {
        let of_form = |forms: &[String], word: &str| forms.iter().any(|form| name_matches(form, word));
        let operands = || -> Vec<_> {
            if self.command.is_empty() {
                arguments.operands().collect()
            } else {
                arguments.operands_of_command().collect()
            }
        };
        let is_word = |item: &Item<'_>| {
            let word = match item {
                Item::Option(_, value) => *value,
                Item::Operand(operand) => Some(operand.word),
            };
            word.is_some_and(|word| of_form(&self.words, &word.to_ascii_lowercase()))
        };
        let is_off = |options: &[String]| arguments.values_of(options).any(|value| ["false", "none"].contains(&value));
        let exists = |word: &str| {
            let path = || places.directory(arguments).join(word);
            word != "-" && (word.contains(['*', '?', '[']) || std::fs::symlink_metadata(path()).is_ok())
        };
        let in_place = |word: &str| {
            let path = places.path(&places.directory(arguments), word);
            self.places.iter().any(|place| place.contains(&path, places))
        };
        (self.command.is_empty() || arguments.is_command(&self.command))
            && !arguments.is_command(&self.not_command)
            && (self.options.is_empty() || arguments.has_option(&self.options))
            && (!arguments.has_option(&self.no_options) || is_off(&self.no_options))
            && self
                .values
                .iter()
                .all(|(option, forms)| arguments.values_of(&[option]).any(|value| of_form(forms, value)))
            && (self.operands.is_empty() || operands().iter().any(|operand| of_form(&self.operands, operand.word)))
            && (self.words.is_empty() || arguments.items().iter().any(is_word))
            && (self.at_least == 0 || operands().len() >= self.at_least)
            && (!self.after_dashes || operands().iter().any(|operand| operand.after_dashes))
            && (!self.existing || operands().iter().any(|operand| exists(operand.word)))
            && (self.places.is_empty() || operands().iter().any(|operand| in_place(operand.word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(place: &Path, line: &str) -> bool {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        !lost_files(&Arguments::read(&words), &Places { cwd: place, project: place, home: "/home/me" }).is_empty()
    }

    #[test]
    fn lost_file_is_found_for_every_spelling() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("f"), "x").unwrap();
        for line in [
            "sort -o f a",
            "sort -of a",
            "sort a --outp=f",
            "curl -sSLo f http://x",
            "wget -qO f x",
            "uniq -c a f",
            "shuf -n 3 -o f a",
            "iconv -f latin1 -o f a",
            "cp a f",
            "cp -nf a f",
            "mv a f",
            "install -m 644 a f",
            "ln -sf a f",
            "tee f",
            "dd if=a of=f",
            "gawk -of {}",
            "gawk --profile=f {}",
            "rm f",
            "truncate -s 0 f",
            "busybox cp a f",
            "git checkout -- f",
            "git restore f",
            "git diff --output=f",
            "git archive -o f HEAD",
            "git bundle create f HEAD",
        ] {
            assert!(lost(place.path(), line), "{line}");
            let absent = line.replace(" f", " absent").replace("=f", "=absent").replace("-of", "-oabsent");
            assert!(!lost(place.path(), &absent), "{absent}");
        }
        for line in ["sort f", "uniq f", "curl -d f http://x", "tee -a f", "cp -n a f", "ln -s a f", "sed -i s/a/b/ f"]
        {
            assert!(!lost(place.path(), line), "{line}");
        }
    }

    #[test]
    fn directory_copy_loses_existing_files_below_target() {
        let place = tempfile::tempdir().unwrap();
        for path in ["a/deep/f", "a/g", "with/a/deep/f", "flat/g", "none/a/deep/other", "flat/h"] {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        for line in [
            "cp -r a with",
            "cp -a a with/",
            "cp -R -t with a",
            "cp -r a/. flat",
            "cp -r a/./ flat",
            "cp -rT a flat",
            "cp a/g flat",
        ] {
            assert!(lost(place.path(), line), "{line}");
        }
        for line in ["cp -r a none", "cp -r a new", "cp -r a flat", "cp -rn a with", "cp -r a/. none", "cp -rT a new"] {
            assert!(!lost(place.path(), line), "{line}");
        }
    }

    #[test]
    fn directory_copy_into_itself_terminates() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("..", place.path().join("a/up")).unwrap();
        assert!(lost(place.path(), "cp -r a ."));
    }
}
