//! Governed prompts: registered texts whose bytes are what the registry says. Anything else is a failure, never a fallback.

use std::path::{Path, PathBuf};

use cp_common::home::Home;
use cp_common::keys::hex;
use cp_common::spelling::nearest;
use cp_common::{Code, Error, Result};
use sha2::{Digest as _, Sha256};

use crate::registry::{Row, Table};

/// The registered prompts of a home.
pub struct Prompts {
    registry: PathBuf,
    texts: PathBuf,
    table: Table,
}

impl Prompts {
    /// Reads the registry, `registries/prompts_registry.csv`.
    pub fn load(home: &Home) -> Result<Self> {
        let registry = home.path("registries/prompts_registry.csv");
        let table = Table::parse(&read(&registry)?);
        Ok(Self { registry, texts: home.path("governed_prompts"), table })
    }

    /// The file of a prompt.
    pub fn file(&self, id: &str) -> PathBuf {
        self.texts.join(format!("{id}.md"))
    }

    /// The text of an active prompt, as it was registered. Fails when it is not registered, not active, or has been changed.
    pub fn text(&self, id: &str) -> Result<String> {
        let Some(row) = self.table.rows().find(|row| row.get("prompt_id") == id) else { return Err(self.unknown(id)) };
        if !is_id(id) {
            return Err(Error::validation(format!("`{id}` is not a valid prompt id: PRM-<DOMAIN>-<SEQ>")));
        }
        let status = row.get("status");
        if !is_active(row) {
            return Err(Error::new(Code::Forbidden, format!("the prompt `{id}` is {status}, not active"))
                .with("status", status));
        }
        let file = self.file(id);
        let text = read(&file)?;
        let found = hash_of(&text);
        if !is_hash(row.get("hash"), &found) {
            return Err(Error::new(Code::Integrity, "its bytes are not those that were registered")
                .in_file(&file)
                .with("registered", row.get("hash"))
                .with("found", found)
                .hint("register the new hash, or restore the file"));
        }
        Ok(text)
    }

    /// Whether this is the text of a prompt that is active.
    pub fn has(&self, text: &str) -> bool {
        let found = hash_of(text);
        self.table.rows().any(|row| is_active(row) && is_hash(row.get("hash"), &found))
    }

    fn unknown(&self, id: &str) -> Error {
        let error = Error::not_found(format!("no governed prompt `{id}` is registered")).with("prompt_id", id);
        let known: Vec<String> = self.table.rows().map(|row| row.get("prompt_id").to_owned()).collect();
        match nearest(id, known.iter().map(String::as_str)) {
            Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("register it in {}", self.registry.display())),
        }
    }
}

/// Whether a name can be that of a prompt's file and nothing more.
fn is_id(id: &str) -> bool {
    id.starts_with("PRM-") && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn is_active(row: Row<'_>) -> bool {
    row.get("status") == "active"
}

fn hash_of(text: &str) -> String {
    format!("sha256:{}", hex(&Sha256::digest(text)))
}

fn is_hash(registered: &str, found: &str) -> bool {
    registered == found || found.strip_prefix("sha256:") == Some(registered)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such file").in_file(file),
        std::io::ErrorKind::InvalidData => Error::validation("the text is not UTF-8").in_file(file),
        _ => Error::io("reading", e).in_file(file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_with(rows: &str, text: &str) -> (tempfile::TempDir, Home) {
        let place = tempfile::tempdir().unwrap();
        let home = Home::find(Some(place.path())).unwrap();
        std::fs::create_dir_all(home.path("registries")).unwrap();
        std::fs::create_dir_all(home.path("governed_prompts")).unwrap();
        std::fs::write(home.path("registries/prompts_registry.csv"), format!("prompt_id,title,status,hash\n{rows}"))
            .unwrap();
        std::fs::write(home.path("governed_prompts/PRM-A-1.md"), text).unwrap();
        (place, home)
    }

    #[test]
    fn only_an_active_prompt_with_the_registered_bytes_is_given() {
        let row = |status: &str| format!("PRM-A-1,\"A, in\ntwo lines\",{status},{}\n", hash_of("Be brief.\n"));
        let code = |found: Result<String>| found.unwrap_err().code();
        let (_place, home) = home_with(&row("active"), "Be brief.\n");
        let prompts = Prompts::load(&home).unwrap();
        assert_eq!(prompts.text("PRM-A-1").unwrap(), "Be brief.\n");
        assert!(prompts.has("Be brief.\n") && !prompts.has("Be long.\n"));
        assert_eq!(prompts.text("PRM-A-2").unwrap_err().details()["nearest"], "PRM-A-1");
        let (_place, home) = home_with(&row("retired"), "Be brief.\n");
        assert_eq!(code(Prompts::load(&home).unwrap().text("PRM-A-1")), Code::Forbidden);
        let (_place, home) = home_with(&row("active"), "Be long.\n");
        assert_eq!(code(Prompts::load(&home).unwrap().text("PRM-A-1")), Code::Integrity);
    }
}
