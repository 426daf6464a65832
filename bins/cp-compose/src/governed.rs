//! A governed prompt with its variables filled in. The registry decides whether it is active and unchanged: see cp-policy(5).

use std::collections::BTreeMap;

use cp_common::Result;
use cp_policy::prompts::Prompts;
use cp_policy::template;

/// A governed prompt.
#[derive(Debug)]
pub(crate) struct Governed {
    pub(crate) id: String,
    pub(crate) file: String,
    /// The text with its variables filled in.
    pub(crate) text: String,
    /// The text as it is registered.
    pub(crate) registered: String,
}

impl Governed {
    /// Reads a registered prompt and fills in its `{variables}`.
    pub(crate) fn load(id: &str, variables: &BTreeMap<String, String>, prompts: &Prompts) -> Result<Self> {
        let registered = prompts.text(id)?;
        let file = prompts.file(id);
        let text = template::fill(&registered, variables).map_err(|e| e.in_file(&file))?;
        Ok(Self { id: id.to_owned(), file: file.display().to_string(), text, registered })
    }
}
