//! How the options of known commands read, and which commands run another command or a script.

use super::options::{PLAIN, Syntax};
use crate::glob::name_matches;

/// What a command does with its operands, where that calls for a reading of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Plain,
    /// It runs what follows `before` operands.
    Wrapper {
        syntax: Syntax,
        before: usize,
        /// Options by which it takes its command as one string, or runs it in another directory.
        rewrites: &'static [&'static str],
    },
    /// Its first operand is a script.
    Interpreter {
        syntax: Syntax,
    },
    Sed,
}

impl Role {
    /// How such a command itself reads its arguments.
    pub(super) fn syntax(&self) -> Option<Syntax> {
        match self {
            Self::Plain => None,
            Self::Wrapper { syntax, .. } | Self::Interpreter { syntax } => Some(*syntax),
            Self::Sed => Some(SED),
        }
    }
}

pub(super) fn role_of(name: &str) -> Role {
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        let Wrapper { syntax, before, rewrites, .. } = *wrapper;
        return Role::Wrapper { syntax, before, rewrites };
    }
    if name == "sed" {
        return Role::Sed;
    }
    if INTERPRETERS.iter().any(|known| name_matches(known, name)) {
        return Role::Interpreter { syntax: of_interpreter(name) };
    }
    Role::Plain
}

/// The options of a command as rules look at them.
pub(super) fn syntax_of(name: &str) -> &'static Syntax {
    SYNTAX.iter().find(|(names, _)| names.contains(&name)).map_or(&PLAIN, |(_, syntax)| syntax)
}

fn of_interpreter(name: &str) -> Syntax {
    let takes = match name {
        name if name.starts_with("py") => "mWXQc",
        "node" | "nodejs" => "CrepI",
        "perl" => "IeEMmCDix",
        "ruby" => "CEFIKrTWxe",
        _ => "oO",
    };
    Syntax { takes, takes_long: &["--check", "--conditions", "--title"], stops: true, long_dash: false }
}

/// Commands whose options do not read like most.
const SYNTAX: [(&[&str], Syntax); 10] = [
    (
        &["git"],
        Syntax {
            takes: "cCm",
            takes_long: &["--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix", "--attr-source"],
            ..PLAIN
        },
    ),
    (
        &["find", "gcc", "g++", "cc", "c++", "clang", "clang++", "cpp", "openssl", "java"],
        Syntax { long_dash: true, ..PLAIN },
    ),
    (&["tar", "gtar", "bsdtar"], Syntax { takes: "fCIFgHLNTXbK", takes_long: &["--file", "--directory"], ..PLAIN }),
    (&["rsync"], Syntax { takes: "efTBM@", ..PLAIN }),
    (&["ssh", "scp", "sftp"], Syntax { takes: "oFJiSlcpBbDEeILmOQRWwPX", ..PLAIN }),
    (&["sort"], Syntax { takes: "kotST", ..PLAIN }),
    (&["make", "gmake"], Syntax { takes: "fCIoWE", ..PLAIN }),
    (&["man"], Syntax { takes: "PCHLMSersmRpET", ..PLAIN }),
    (&["zip"], Syntax { takes: "bntxi", takes_long: &["--unzip-command"], ..PLAIN }),
    (&["curl", "wget"], Syntax { takes: "KoOXdHuATeFUP", takes_long: &["--config", "--output"], ..PLAIN }),
];

const SED: Syntax = Syntax { takes: "efl", takes_long: &["--expression", "--file", "--line-length"], ..PLAIN };

#[derive(Clone, Copy)]
struct Wrapper {
    name: &'static str,
    syntax: Syntax,
    /// How many operands come before the command.
    before: usize,
    rewrites: &'static [&'static str],
}

const fn wrapper(
    name: &'static str,
    takes: &'static str,
    takes_long: &'static [&'static str],
    before: usize,
) -> Wrapper {
    Wrapper { name, syntax: Syntax { takes, takes_long, stops: true, long_dash: false }, before, rewrites: &[] }
}

/// Programs that run what follows them.
const WRAPPERS: [Wrapper; 13] = [
    Wrapper {
        rewrites: &["-S", "--split-string", "-C", "--chdir"],
        ..wrapper("env", "uCS", &["--unset", "--chdir", "--split-string"], 0)
    },
    wrapper("nice", "n", &["--adjustment"], 0),
    wrapper("ionice", "cnpPu", &["--class", "--classdata"], 0),
    wrapper("nohup", "", &[], 0),
    wrapper("setsid", "", &[], 0),
    wrapper("time", "fo", &["--format", "--output"], 0),
    wrapper("stdbuf", "ioe", &["--input", "--output", "--error"], 0),
    wrapper("timeout", "ks", &["--kill-after", "--signal"], 1),
    wrapper("taskset", "", &[], 1),
    Wrapper {
        rewrites: &["-c", "--command"],
        ..wrapper("flock", "wEc", &["--timeout", "--conflict-exit-code", "--command"], 1)
    },
    wrapper("xargs", "IadEeLlnPs", &["--arg-file", "--delimiter", "--max-args", "--max-procs", "--replace"], 0),
    wrapper("busybox", "", &[], 0),
    wrapper("toybox", "", &[], 0),
];

/// Programs whose first operand is a script.
const INTERPRETERS: [&str; 26] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "ash",
    "mksh",
    "python",
    "python2",
    "python3",
    "python3.*",
    "pypy",
    "pypy3",
    "perl",
    "perl5*",
    "ruby",
    "node",
    "nodejs",
    "php",
    "lua",
    "lua5*",
    "luajit",
    "tclsh",
    "Rscript",
    "expect",
];
