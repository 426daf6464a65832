//! Commands that write over a file: it is asked for where there is one.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Risk};
use crate::arguments::Arguments;
use crate::policy::Verdict;

const ABOUT: [&str; 7] = ["cp", "mv", "ln", "tee", "install", "ginstall", "uniq"];

/// Programs that write where an option says.
const OUTPUTS: [(&str, &[&str]); 6] = [
    ("curl", &["-o", "--output"]),
    ("iconv", &["-o", "--output"]),
    ("shuf", &["-o", "--output"]),
    ("sort", &["-o", "--output"]),
    ("tree", &["-o"]),
    ("wget", &["-O", "--output-document"]),
];

fn output_options(arguments: &Arguments<'_>) -> Option<&'static [&'static str]> {
    OUTPUTS.iter().find(|(name, _)| *name == arguments.name()).map(|(_, options)| *options)
}

/// Whether a command is one of those.
pub(super) fn is_about(arguments: &Arguments<'_>) -> bool {
    ABOUT.contains(&arguments.name()) || output_options(arguments).is_some()
}

/// Judges a command by the files that are there.
pub(super) fn judge(arguments: &Arguments<'_>, cwd: &Path) -> Option<Finding> {
    if !is_about(arguments) || keeps(arguments) {
        return None;
    }
    let targets = targets(arguments, cwd);
    let lost = targets.iter().map(|(_, to)| to).find(|to| is_file(to)).cloned();
    let lost = lost.or_else(|| copied_over(arguments, &targets))?;
    Some(Finding {
        verdict: Verdict::Confirm,
        is_final: false,
        rule: "overwrite".to_owned(),
        reason: format!("`{}`: overwrites {}", arguments.name(), lost.display()),
        risk: Risk::High,
    })
}

/// Whether what is there stays, by what the options say.
fn keeps(arguments: &Arguments<'_>) -> bool {
    match arguments.name() {
        "tee" => arguments.has_option(&["-a", "--append"]),
        "ln" => !arguments.has_option(&["-f", "--force"]),
        "install" | "ginstall" => arguments.has_option(&["-d", "--directory"]),
        "cp" | "mv" => {
            arguments.has_option(&["-n", "--no-clobber"])
                && !arguments.has_option(&["-f", "--force", "--remove-destination"])
        }
        _ => false,
    }
}

/// What a command would write, each with what it would be made of.
fn targets(arguments: &Arguments<'_>, cwd: &Path) -> Vec<(PathBuf, PathBuf)> {
    let output = |word: &str| (cwd.to_owned(), cwd.join(word));
    if let Some(options) = output_options(arguments) {
        return arguments.values_of(options).map(output).collect();
    }
    let mut operands: Vec<&str> = arguments.operands().map(|operand| operand.word).collect();
    if arguments.name() == "tee" {
        return operands.into_iter().map(output).collect();
    }
    if arguments.name() == "uniq" {
        return operands.get(1).copied().map(output).into_iter().collect();
    }
    let directory = arguments.values_of(&["-t", "--target-directory"]).next();
    let target = match directory {
        Some(directory) => cwd.join(directory),
        None if operands.len() > 1 => cwd.join(operands.pop().unwrap_or_default()),
        // `ln -f a/b` makes `b`.
        None => cwd.to_owned(),
    };
    let whole = directory.is_none() && (arguments.has_option(&["-T", "--no-target-directory"]) || !target.is_dir());
    let into = |source: &str| match Path::new(source).file_name() {
        _ if whole => target.clone(),
        // Of `a/.` and `..` what is in them is copied.
        Some(name) if !source.trim_end_matches('/').ends_with("/.") => target.join(name),
        _ => target.clone(),
    };
    operands.iter().map(|source| (cwd.join(source), into(source))).collect()
}

/// The most entries of copied directories that are compared with what is there.
const COMPARED: usize = 20_000;

/// How deep they are compared.
const DEEPEST: usize = 64;

/// A file that a copy of directories would write over, or the directory in which there are too many, or too deep, to say.
fn copied_over(arguments: &Arguments<'_>, targets: &[(PathBuf, PathBuf)]) -> Option<PathBuf> {
    let recursive = ["-r", "-R", "-a", "--recursive", "--archive"];
    if arguments.name() != "cp" || !arguments.has_option(&recursive) {
        return None;
    }
    let mut left = COMPARED;
    targets.iter().find_map(|(from, to)| lost_below(from, to, DEEPEST, &mut left))
}

fn lost_below(from: &Path, to: &Path, deep: usize, left: &mut usize) -> Option<PathBuf> {
    if !to.is_dir() {
        return None;
    }
    if deep == 0 {
        return Some(to.to_owned());
    }
    for entry in std::fs::read_dir(from).ok()?.flatten() {
        let Some(fewer) = left.checked_sub(1) else { return Some(to.to_owned()) };
        *left = fewer;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if is_file(&to) {
            return Some(to);
        }
        if let Some(lost) = lost_below(&from, &to, deep - 1, left) {
            return Some(lost);
        }
    }
    None
}

/// A file with something in it to lose: not a directory, and no device.
fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file())
        || std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_written_is_found_however_it_is_spelled() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("f"), "x").unwrap();
        let asks = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            judge(&Arguments::read(&words), place.path()).is_some()
        };
        for line in [
            "sort -o f a",
            "sort -of a",
            "sort a --outp=f",
            "curl -sSLo f http://x",
            "curl --output f x",
            "wget -qO f x",
            "wget --output-document=f x",
            "uniq -c a f",
            "shuf -n 3 -o f a",
            "iconv -f latin1 -o f a",
            "cp a f",
            "install -m 644 a f",
            "tee f",
        ] {
            assert!(asks(line), "{line}");
            assert!(!asks(&line.replace('f', "new")), "{line} with a file that is not there");
        }
        for line in ["sort f", "uniq f", "curl -d f http://x", "tee -a f", "cp -n a f", "shuf f"] {
            assert!(!asks(line), "{line}");
        }
    }

    #[test]
    fn a_copy_of_directories_is_asked_about_where_a_file_below_is_there() {
        let place = tempfile::tempdir().unwrap();
        for path in ["a/deep/f", "a/g", "with/a/deep/f", "flat/g", "none/a/deep/other", "flat/h"] {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let asked = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            judge(&Arguments::read(&words), place.path()).is_some()
        };
        for line in [
            "cp -r a with",
            "cp -a a with/",
            "cp --recursive a with",
            "cp -R -t with a",
            "cp -r a/. flat",
            "cp -r a/./ flat",
            "cp -rT a flat",
            "cp a/g flat",
        ] {
            assert!(asked(line), "{line}");
        }
        for line in ["cp -r a none", "cp -r a new", "cp -r a flat", "cp -rn a with", "cp -r a/. none", "cp -rT a new"] {
            assert!(!asked(line), "{line}");
        }
    }

    #[test]
    fn a_copy_into_itself_ends() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("..", place.path().join("a/up")).unwrap();
        let words = ["cp", "-r", "a", "."].map(str::to_owned);
        assert!(judge(&Arguments::read(&words), place.path()).is_some());
    }
}
