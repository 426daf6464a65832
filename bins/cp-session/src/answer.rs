//! Answers of queries: whole, or only the members that were asked for.

use cp_common::output::Reply;
use cp_common::{Context, Result, fields};
use serde::Serialize;

/// Answers with the members that `asked` names; all of them if it names none.
pub(crate) fn answer<T: Reply>(data: &T, asked: &[String], known: &[&str], context: &mut Context) -> Result<()> {
    if asked.is_empty() {
        return context.out.answer(data);
    }
    fields::check(asked, known)?;
    let value = serde_json::to_value(data).map_err(|e| cp_common::Error::validation(e.to_string()))?;
    context.out.answer(&Projected { value: fields::project(value, asked), text: data.text() })
}

struct Projected {
    value: serde_json::Value,
    text: String,
}

impl Serialize for Projected {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl Reply for Projected {
    fn text(&self) -> String {
        self.text.clone()
    }
}
