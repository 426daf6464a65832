//! JSON Schemas that are checked without a network: what a schema refers to must be in it.

use boon::{CompileError, Compiler, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

/// The address that a schema is given, from which its references lead.
const ADDRESS: &str = "schema:///root";

/// The most characters of one fault's message: it quotes the value it is about, which may be long.
const LONGEST: usize = 400;

/// A JSON Schema that is ready to check values.
pub struct Schema {
    parts: Schemas,
    root: SchemaIndex,
}

/// One way in which a value does not fit a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The JSON Pointer (RFC 6901) to the value that is wrong; empty for the whole.
    pub pointer: String,
    /// What is wrong with it.
    pub message: String,
}

/// Loads nothing.
struct NoRemoteRefs;

impl UrlLoader for NoRemoteRefs {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} is outside the schema, and nothing is fetched").into())
    }
}

impl Schema {
    /// Compiles a schema. The error says what is wrong with it.
    pub fn compile(text: Value) -> Result<Self, String> {
        let wrong = |e: CompileError| shortened(&format!("{e:#}"));
        let (mut compiler, mut parts) = (Compiler::new(), Schemas::new());
        compiler.use_loader(Box::new(NoRemoteRefs));
        compiler.add_resource(ADDRESS, text).map_err(wrong)?;
        let root = compiler.compile(ADDRESS, &mut parts).map_err(wrong)?;
        Ok(Self { parts, root })
    }

    /// The first faults of a value, at most so many: those that have no others behind them, which say what to change.
    pub fn faults(&self, value: &Value, most: usize) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Err(error) = self.parts.validate(value, self.root) {
            collect(&error, most, &mut faults);
        }
        faults
    }
}

fn collect(error: &ValidationError<'_, '_>, most: usize, faults: &mut Vec<Fault>) {
    if faults.len() >= most {
        return;
    }
    if error.causes.is_empty() {
        let message = shortened(&error.kind.to_string());
        faults.push(Fault { pointer: error.instance_location.to_string(), message });
    }
    error.causes.iter().for_each(|cause| collect(cause, most, faults));
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        // A word is left out whole: nobody would know the half of a secret for one.
        Some((end, _)) => format!("{}…", &text[..text[..end].rfind(' ').map_or(end, |blank| blank + 1)]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_fault_has_its_place() {
        let schema = Schema::compile(json!({
            "type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}
        }));
        let schema = schema.ok().unwrap();
        assert_eq!(schema.faults(&json!({"n": 1}), 5), []);
        assert_eq!(schema.faults(&json!({"n": "x"}), 5)[0].pointer, "/n");
        assert!(schema.faults(&json!({}), 5)[0].message.contains("missing properties 'n'"));
    }

    #[test]
    fn nothing_is_fetched() {
        for outside in ["https://example.com/s.json", "http://localhost/s.json", "file:///etc/passwd"] {
            assert!(Schema::compile(json!({"$ref": outside})).is_err(), "{outside}");
        }
        assert!(Schema::compile(json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}})).is_ok());
    }
}
