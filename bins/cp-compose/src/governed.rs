//! A governed prompt with its variables filled in. The registry decides whether it is active and unchanged: see cp-policy(5).

use std::collections::BTreeMap;

use cp_common::{Error, Result};
use cp_policy::prompts::Prompts;

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
        let text = filled(&registered, variables).map_err(|e| e.in_file(&file))?;
        Ok(Self { id: id.to_owned(), file: file.display().to_string(), text, registered })
    }
}

/// The text with each `{name}` replaced. A variable without a value is an error with its line; other braces stay.
fn filled(text: &str, variables: &BTreeMap<String, String>) -> Result<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find('{') {
        let after = &rest[open + 1..];
        out.push_str(&rest[..open]);
        let name = after.find('}').map(|close| &after[..close]).filter(|name| is_variable(name));
        let Some(name) = name else {
            out.push('{');
            rest = after;
            continue;
        };
        let Some(value) = variables.get(name) else {
            let line = text[..text.len() - after.len()].matches('\n').count() as u64 + 1;
            return Err(Error::validation(format!("the variable `{name}` has no value"))
                .at_line(line)
                .with("variable", name)
                .hint(format!("add --var {name}=VALUE")));
        };
        out.push_str(value);
        rest = &after[name.len() + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_other_braces_stay() {
        let variables = BTreeMap::from([("name".to_owned(), "{x}".to_owned())]);
        assert_eq!(filled("a {name} {\"k\":{}} {", &variables).unwrap(), "a {x} {\"k\":{}} {");
        let e = filled("a\nb {other}", &variables).unwrap_err();
        assert!(e.message().contains("line 2") && e.message().contains("other"));
    }
}
