//! Read-only commands, and the tools that serve them: a tool call reads, lists and asks without a process.

/// What a command would be better asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// The operation that serves it.
    pub by: &'static str,
    /// A request that asks for it.
    pub request: &'static str,
}

const READ: Served = Served {
    by: "filesystem.read_file",
    request: r#"{"tool":"filesystem","operation":"read_file","arguments":{"path":"…"}}"#,
};
const LIST: Served = Served {
    by: "filesystem.list_directory",
    request: r#"{"tool":"filesystem","operation":"list_directory","arguments":{"path":"…"}}"#,
};
const ASK: Served =
    Served { by: "system.get_info", request: r#"{"tool":"system","operation":"get_info","arguments":{}}"# };

/// The operation that serves a command, if one does. A `find` that changes or runs something is not read-only.
pub(crate) fn served(argv: &[String]) -> Option<Served> {
    let name = argv.first()?.rsplit('/').next()?;
    match name {
        "cat" | "head" | "tail" | "less" | "more" | "tac" | "nl" => Some(READ),
        "ls" | "dir" | "vdir" => Some(LIST),
        "find" if !argv[1..].iter().any(|word| acts(word)) => Some(LIST),
        "uname" | "whoami" | "hostname" | "arch" | "nproc" => Some(ASK),
        _ => None,
    }
}

fn acts(word: &str) -> bool {
    ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"].contains(&word)
}
