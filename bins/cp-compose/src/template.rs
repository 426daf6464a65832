//! Templates: a text with the fields of a row and the variables of the command line. An undefined variable is an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::value::RawValue;

use crate::sources;

/// A parsed template.
pub(crate) struct Template {
    file: PathBuf,
    environment: Environment<'static>,
}

/// The name of the template in the engine; errors name the file instead.
const NAME: &str = "template";

impl Template {
    /// Reads a template.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_debug(true);
        // Plain text is not escaped.
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        let text = sources::given(file)?;
        let mut template = Self { file: file.to_owned(), environment };
        let added = template.environment.add_template_owned(NAME, text);
        added.map_err(|e| template.fault(&e))?;
        Ok(template)
    }

    /// Renders the template with these values.
    pub(crate) fn render(&self, values: &BTreeMap<String, Value>) -> Result<String> {
        let template = self.environment.get_template(NAME).map_err(|e| self.fault(&e))?;
        let text = template.render(values).map_err(|e| self.fault(&e))?;
        if text.trim().is_empty() {
            return Err(Error::validation("the template produces an empty text").in_file(&self.file));
        }
        Ok(text)
    }

    fn fault(&self, e: &minijinja::Error) -> Error {
        let at = e.range().and_then(|range| e.template_source()?.get(range).map(str::to_owned));
        let error = if e.kind() == ErrorKind::UndefinedError {
            let name = at.unwrap_or_else(|| "a variable".to_owned());
            Error::validation(format!("`{name}` is not defined"))
                .with("variable", name)
                .hint("set it with --var, or use `is defined` in the template")
        } else {
            Error::validation(format!("{}: {}", e.kind(), e.detail().unwrap_or("the template is wrong")))
        };
        let error = match e.line() {
            // In a stream, `line` is the line of the row.
            Some(line) => error.at_line(line as u64).with("template_line", line),
            None => error,
        };
        error.in_file(&self.file)
    }
}

/// Parses the variables of the command line.
pub(crate) fn variables(given: &[String]) -> Result<BTreeMap<String, String>> {
    given
        .iter()
        .map(|one| match one.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(Error::usage(format!("`{one}` is not a valid variable")).hint("write --var NAME=VALUE")),
        })
        .collect()
}

/// The values for a template: the variables, the fields of the row by name and as `row`, and the text as `text`.
pub(crate) fn values(
    variables: &BTreeMap<String, String>,
    row: Option<&RawValue>,
    text: Option<&str>,
) -> Result<BTreeMap<String, Value>> {
    let mut values = BTreeMap::new();
    if let Some(row) = row {
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(row.get()).map_err(|e| Error::validation(format!("the row is not an object: {e}")))?;
        values.insert("row".to_owned(), Value::from(Serde(&fields)));
        values.extend(fields.iter().map(|(name, value)| (name.clone(), Value::from(Serde(value)))));
    }
    if let Some(text) = text {
        values.insert("text".to_owned(), Value::from(text));
    }
    // Variables of the command line override the fields of a row.
    values.extend(variables.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
    Ok(values)
}
