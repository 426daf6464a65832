//! Commands that write over a file: it is asked for where there is one.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Risk};
use crate::arguments::Arguments;
use crate::policy::Verdict;

const ABOUT: [&str; 7] = ["cp", "mv", "ln", "tee", "install", "ginstall", "uniq"];

/// Programs that write where an option says.
const OUTPUTS: [(&str, &[&str]); 5] = [
    ("curl", &["-o", "--output"]),
    ("iconv", &["-o", "--output"]),
    ("shuf", &["-o", "--output"]),
    ("sort", &["-o", "--output"]),
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
    let lost = targets(arguments, cwd).into_iter().find(|path| is_file(path))?;
    Some(Finding {
        verdict: Verdict::Confirm,
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

/// The files that a command would write.
fn targets(arguments: &Arguments<'_>, cwd: &Path) -> Vec<PathBuf> {
    if let Some(options) = output_options(arguments) {
        return arguments.values_of(options).map(|word| cwd.join(word)).collect();
    }
    let mut operands: Vec<&str> = arguments.operands().map(|operand| operand.word).collect();
    if arguments.name() == "tee" {
        return operands.into_iter().map(|word| cwd.join(word)).collect();
    }
    if arguments.name() == "uniq" {
        return operands.get(1).map(|word| cwd.join(word)).into_iter().collect();
    }
    let directory = arguments.values_of(&["-t", "--target-directory"]).next();
    let target = match directory {
        Some(directory) => cwd.join(directory),
        None if operands.len() > 1 => cwd.join(operands.pop().unwrap_or_default()),
        // `ln -f a/b` makes `b`.
        None => cwd.to_owned(),
    };
    if directory.is_none() && (arguments.has_option(&["-T", "--no-target-directory"]) || !target.is_dir()) {
        return vec![target];
    }
    operands.iter().filter_map(|source| Some(target.join(Path::new(source).file_name()?))).collect()
}

/// A file with something in it to lose: not a directory, and no device.
fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file())
        || std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_found_however_it_is_spelled() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("f"), "x").unwrap();
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
}
