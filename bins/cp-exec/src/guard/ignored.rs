//! Ignore rules of git: ignored paths are not reported.

use std::fs;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::GitignoreBuilder;

/// Whether git ignores a path by the rules of the directories around it, up to a tree, or has nothing to show in it.
pub(crate) fn is_ignored(tree: &Path, path: &Path) -> bool {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    // The directory of a cache has a file that ignores all that is in it.
    if is_directory && decide(path, ".gitignore", &path.join("content"), false) == Some(true) {
        return true;
    }
    let around = path.ancestors().skip(1).take_while(|directory| directory.starts_with(tree));
    around
        .flat_map(|directory| [".gitignore", ".git/info/exclude"].map(|file| (directory, file)))
        .find_map(|(directory, file)| decide(directory, file, path, is_directory))
        .unwrap_or_default()
}

/// What one file of rules for a directory says about a path, if anything.
fn decide(directory: &Path, file: &str, path: &Path, is_directory: bool) -> Option<bool> {
    let file = directory.join(file);
    // Anything else could keep its reader waiting.
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
    fn nearest_rule_about_a_path_decides() {
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
