//! `--header-file`: headers of each request that nobody else may see.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cp_common::{Error, Result};

/// What is shorter is a word that stands in many texts.
const SHORTEST: usize = 8;
/// What the transport writes itself.
const OURS: &str =
    " accept connection content-length content-type expect host last-event-id transfer-encoding upgrade ";

/// Headers and their secrets. It has no `Debug` and no `Display`.
#[derive(Clone, Default)]
pub(crate) struct Headers {
    /// Each by its name.
    pub(crate) list: Vec<(String, String)>,
    /// What of them is never shown, as text and as JSON spells it; the longest first.
    secrets: Vec<String>,
}

impl Headers {
    /// Those of a file, one `Name: value` a line.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::config(Error::from(e).message()).in_file(path))?;
        let mode = path.metadata()?.mode();
        if mode & 0o027 != 0 {
            let fix = format!("chmod 600 {}", path.display());
            return Err(Error::config("others can read or write the headers").in_file(path).hint(fix));
        }
        let mut headers = Self::default();
        let lines =
            (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in lines {
            let wrong = |what: &str| Error::config(what).at_line(number).in_file(path).hint("write Name: value");
            let (name, value) = line.split_once(':').ok_or_else(|| wrong("not a header"))?;
            let (name, value) = (name.trim_end(), value.trim());
            if !is_token(name) || value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
                return Err(wrong("not a header"));
            }
            let lower = name.to_ascii_lowercase();
            if OURS.contains(&format!(" {lower} ")) || lower.starts_with("mcp-") {
                return Err(wrong(&format!("the header {name} is written by the connection itself")));
            }
            headers.keep(value);
            headers.list.push((name.to_owned(), value.to_owned()));
        }
        headers.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Ok(headers)
    }

    /// The value and each of its words is a secret.
    fn keep(&mut self, value: &str) {
        for secret in value.split(' ').chain([value]).filter(|secret| secret.len() >= SHORTEST) {
            let spelled = serde_json::Value::from(secret).to_string();
            self.secrets.extend([secret.to_owned(), spelled[1..spelled.len() - 1].to_owned()]);
        }
    }

    /// A text without the secrets: servers are known to repeat them in their errors.
    pub(crate) fn scrub(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[REDACTED]"))
    }
}

/// Whether a header can have this name.
pub(super) fn is_token(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_sign)
}

#[cfg(test)]
mod tests {
    use cp_testkit::Place;

    use super::*;

    #[test]
    fn a_file_is_read_and_its_values_are_taken_out_of_texts() {
        let place = Place::new();
        let file = |text: &str| place.work.write("headers", text);
        let private = |text: &str| {
            let path = file(text);
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            Headers::of_file(&path)
        };
        let headers = private("# mine\n\nAuthorization: Bearer tok\"en-12345\nX-Team:a\n").unwrap();
        assert_eq!(headers.list[1], ("X-Team".to_owned(), "a".to_owned()));
        let scrubbed = headers.scrub(r#"Bearer tok"en-12345, {"a":"tok\"en-12345"}, a Bearer"#);
        assert_eq!(scrubbed, r#"[REDACTED], {"a":"[REDACTED]"}, a Bearer"#);
        for wrong in ["secret-secret", ": x", "A B: x", "A: x\u{7f}", "Host: x", "Mcp-Session-Id: x"] {
            let error = private(wrong).err().unwrap();
            assert!(error.message().contains("line 1") && !error.message().contains("secret"), "{}", error.message());
        }
        for (mode, is_fine) in [(0o600, true), (0o400, true), (0o640, true), (0o604, false), (0o620, false)] {
            let path = file("A: b");
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(Headers::of_file(&path).is_ok(), is_fine, "{mode:o}");
        }
    }
}
