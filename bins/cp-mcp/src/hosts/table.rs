//! A table of a TOML text, put in at its end and taken out again: every other byte stays. Whoever edits so looks whether the text then
//! says what was meant.

use serde_json::Value;

/// The table that holds the servers.
const SERVERS: &str = "mcp_servers";

/// What a text says, or why it cannot be read.
pub(super) fn parsed(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|e| format!("not TOML: {}", e.message()))
}

/// The table of a server, without a line feed at its end. The texts and lists of JSON that a server has are those of TOML too.
pub(super) fn block(name: &str, entry: &Value, newline: &str) -> String {
    let members = entry.as_object().into_iter().flatten();
    members.fold(format!("[{SERVERS}.{name}]"), |text, (name, value)| format!("{text}{newline}{name} = {value}"))
}

/// The text with that table at its end, after a blank line. It ends with a line feed if the text did: by that its end is found again.
pub(super) fn appended(text: &str, name: &str, entry: &Value) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let block = block(name, entry, newline);
    match text {
        "" => block,
        text if text.ends_with('\n') => format!("{text}{newline}{block}{newline}"),
        text => format!("{text}{newline}{newline}{block}"),
    }
}

/// The text without that table and those below it; none if nothing else was ever in it.
pub(super) fn removed(text: &str, name: &str) -> Option<String> {
    let (own, below) = (format!("[{SERVERS}.{name}]"), format!("[{SERVERS}.{name}."));
    // The last one: what looks like it before may be a line of a text.
    let last = text.split_inclusive('\n').filter(|line| line.trim() == own).count();
    let (mut left, mut seen) = (Vec::<&str>::new(), 0);
    // What stands between the last line of a table and the next one is that one's.
    let mut between = Vec::new();
    let mut is_ours = false;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if bare.starts_with('[') {
            seen += usize::from(bare == own);
            is_ours = bare == own && seen == last || bare.starts_with(&below);
            left.append(&mut between);
            if is_ours && left.last().is_some_and(|line| line.trim().is_empty()) {
                left.pop();
            }
        }
        match (is_ours, bare.is_empty() || bare.starts_with('#')) {
            (true, true) => between.push(line),
            (true, false) => between.clear(),
            (false, _) => left.push(line),
        }
    }
    let is_open = between.is_empty() && is_ours && !text.ends_with('\n');
    left.append(&mut between);
    let rest = left.concat();
    match rest.strip_suffix('\n').filter(|_| is_open) {
        Some(rest) => Some(rest.strip_suffix('\r').unwrap_or(rest).to_owned()),
        None => (is_open || !rest.is_empty()).then_some(rest),
    }
}
