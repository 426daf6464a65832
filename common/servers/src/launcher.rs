//! Programs that start a server, such as interpreters and fetchers of packages: what they start names the server.

use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::spec::{LONGEST_NAME, is_in_names};

#[derive(Deserialize)]
struct Starters {
    launcher: Vec<Starter>,
}

/// Programs that start another one, as `launchers.toml` describes them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Starter {
    names: Vec<String>,
    verbs: Vec<String>,
    named_by: Vec<String>,
    with_value: Vec<String>,
    of_project: Vec<String>,
    /// If they fetch packages, how to have one without a network.
    install: Option<String>,
}

static STARTERS: LazyLock<Starters> = LazyLock::new(|| {
    toml::from_str(include_str!("launchers.toml")).unwrap_or_else(|error| unreachable!("data of this program: {error}"))
});

/// What a command starts.
pub(crate) struct Started<'a> {
    /// The file, module, package or image.
    pub(crate) named: &'a str,
    /// The program of a package, if the command names both.
    pub(crate) program: Option<&'a str>,
    /// If the package would be fetched, how to have it without a network.
    pub(crate) install: Option<&'static str>,
}

/// What a command starts through another program, if it does.
pub(crate) fn started(argv: &[String]) -> Option<Started<'_>> {
    let (program, arguments) = argv.split_first()?;
    let called = Path::new(program).file_name()?.to_str()?;
    let bare = called.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
    let is_named = |starter: &&Starter| starter.names.iter().any(|name| [called, bare].contains(&name.as_str()));
    let starter = STARTERS.launcher.iter().find(is_named)?;
    let is_in = |list: &[String], word: &str| list.iter().any(|listed| listed == word);
    let (mut words, mut named, mut operand) = (arguments.iter().map(String::as_str), None, None);
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        if is_in(&starter.named_by, option) {
            named = named.or(value.or_else(|| words.next()));
            // What follows a module are its arguments.
            if starter.named_by == ["-m"] {
                break;
            }
        } else if is_in(&starter.with_value, word) {
            words.next();
        } else if !word.starts_with('-') && !is_in(&starter.verbs, word) {
            operand = Some(word);
            break;
        }
    }
    let program = named.and(operand);
    let is_of_project = arguments.first().is_some_and(|verb| is_in(&starter.of_project, verb))
        && !arguments.iter().any(|word| word == "--with");
    let install = starter.install.as_deref().filter(|_| !is_of_project);
    Some(Started { named: named.or(operand)?, program, install })
}

/// The name of a server that no option names: that of the file, module or package that its command starts, without a
/// version or an ending.
pub fn name_of(argv: &[String]) -> Option<String> {
    let named = started(argv).map_or_else(|| argv.first().map(String::as_str), |started| Some(started.named))?;
    let at = named.rfind('/').map_or(0, |slash| slash + 1);
    let last = named[at..].split(['@', ':']).find(|part| !part.is_empty())?;
    let stem = Path::new(last).file_stem()?.to_str()?;
    // Many servers have their program in a file of a common name.
    let above = || Path::new(named).parent()?.file_name()?.to_str().filter(|above| *above != "dist");
    let common = ["index", "main", "server", "cli", "__main__"].contains(&stem);
    let whole = above().filter(|_| common).map_or_else(|| stem.to_owned(), |above| format!("{above}-{stem}"));
    let name: String =
        whole.chars().map(|sign| if sign.is_ascii() && is_in_names(sign as u8) { sign } else { '-' }).collect();
    let name: String = name.trim_matches('-').chars().take(LONGEST_NAME).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn server_is_named_by_what_its_command_starts() {
        for (line, name) in [
            ("/opt/x/files", "files"),
            ("./srv.py", "srv"),
            ("/w/my server.v2.py", "my-server-v2"),
            ("node one.js", "one"),
            ("node --env-file .env dist/two.mjs --port 1", "two"),
            ("/usr/bin/node dist/index.js", "index"),
            ("node /w/notes/index.js", "notes-index"),
            ("python3 -m pkg.server", "pkg"),
            ("python3.12 -u srv.py", "srv"),
            ("npx -y @scope/name@1", "name"),
            ("npx --package=@scope/all name", "all"),
            ("npm exec -- @scope/name", "name"),
            ("uvx name@1.2", "name"),
            ("uvx --from git-pkg name", "git-pkg"),
            ("uv tool run name", "name"),
            ("docker run -i --rm -e KEY ghcr.example/org/image:1", "image"),
        ] {
            let argv: Vec<String> = if line.contains("my server") {
                vec![line.to_owned()]
            } else {
                line.split(' ').map(str::to_owned).collect()
            };
            assert_eq!(name_of(&argv).as_deref(), Some(name), "{line}");
        }
        assert_eq!(name_of(&["../".to_owned()]), None);
    }
}
