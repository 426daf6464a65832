//! The `config` of a repository: the programs and paths that it names, and the table of settings that are harmless in
//! a repository that a run created.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{GIT, has};
use cp_common::glob::name_matches;

/// The setting among those of the owner that starts a program.
const STARTS: &str = "log.showsignature";
/// The mark that git skips at the beginning of a file.
const BYTE_ORDER: char = '\u{feff}';

/// The settings of a file, in order.
pub(super) struct Settings {
    entries: Vec<(String, String)>,
    /// True if every line is a single setting, a section or a comment without quotes and escapes, so that all parsers
    /// agree on it.
    is_plain: bool,
}

impl Settings {
    /// Parses a file as git does.
    pub(super) fn read(text: &str) -> Self {
        let (mut settings, mut section) = (Self { entries: Vec::new(), is_plain: true }, String::new());
        let is_odd = |c: char| c == BYTE_ORDER || c.is_control() && !matches!(c, '\t' | '\n');
        settings.is_plain = !text.replace("\r\n", "\n").contains(is_odd) && !text.contains("\\\n");
        let mut lines = text.strip_prefix(BYTE_ORDER).unwrap_or(text).lines();
        'lines: while let Some(line) = lines.next() {
            let mut line = line.trim_start().to_owned();
            while line.ends_with('\\') && !line.starts_with(['#', ';']) {
                line.pop();
                line.push_str(lines.next().unwrap_or_default());
            }
            let mut line = line.trim();
            while let Some(header) = line.strip_prefix('[') {
                // Within quotes a bracket is part of the name.
                let quoted = header.find('"').filter(|at| header.find(']').is_none_or(|end| *at < end));
                let end = quoted.map_or_else(|| header.find(']'), |_| header.find("\"]").map(|at| at + 1));
                let Some(end) = end else {
                    settings.is_plain = false;
                    continue 'lines;
                };
                let (name, rest) = (&header[..end], &header[end + 1..]);
                settings.is_plain &= rest.is_empty();
                let plain = section_of(name);
                settings.is_plain &= plain.is_some();
                let first = || name.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
                section = plain.unwrap_or_else(first);
                line = rest.trim();
            }
            if !line.is_empty() && !line.starts_with(['#', ';']) {
                settings.entry(&section, line);
            }
        }
        settings
    }

    fn entry(&mut self, section: &str, line: &str) {
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let (key, value) = (key.trim(), value.trim());
        self.is_plain &=
            line.contains('=') && !section.is_empty() && is_name(key) && !value.contains(['"', '\\', '#', ';']);
        self.entries.push((format!("{section}.{}", key.to_ascii_lowercase()), unquoted(value)));
    }

    /// The values of a key in a section and all of its subsections.
    pub(super) fn values<'a>(&'a self, section: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
        let is_it =
            move |(name, _): &&(String, String)| matches!(parts(name), (of, _, last) if of == section && last == key);
        self.entries.iter().filter(is_it).map(|(_, value)| value.as_str())
    }
}

/// The addresses of a remote, or of everything that `git push` without a remote may mean. `None` if the settings
/// rewrite addresses or include other files.
pub(crate) fn addresses(text: &str, remote: Option<&str>) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for (key, value) in Settings::read(text).entries {
        match parts(&key) {
            ("include" | "includeif" | "url", ..) => return None,
            ("remote", name, "url" | "pushurl") if remote.is_none_or(|remote| remote == name) => found.push(value),
            ("remote", _, "pushdefault") | ("branch", _, "remote" | "pushremote")
                if remote.is_none() && value.contains(['/', ':']) =>
            {
                found.push(value);
            }
            _ => {}
        }
    }
    Some(found)
}

/// A value without its quotes, escapes and comment.
fn unquoted(value: &str) -> String {
    let (mut text, mut quoted, mut characters) = (String::new(), false, value.chars());
    while let Some(character) = characters.next() {
        match character {
            '"' => quoted = !quoted,
            '\\' => text.extend(characters.next()),
            '#' | ';' if !quoted => break,
            other => text.push(other),
        }
    }
    text.trim().to_owned()
}

/// The reason why a repository that a run created may not have these settings, if any. `trees` are the trees that are
/// searched for guarded names: the repository may have been cloned from there.
pub(super) fn fault_in_new_settings(text: &str, trees: &[PathBuf]) -> Option<String> {
    let is_in_trees = |path: &str| {
        let real = directory(Path::new("/"), path);
        real.is_some_and(|real| real == Path::new(path) && trees.iter().any(|tree| real.starts_with(tree)))
    };
    fault(&Settings::read(text), |key, value| {
        let initial = has(&GIT.initial, key) && ["true", "false", "0", "1", "2", "sha1", "sha256"].contains(&value);
        let is_origin = matches!(parts(key), ("remote", name, "url") if is_word(name));
        initial || is_harmless(key, value) || is_origin && is_in_trees(value.strip_prefix("file://").unwrap_or(value))
    })
}

/// The reason why the settings that another process wrote at `path` are not harmless, if any: its own settings, such as
/// programs, may not change.
pub(super) fn fault_in_changed_settings(before: &str, after: &str, path: &Path) -> Option<String> {
    let (before, after) = (Settings::read(before), Settings::read(after));
    let gone = before.entries.iter().find(|entry| !after.entries.contains(entry) && kind_of(&entry.0).is_none());
    if let Some((key, _)) = gone {
        return Some(format!("{key} was changed"));
    }
    // A directory outside of the project, of the same owner, as seen from its working tree.
    let is_of_owner = |value: &str| {
        let top = path.ancestors().find(|above| above.ends_with(".git")).and_then(Path::parent)?.canonicalize().ok()?;
        let real = directory(&top, value).filter(|real| !real.starts_with(&top))?;
        (real.metadata().ok()?.uid() == top.metadata().ok()?.uid()).then_some(())
    };
    fault(&after, |key, value| {
        let is_url = matches!(parts(key), ("remote", name, "url" | "pushurl") if is_word(name));
        before.entries.iter().any(|entry| (entry.0.as_str(), entry.1.as_str()) == (key, value))
            || is_harmless(key, value)
            || is_url && is_of_owner(value).is_some()
    })
}

/// The directory that a plain path leads to.
fn directory(base: &Path, value: &str) -> Option<PathBuf> {
    let plain = value.bytes().all(|c| c.is_ascii_alphanumeric() || b"._/+-".contains(&c));
    base.join(value).canonicalize().ok().filter(|real| plain && real.is_dir())
}

fn fault(settings: &Settings, is_fine: impl Fn(&str, &str) -> bool) -> Option<String> {
    if !settings.is_plain {
        return Some("has lines that are not plain settings".to_owned());
    }
    let (key, _) = settings.entries.iter().find(|(key, value)| !is_fine(key, value))?;
    Some(format!("{key} is not a setting that is known to be harmless, or not with this value"))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

/// Normalizes `remote "origin"` to `remote.origin`, if it has no escapes.
fn section_of(head: &str) -> Option<String> {
    match head.split_once(' ') {
        None => is_name(head).then(|| head.to_ascii_lowercase()),
        Some((name, below)) => {
            let below = below.trim().strip_prefix('"')?.strip_suffix('"')?;
            let plain = is_name(name) && !below.contains(['"', '\\', ']', '[']);
            plain.then(|| format!("{}.{below}", name.to_ascii_lowercase()))
        }
    }
}

/// The section, the subsection and the key.
pub(crate) fn parts(key: &str) -> (&str, &str, &str) {
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    let (below, last) = rest.rsplit_once('.').unwrap_or(("", rest));
    (section, below, last)
}

/// True if a setting passes from the owner to a run: it starts no program and holds no secret.
pub(crate) fn passes_from_owner(key: &str) -> bool {
    let known = match parts(key) {
        (_, "", _) => key.to_owned(),
        (section, _, last) => format!("{section}.*.{last}"),
    };
    let dots = |text: &str| text.bytes().filter(|byte| *byte == b'.').count();
    let matches = |pattern: &String| dots(pattern) == dots(&known) && name_matches(pattern, &known);
    starts_no_program(key) || GIT.owner_alone.iter().any(matches)
}

/// True if a setting starts no program and holds no secret, of whomever it is.
fn starts_no_program(key: &str) -> bool {
    let (section, below, _) = parts(key);
    // The address before its replacement may hold a password.
    let has_password = below.split_once("://").is_some_and(|(scheme, rest)| scheme != "ssh" && rest.contains('@'));
    (below.is_empty() || section == "color" || section == "url" && !has_password)
        && key != STARTS
        && GIT.owner.iter().any(|pattern| name_matches(pattern, key))
}

/// The kind of the harmless values of a key; `None` if it is in neither table. An address that stands for another one
/// is harmless only outside of a repository.
fn kind_of(key: &str) -> Option<&'static str> {
    let known = match parts(key) {
        (_, "", _) => key.to_owned(),
        (section, below, last) => format!("{section}.{}.{last}", if is_word(below) { "*" } else { below }),
    };
    let is_of_owner = || !key.starts_with("url.") && starts_no_program(key);
    GIT.harmless.get(&known).map(String::as_str).or_else(|| is_of_owner().then_some("any"))
}

/// True if a key is in the table and this value is harmless.
fn is_harmless(key: &str, value: &str) -> bool {
    kind_of(key).is_some_and(|kind| match kind {
        "address" => is_address(value),
        "references" => value.trim_start_matches('+').split(':').all(|it| it.starts_with("refs/") && is_word(it)),
        "tags" => ["", "--tags", "--no-tags"].contains(&value),
        "word" => is_word(value),
        _ => !value.starts_with('-'),
    })
}

/// True for a name that cannot be a path, an address or an option.
fn is_word(word: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._/*-".contains(&c);
    !word.is_empty() && !word.starts_with(['-', '/']) && !word.contains("..") && word.bytes().all(plain)
}

/// True for an address that git reaches over https or ssh. A local path or a remote helper program is not one.
fn is_address(value: &str) -> bool {
    let plain = value.bytes().all(|c| c.is_ascii_alphanumeric() || b"._/~:@%+-".contains(&c));
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let by_scheme = ["https://", "ssh://"].iter().find_map(|scheme| value.strip_prefix(scheme));
    let by_ssh = || {
        let (user, rest) = value.split_once('@')?;
        let (host, path) = rest.split_once(':')?;
        let name = |text: &str| begins(text) && text.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c));
        (name(user) && name(host) && !path.starts_with([':', '-'])).then_some(())
    };
    plain && by_scheme.map_or_else(|| by_ssh().is_some(), |rest| begins(rest) && !rest.contains("@-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = /srv/a\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n";

    /// Checks the texts of a table of settings.
    fn check(table: &str, is_harmless: impl Fn(&str) -> bool) {
        let tables: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/git/settings.json")).unwrap();
        for (kind, expected) in [("harmless", true), ("harmful", false)] {
            for text in tables[table][kind].as_array().unwrap().iter().map(|text| text.as_str().unwrap()) {
                assert_eq!(is_harmless(text), expected, "{table}: {text}");
            }
        }
    }

    #[test]
    fn changed_settings_are_harmful_if_they_start_a_program_or_redirect_or_change() {
        let fault = |text: &str| fault_in_changed_settings(BEFORE, text, Path::new("/p/.git/config"));
        check("changed", |lines| fault(&format!("{BEFORE}{lines}")).is_none());
        assert!(fault("").is_some_and(|why| why.starts_with("core.bare ")), "core.bare was removed");
    }

    #[test]
    fn settings_paths_are_parsed_as_by_git() {
        let text = "[core] hooksPath = \"a b\" ; c\n[Include]\npath = x\\\ny\n# no \\\n[includeIf \"gitdir:/w]\"]\n\tpath = z # c\n";
        let settings = Settings::read(text);
        assert_eq!(settings.values("core", "hookspath").collect::<Vec<_>>(), ["a b"]);
        assert_eq!(settings.values("include", "path").collect::<Vec<_>>(), ["xy"]);
        assert_eq!(settings.values("includeif", "path").collect::<Vec<_>>(), ["z"]);
    }

    #[test]
    fn settings_of_new_repository_allow_initial_keys_and_searched_origin() {
        const CORE: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n";
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().canonicalize().unwrap();
        std::fs::create_dir(tree.join("a")).unwrap();
        std::os::unix::fs::symlink("/", tree.join("out")).unwrap();
        check("new", |text| {
            let text = text.replace("TREE", tree.to_str().unwrap());
            fault_in_new_settings(&format!("{CORE}{text}"), std::slice::from_ref(&tree)).is_none()
        });
    }
}
