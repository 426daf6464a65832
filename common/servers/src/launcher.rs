//! Programs that start a server, such as interpreters and fetchers of packages: what they start names the server.

use std::path::Path;

use crate::spec::{LONGEST_NAME, is_in_names};

/// A program that starts another one, which an operand names.
struct Starter {
    /// Its name; digits and dots at the end of a name are a version.
    name: &'static str,
    /// The words before the operand.
    verbs: &'static [&'static str],
    /// Options with a value that names the package, or the module.
    named_by: &'static [&'static str],
    /// Other options with a value.
    with_value: &'static [&'static str],
    /// True if it fetches packages.
    fetches: bool,
}

const NPM: Starter = Starter {
    name: "npx",
    verbs: &["exec", "x", "dlx"],
    named_by: &["-p", "--package"],
    with_value: &["-c", "--call", "-w", "--workspace"],
    fetches: true,
};
const UV: Starter = Starter {
    name: "uvx",
    verbs: &["tool", "run"],
    named_by: &["--from", "--spec"],
    with_value: &["--with", "--python", "-p", "--directory", "--project", "--index", "--index-url", "--env-file"],
    fetches: true,
};
const NODE: Starter = Starter {
    name: "node",
    verbs: &["run"],
    named_by: &[],
    with_value: &["-r", "--require", "--import", "--loader", "--env-file"],
    fetches: false,
};
const PYTHON: Starter =
    Starter { name: "python", verbs: &[], named_by: &["-m"], with_value: &["-W", "-X"], fetches: false };
const DOCKER: Starter = Starter {
    name: "docker",
    verbs: &["run", "container"],
    named_by: &[],
    with_value: &[
        "-e",
        "--env",
        "--env-file",
        "-v",
        "--volume",
        "--mount",
        "--name",
        "--network",
        "-p",
        "--publish",
        "-u",
        "--user",
        "-w",
        "--workdir",
    ],
    fetches: false,
};

const STARTERS: [Starter; 17] = [
    NPM,
    Starter { name: "npm", ..NPM },
    Starter { name: "pnpm", ..NPM },
    Starter { name: "pnpx", ..NPM },
    Starter { name: "bunx", ..NPM },
    UV,
    Starter { name: "uv", ..UV },
    Starter { name: "pipx", ..UV },
    NODE,
    Starter { name: "bun", ..NODE },
    Starter { name: "deno", ..NODE },
    Starter { name: "ruby", ..NODE },
    Starter { name: "bash", ..PYTHON },
    Starter { name: "sh", ..PYTHON },
    PYTHON,
    DOCKER,
    Starter { name: "podman", ..DOCKER },
];

/// What a command starts.
pub(crate) struct Started<'a> {
    /// The file, module, package or image.
    pub(crate) named: &'a str,
    /// The program of a package, if the command names both.
    pub(crate) program: Option<&'a str>,
    /// True if the package would be fetched.
    pub(crate) is_fetched: bool,
}

/// What a command starts through another program, if it does.
pub(crate) fn started(argv: &[String]) -> Option<Started<'_>> {
    let (program, arguments) = argv.split_first()?;
    let called = Path::new(program).file_name()?.to_str()?;
    let bare = called.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
    let starter = STARTERS.iter().find(|starter| starter.name == called || starter.name == bare)?;
    let (mut words, mut named, mut operand) = (arguments.iter().map(String::as_str), None, None);
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        if starter.named_by.contains(&option) {
            named = named.or(value.or_else(|| words.next()));
            // What follows a module are its arguments.
            if starter.named_by == ["-m"] {
                break;
            }
        } else if starter.with_value.contains(&word) {
            words.next();
        } else if !word.starts_with('-') && !starter.verbs.contains(&word) {
            operand = Some(word);
            break;
        }
    }
    let program = named.and(operand);
    // `uv run` and `npm run` start what the project has.
    let is_fetched = starter.fetches && !is_of_project(called, arguments);
    Some(Started { named: named.or(operand)?, program, is_fetched })
}

/// True for a command that only starts what the project has.
fn is_of_project(called: &str, arguments: &[String]) -> bool {
    let verb = arguments.first().map(String::as_str).unwrap_or_default();
    matches!((called, verb), ("uv", "run") | ("npm" | "pnpm", "run" | "start"))
        && !arguments.iter().any(|word| word == "--with")
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
