//! Tools in the list of a server, and the parameters of a call.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::version::Meta;

/// A page of `tools/list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The tools of the page.
    pub tools: Vec<Tool>,
    /// The cursor of the next page; `None` for the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Metadata of the page.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// A tool that cp-mcp leaves out of a list: an element of [`LeftOut::META`] in the metadata of the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The name of the tool.
    pub name: String,
    /// Why it is left out.
    pub why: String,
    /// The approval that would offer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
}

impl LeftOut {
    /// The name of the metadata member.
    pub const META: &str = "cp/left_out";
}

impl Page {
    /// The tools that cp-mcp has left out of this page.
    pub fn left_out(&self) -> Vec<LeftOut> {
        #[derive(Deserialize)]
        struct Meta {
            #[serde(rename = "cp/left_out")]
            left_out: Vec<LeftOut>,
        }
        let meta = self.meta.as_ref().and_then(|meta| serde_json::from_str::<Meta>(meta.get()).ok());
        meta.map(|meta| meta.left_out).unwrap_or_default()
    }
}

/// True if a tool may have this name: letters, digits, `_`, `.` and `-`.
pub fn is_tool_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// A tool, as its server describes it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its description.
    #[serde(default, deserialize_with = "given")]
    pub description: String,
    /// The JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Box<RawValue>>,
    /// The server's hints about its effects.
    #[serde(default, deserialize_with = "given")]
    pub annotations: Annotations,
}

/// The hints of a server about the effects of a tool, which are not verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// The tool changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// A second call has no further effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
}

impl Annotations {
    /// True if the tool is annotated as read-only.
    pub fn is_read_only(self) -> bool {
        self.read_only_hint == Some(true)
    }

    /// True if the tool is annotated as destructive. The protocol's default is true, but then nearly every tool would be destructive, so a
    /// missing annotation counts as false.
    pub fn is_destructive(self) -> bool {
        self.destructive_hint == Some(true) && !self.is_read_only()
    }

    /// True if the tool is annotated as idempotent or read-only.
    pub fn is_idempotent(self) -> bool {
        self.is_read_only() || self.idempotent_hint == Some(true)
    }
}

/// The parameters of `tools/call`. The arguments keep their bytes, because a large integer must not become a float.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call<'a> {
    /// The tool.
    pub name: &'a str,
    /// The arguments by name.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<&'a RawValue>,
    /// The metadata of a request without a session.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// Reads null as a missing member, because some servers write it.
fn given<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_read_as_missing() {
        let tool: Tool = serde_json::from_str(r#"{"name":"a","description":null,"annotations":null}"#).unwrap();
        assert_eq!((tool.description.as_str(), tool.annotations), ("", Annotations::default()));
    }

    #[test]
    fn missing_annotation_is_not_destructive() {
        let hints = |text: &str| serde_json::from_str::<Annotations>(text).unwrap();
        assert!(!hints("{}").is_destructive() && !hints("{}").is_read_only() && !hints("{}").is_idempotent());
        assert!(hints(r#"{"destructiveHint":true,"openWorldHint":true}"#).is_destructive());
        let both = hints(r#"{"destructiveHint":true,"readOnlyHint":true}"#);
        assert!(!both.is_destructive() && both.is_idempotent());
    }
}
