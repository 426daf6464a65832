//! A repository's `config` as a run left it: taken over where all that changed is plain settings that name no program and lead git
//! nowhere else. Whatever is not understood to the letter is not taken over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The settings of a file: each key with its values, in their order.
type Settings = BTreeMap<String, Vec<String>>;

/// Keys of one value that a run may change.
const PLAIN: [&str; 8] = [
    "fetch.prune",
    "merge.conflictstyle",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "user.email",
    "user.name",
];

/// Keys of what git writes itself when it makes a repository. Of most the value is true or false.
const BEGUN: [&str; 8] = [
    "core.bare",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.symlinks",
    "extensions.objectformat",
];

/// Why a run may not make `after` of `before`, if it may not.
pub(super) fn wrong_in_change(before: &str, after: &str) -> Option<String> {
    let (Some(before), Some(after)) = (read(before), read(after)) else { return Some(NOT_PLAIN.to_owned()) };
    let none = Vec::new();
    let wrong = |key: &&String| {
        let values = after.get(*key).unwrap_or(&none);
        let changed = before.get(*key) != after.get(*key);
        changed && !(is_known(key) && values.iter().all(|value| allowed(key, value)))
    };
    before.keys().chain(after.keys()).find(wrong).map(|key| not_for_runs(key))
}

/// Why a repository that a run made may not have these settings, if it may not. `trees` are those in which everything that runs later
/// is guarded: from there it may have been cloned.
pub(super) fn wrong_in_new(text: &str, trees: &[PathBuf]) -> Option<String> {
    let Some(settings) = read(text) else { return Some(NOT_PLAIN.to_owned()) };
    let fine = |key: &str, value: &str| {
        let begun = BEGUN.contains(&key) && ["true", "false", "0", "1", "sha1", "sha256"].contains(&value);
        let is_origin = matches!(parts(key), ("remote", name, "url") if is_word(name));
        begun || allowed(key, value) || (is_origin && lies_in(value.strip_prefix("file://").unwrap_or(value), trees))
    };
    settings.iter().find(|(key, values)| !values.iter().all(|value| fine(key, value))).map(|(key, _)| not_for_runs(key))
}

const NOT_PLAIN: &str = "has lines that are not plain settings";

fn not_for_runs(key: &str) -> String {
    format!("{key} is not a setting that a run may make, or not with this value")
}

/// Reads a file, strictly: no value over several lines, no key beside its section's name.
fn read(text: &str) -> Option<Settings> {
    let (mut settings, mut section) = (Settings::new(), None);
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.ends_with('\\') || line.contains(|c: char| c.is_control() && c != '\t') {
            return None;
        }
        if let Some(head) = line.strip_prefix('[') {
            section = Some(section_of(head.strip_suffix(']')?)?);
            continue;
        }
        let (key, value) = line.split_once('=')?;
        let key = key.trim();
        let plain = key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        let section = section.as_ref().filter(|_| plain && !key.is_empty())?;
        settings.entry(format!("{section}.{}", key.to_ascii_lowercase())).or_default().push(value.trim().to_owned());
    }
    Some(settings)
}

/// `remote "origin"` as `remote.origin`.
fn section_of(head: &str) -> Option<String> {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    match head.split_once(' ') {
        None => is_name(head).then(|| head.to_ascii_lowercase()),
        Some((name, below)) => {
            let below = below.trim().strip_prefix('"')?.strip_suffix('"')?;
            let plain = is_name(name) && !below.contains(['"', '\\', ']', '[']);
            plain.then(|| format!("{}.{below}", name.to_ascii_lowercase()))
        }
    }
}

/// The section, what is named below it, and the key.
fn parts(key: &str) -> (&str, &str, &str) {
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    let (below, last) = rest.rsplit_once('.').unwrap_or(("", rest));
    (section, below, last)
}

/// Whether a run may set or take away a setting.
fn is_known(key: &str) -> bool {
    let (section, below, last) = parts(key);
    let named = match section {
        "branch" => ["remote", "merge", "rebase", "description"].contains(&last),
        "remote" => ["url", "pushurl", "fetch", "prune", "tagopt"].contains(&last),
        _ => return PLAIN.contains(&key),
    };
    named && !below.is_empty() && is_word(below)
}

/// Whether a run may give a setting this value.
fn allowed(key: &str, value: &str) -> bool {
    if !is_known(key) || value.contains(['"', '\\', '#', ';']) {
        return false;
    }
    if value.starts_with('-') {
        return parts(key).2 == "tagopt" && ["--tags", "--no-tags"].contains(&value);
    }
    match (parts(key).0, parts(key).2) {
        ("remote", "url" | "pushurl") => is_address(value),
        ("remote", "fetch") => {
            value.trim_start_matches('+').split(':').all(|side| side.starts_with("refs/") && is_word(side))
        }
        ("branch", "remote" | "merge") => is_word(value),
        ("remote", "tagopt") => value.is_empty(),
        _ => true,
    }
}

/// A name without anything that a path, an address or an option would begin with.
fn is_word(word: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"._/*-".contains(&c);
    !word.is_empty() && !word.starts_with(['-', '/']) && !word.contains("..") && word.bytes().all(plain)
}

/// Whether it is the plain path, or file address, of a directory in one of these trees, through no link.
fn lies_in(value: &str, trees: &[PathBuf]) -> bool {
    let plain = value.bytes().all(|c| c.is_ascii_alphanumeric() || b"._/+-".contains(&c));
    let path = Path::new(value);
    plain && trees.iter().any(|tree| path.starts_with(tree)) && path.canonicalize().is_ok_and(|real| real == path)
}

/// An address that git reaches over https or ssh: no path of this machine, and no program that would be run to get there.
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

    fn with(lines: &str) -> bool {
        wrong_in_change(BEFORE, &format!("{BEFORE}{lines}")).is_none()
    }

    #[test]
    fn plain_settings_are_taken_over() {
        for lines in [
            "",
            "# a comment\n",
            "[user]\n\tname = A B\n\temail = a@b\n",
            "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n",
            "[remote \"up\"]\n\turl = https://example.org/a.git\n\tfetch = +refs/heads/*:refs/remotes/up/*\n",
            "[remote \"up\"]\n\turl = git@example.org:a/b.git\n",
            "[remote \"up\"]\n\turl = ssh://git@example.org:22/a.git\n",
            "[pull]\n\trebase = true\n",
        ] {
            assert!(with(lines), "{lines}");
        }
        assert_eq!(wrong_in_change(BEFORE, "[core]\n\tbare = false\n"), None, "a remote was removed");
        let odd = "[core]\n\tx = \"a b\" ; c\n";
        assert_eq!(wrong_in_change(odd, &format!("{odd}[user]\n\tname = a\n")), None, "what is odd was there before");
    }

    #[test]
    fn what_names_a_program_or_leads_elsewhere_is_not() {
        for lines in [
            "[core]\n\tfsmonitor = x\n",
            "[core]\n\thooksPath = x\n",
            "[CORE]\n\tFsMonitor = x\n",
            "[core] fsmonitor = x\n",
            "[core]\n\tbare = true\n",
            "[core]\n\tfsmonitor\n",
            "[user]\n\tname = a\\\n[core]\n",
            "[include]\n\tpath = x\n",
            "[includeIf \"gitdir:/\"]\n\tpath = x\n",
            "[alias]\n\tx = !x\n",
            "[filter \"x\"]\n\tclean = x\n",
            "[remote \"up\"]\n\turl = ext::sh -c x\n",
            "[remote \"up\"]\n\turl = /tmp/evil\n",
            "[remote \"up\"]\n\turl = file:///tmp/evil\n",
            "[remote \"up\"]\n\turl = -oProxyCommand=x\n",
            "[remote \"up\"]\n\turl = ssh://-oProxyCommand=x/a\n",
            "[remote \"up\"]\n\turl = git@-oProxyCommand=x:a\n",
            "[remote \"up\"]\n\turl = \"https://example.org\"\n",
            "[remote \"up\"]\n\tuploadpack = x\n",
            "[remote \"up\"]\n\tvcs = x\n",
            "[remote \"a\\\"]\n[core]\n\tb\"]\n\turl = https://e.org\n",
            "[branch \"main\"]\n\tremote = /tmp/evil\n",
            "[branch \"main\"]\n\tmergeOptions = x\n",
            "[url \"ext::x\"]\n\tinsteadOf = https://\n",
            "[diff]\n\texternal = x\n",
            "[user]\n\tname = a\rb\n",
        ] {
            assert!(!with(lines), "{lines}");
        }
        assert!(wrong_in_change(BEFORE, "").is_some_and(|why| why.starts_with("core.bare ")), "core.bare was removed");
    }

    #[test]
    fn a_new_repository_has_what_git_writes_and_an_origin_in_a_guarded_tree() {
        const CORE: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n";
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().canonicalize().unwrap();
        std::fs::create_dir(tree.join("a")).unwrap();
        std::os::unix::fs::symlink("/", tree.join("out")).unwrap();
        let with = |text: &str| {
            let text = text.replace("TREE", tree.to_str().unwrap());
            wrong_in_new(&format!("{CORE}{text}"), std::slice::from_ref(&tree)).is_none()
        };
        let origin = "[remote \"origin\"]\n\turl = TREE/a\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n";
        for text in [
            "",
            origin,
            &origin.replace("TREE", "file://TREE"),
            "[remote \"up\"]\n\ttagOpt = --no-tags\n",
            "[extensions]\n\tobjectformat = sha256\n",
            "[user]\n\tname = a\n",
        ] {
            assert!(with(text), "{text}");
        }
        for text in [
            "\tfsmonitor = true\n",
            "\tbare = x\n",
            "\tworktree = TREE\n",
            "\thooksPath = TREE\n",
            "\tsshCommand = x\n",
            "\tgitProxy = x\n",
            "\tattributesFile = x\n",
            "[remote \"origin\"]\n\turl = /tmp\n",
            "[remote \"origin\"]\n\turl = TREE/../x\n",
            "[remote \"origin\"]\n\turl = TREE/out/tmp\n",
            "[remote \"origin\"]\n\turl = TREE/gone\n",
            "[remote \"origin\"]\n\turl = ../a\n",
            "[remote \"origin\"]\n\tpushurl = TREE/a\n",
            "[remote \"origin\"]\n\treceivepack = x\n",
            "[remote \"origin\"]\n\ttagOpt = --upload-pack=x\n",
            "[remote \"origin\"]\n\turl = file://host/TREE/a\n",
            "[remote \"origin\"]\n\tproxy = x\n",
            "[extensions]\n\tworktreeConfig = true\n",
            "[extensions]\n\tpartialClone = origin\n",
            "[gpg]\n\tprogram = x\n",
            "[merge \"x\"]\n\tdriver = x\n",
            "[diff \"x\"]\n\ttextconv = x\n",
            "[credential]\n\thelper = x\n",
            "[http]\n\tproxy = x\n",
            "[pager]\n\tlog = x\n",
            "[interactive]\n\tdiffFilter = x\n",
            "[protocol \"ext\"]\n\tallow = always\n",
            "[submodule \"x\"]\n\tupdate = !x\n",
            "[sequence]\n\teditor = x\n",
            "[hook \"x\"]\n\tcommand = x\n",
        ] {
            assert!(!with(text), "{text}");
        }
    }
}
