//! Templates: a text with the fields of a row and the variables of the command line. An undefined variable is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cp_common::{Error, Result};
use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::Map;
use serde_json::value::RawValue;

/// The variables of the command line, by name.
pub type Variables = BTreeMap<String, String>;

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    file: Option<PathBuf>,
    environment: Environment<'static>,
}

/// The name of the template in the engine; errors name the file instead.
const NAME: &str = "template";

impl Template {
    /// Parses a template. Errors name its file.
    pub fn new(text: String, file: Option<PathBuf>) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_debug(true);
        let mut template = Self { file, environment };
        let added = template.environment.add_template_owned(NAME, text);
        added.map_err(|e| template.fault(&e, &BTreeMap::new()))?;
        Ok(template)
    }

    /// Renders the template with the fields of a row, by name and as `row`, and a text as `text`. A variable of the
    /// command line overrides the field of its name.
    pub fn render(&self, variables: &Variables, row: Option<&RawValue>, text: Option<&str>) -> Result<String> {
        let mut values: BTreeMap<String, Value> = BTreeMap::new();
        if let Some(row) = row {
            let fields: Map<String, serde_json::Value> = serde_json::from_str(row.get())
                .map_err(|e| Error::validation(format!("the row is not an object: {e}")))?;
            values.insert("row".to_owned(), Value::from(Serde(&fields)));
            values.extend(fields.iter().map(|(name, value)| (name.clone(), Value::from(Serde(value)))));
        }
        values.extend(text.map(|text| ("text".to_owned(), text.into())));
        values.extend(variables.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        let template = self.environment.get_template(NAME);
        let text = template.and_then(|template| template.render(&values)).map_err(|e| self.fault(&e, &values))?;
        if text.trim().is_empty() {
            return Err(self.place(Error::validation("the template produces an empty text")));
        }
        Ok(text)
    }

    /// The names that the template uses and does not define.
    pub fn names(&self) -> BTreeSet<String> {
        let template = self.environment.get_template(NAME).ok();
        let names = template.into_iter().flat_map(|template| template.undeclared_variables(false));
        let is_own = |name: &str| self.environment.globals().any(|(own, _)| own == name);
        names.filter(|name| !is_own(name)).collect()
    }

    fn fault(&self, e: &minijinja::Error, names: &BTreeMap<String, Value>) -> Error {
        let at = e.range().and_then(|range| e.template_source()?.get(range).map(str::to_owned));
        let error = if e.kind() == ErrorKind::UndefinedError {
            let name = at.unwrap_or_else(|| "a variable".to_owned());
            let defined: Vec<&str> = names.keys().take(20).map(String::as_str).collect();
            let delimiter = defined.iter().find_map(|name| name.chars().find(|c| [';', '\t', '|'].contains(c)));
            let reads = delimiter.map(|c| format!("; --delimiter '{c}' reads a CSV with this character"));
            let other = reads.as_deref().unwrap_or("; or use `is defined` in the template");
            let hint = format!("defined are: {}{other}", defined.join(", "));
            Error::validation(format!("`{name}` is not defined")).with("variable", name).hint(hint)
        } else {
            Error::validation(format!("{}: {}", e.kind(), e.detail().unwrap_or("the template is wrong")))
                .hint("a column whose name is not one word is written {{row[\"my column\"]}}")
        };
        let Some(line) = e.line() else { return self.place(error) };
        let error = error.with("template_line", line);
        // Without a file, a line of the template would be taken for one of the input.
        self.place(if self.file.is_some() { error.at_line(line as u64) } else { error })
    }

    fn place(&self, error: Error) -> Error {
        self.file.iter().fold(error, |error, file| error.in_file(file))
    }
}
