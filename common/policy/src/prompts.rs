//! Governed prompts: texts whose bytes must match the registry. A mismatch is an error; there is no fallback.

use std::path::{Path, PathBuf};

use cp_common::context::given::unreadable;
use cp_common::wire::quoted;
use cp_common::{Code, Context, Error, Result, keys};

use crate::registry::Table;

const REGISTRY: &str = "registries/prompts_registry.csv";

/// The registered prompts of a home, or of a tree that governs.
pub struct Prompts {
    /// The file of the registry.
    pub registry: PathBuf,
    place: PathBuf,
    /// The registry.
    pub table: Table,
}

impl Prompts {
    /// The place of the registry that governs: the tree that `--root` names, if it has one, else the home.
    pub fn place(context: &Context) -> Result<PathBuf> {
        let tree = context.root()?.filter(|tree| tree.join(REGISTRY).exists());
        Ok(tree.unwrap_or_else(|| context.home.root().to_owned()))
    }

    /// Reads the registry of a home or tree.
    pub fn below(place: &Path) -> Result<Self> {
        let registry = place.join(REGISTRY);
        let is_missing = |e: &Error| e.code() == Code::NotFound;
        let text = read(&registry).map_err(|e| if is_missing(&e) { e.hint("`cp-shell init` makes it") } else { e })?;
        let table = Table::parse(&text).map_err(|e| e.in_file(&registry))?;
        Ok(Self { registry, place: place.to_owned(), table })
    }

    /// The command that registers a prompt or a file in this home or tree.
    pub fn to_register(&self, named: &str) -> String {
        format!("cp-shell --home {} register {}", quoted(&self.place.to_string_lossy()), quoted(named))
    }

    /// Returns the file of a prompt.
    pub fn file(&self, id: &str) -> PathBuf {
        self.place.join(format!("governed_prompts/{id}.md"))
    }

    /// Returns the text of an active prompt. Fails if the prompt is not registered, not active, or was changed.
    pub fn text(&self, id: &str) -> Result<String> {
        let unknown = || {
            let error = Error::not_found(format!("no governed prompt `{id}` is registered")).with("prompt_id", id);
            let otherwise = format!("`{}` registers it", self.to_register(id));
            error.nearest(id, self.table.rows.iter().map(|row| row.get("prompt_id")), &otherwise)
        };
        let row = self.table.rows.iter().find(|row| row.get("prompt_id") == id).ok_or_else(unknown)?;
        check_id(id)?;
        let status = row.get("status");
        if status != "active" {
            return Err(Error::new(Code::Forbidden, format!("the prompt `{id}` is {status}, not active"))
                .with("status", status));
        }
        let file = self.file(id);
        let text = read(&file)?;
        let found = keys::hash(text.as_bytes());
        if !is_hash(row.get("hash"), &found) {
            return Err(Error::new(Code::Integrity, "its bytes are not those that were registered")
                .in_file(&file)
                .with("registered", row.get("hash"))
                .with("found", found)
                .hint(format!("`{}` shows what changed and registers it; or restore the file", self.to_register(id))));
        }
        Ok(text)
    }

    /// True if a text is that of an active prompt with its registered content, but for blanks at the end, or empty.
    pub fn contain(&self, text: &str) -> bool {
        let mut texts = self.table.rows.iter().filter_map(|row| self.text(row.get("prompt_id")).ok());
        text.trim_end().is_empty() || texts.any(|registered| registered.trim_end() == text.trim_end())
    }
}

/// Rejects an id that is not a valid file name of a prompt.
pub fn check_id(id: &str) -> Result<()> {
    if id.starts_with("PRM-") && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return Ok(());
    }
    Err(Error::validation(format!("`{id}` is not a valid prompt id")).hint("write PRM-<DOMAIN>-<SEQ>: PRM-REVIEW-001"))
}

/// True if a registered hash, with or without its algorithm, equals `found`.
pub fn is_hash(registered: &str, found: &str) -> bool {
    registered == found || found.strip_prefix("sha256:") == Some(registered)
}

/// Returns the text of a file.
pub fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => Error::validation("the text is not UTF-8").in_file(file),
        _ => unreadable(e, "file", file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_with(rows: &str, text: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("registries")).unwrap();
        std::fs::create_dir_all(place.path().join("governed_prompts")).unwrap();
        std::fs::write(
            place.path().join("registries/prompts_registry.csv"),
            format!("prompt_id,title,status,hash\n{rows}"),
        )
        .unwrap();
        std::fs::write(place.path().join("governed_prompts/PRM-A-1.md"), text).unwrap();
        place
    }

    #[test]
    fn text_requires_active_prompt_with_registered_bytes() {
        let row = |status: &str| format!("PRM-A-1,\"A, in\ntwo lines\",{status},{}\n", keys::hash(b"Be brief.\n"));
        let code = |found: Result<String>| found.unwrap_err().code();
        let home = home_with(&row("active"), "Be brief.\n");
        let prompts = Prompts::below(home.path()).unwrap();
        assert_eq!(prompts.text("PRM-A-1").unwrap(), "Be brief.\n");
        for (system, is_made) in
            [("Be brief.", true), ("Be brief.\n\nBe brief.", false), ("", true), ("Be brief.\n\nx", false)]
        {
            assert_eq!(prompts.contain(system), is_made, "{system}");
        }
        assert_eq!(prompts.text("PRM-A-2").unwrap_err().details()["nearest"], "PRM-A-1");
        let home = home_with(&row("retired"), "Be brief.\n");
        assert_eq!(code(Prompts::below(home.path()).unwrap().text("PRM-A-1")), Code::Forbidden);
        let home = home_with(&row("active"), "Be long.\n");
        assert_eq!(code(Prompts::below(home.path()).unwrap().text("PRM-A-1")), Code::Integrity);
    }
}
