//! Ignore rules of git, so that ignored paths are not reported.

use std::fs;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::GitignoreBuilder;

/// True if git ignores a path by the rules of its directories up to a tree, or if the path is a directory without
/// visible files.
pub(crate) fn is_ignored(tree: &Path, path: &Path) -> bool {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    // A cache directory often has a `.gitignore` that ignores its whole content.
    if is_directory && decide(path, ".gitignore", &path.join("content"), false) == Some(true) {
        return true;
    }
    let around = path.ancestors().skip(1).take_while(|directory| directory.starts_with(tree));
    around
        .flat_map(|directory| [".gitignore", ".git/info/exclude"].map(|file| (directory, file)))
        .find_map(|(directory, file)| decide(directory, file, path, is_directory))
        .unwrap_or_default()
}

/// The decision of one file of rules about a path, if any.
fn decide(directory: &Path, file: &str, path: &Path, is_directory: bool) -> Option<bool> {
    let file = directory.join(file);
    // Opening a pipe could block.
    fs::symlink_metadata(&file).ok().filter(fs::Metadata::is_file)?;
    let mut rules = GitignoreBuilder::new(directory);
    rules.add(file);
    match rules.build().ok()?.matched_path_or_any_parents(path, is_directory) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_ignore_rule_decides() {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(".gitignore", ".cache/\n.x*\n");
        write(".git/info/exclude", ".mine\n");
        write("sub/.gitignore", "!.xkept\n");
        write("sub/.pytest_cache/.gitignore", "*\n");
        for path in [".cache/a", ".x1", ".mine", "sub/.mine", "sub/.xkept", "sub/.x2", ".other", "sub/.pytest_cache/b"]
        {
            write(path, "");
        }
        let is_ignored = |path: &str| is_ignored(place.path(), &place.path().join(path));
        assert!([".cache", ".x1", ".mine", "sub/.mine", "sub/.x2", "sub/.pytest_cache"].into_iter().all(is_ignored));
        assert!(![".other", "sub/.xkept", "sub"].into_iter().any(is_ignored));
    }
}
