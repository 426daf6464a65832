//! Answers of queries: whole, or only the members that were asked for; pages of lists.

use cp_common::wire::{Reply, fields};
use cp_common::{Context, Error, Result};
use serde::Serialize;

/// The option that chooses members of an answer.
#[derive(clap::Args)]
pub(crate) struct Fields {
    /// Only these members, dotted names, separated by commas
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    fields: Vec<String>,
}

impl Fields {
    /// Answers with the members that were asked for; all of them if none were.
    pub(crate) fn answer<T: Reply>(&self, data: &T, known: &[&str], context: &mut Context) -> Result<()> {
        if self.fields.is_empty() {
            return context.out.answer(data);
        }
        fields::check(&self.fields, known)?;
        context.out.answer(&projected(data, &self.fields)?)
    }
}

fn projected(data: &impl Reply, asked: &[String]) -> Result<Projected> {
    let value = serde_json::to_value(data).map_err(|e| Error::validation(e.to_string()))?;
    Ok(Projected { value: fields::project(value, asked), text: data.text() })
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

/// A page of a list.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Page<T> {
    /// What is on the page.
    pub(crate) items: Vec<T>,
    /// How many there are on it.
    pub(crate) count: usize,
    /// Where the next page begins; null on the last.
    pub(crate) next_cursor: Option<String>,
    /// Whether there is a next page.
    pub(crate) has_more: bool,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted", default, skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) untrusted: &'static [&'static str],
}

impl<T: Reply> Reply for Page<T> {
    fn text(&self) -> String {
        self.items.iter().map(Reply::text).collect::<Vec<_>>().join("\n")
    }
}

impl<T: Reply> Page<T> {
    /// A page of these items, each with the cursor of what follows it. One item more than the limit means that there is a next page.
    pub(crate) fn of(mut items: Vec<(String, T)>, limit: Option<usize>, untrusted: &'static [&'static str]) -> Self {
        let has_more = limit.is_some_and(|limit| items.len() > limit);
        items.truncate(limit.unwrap_or(usize::MAX));
        let next_cursor = items.last().filter(|_| has_more).map(|(cursor, _)| cursor.clone());
        let items: Vec<T> = items.into_iter().map(|(_, item)| item).collect();
        Self { count: items.len(), items, next_cursor, has_more, untrusted }
    }

    /// Answers with the page; of each item only the members that `asked` names.
    pub(crate) fn answer(self, asked: &[String], known: &[&str], context: &mut Context) -> Result<()> {
        if asked.is_empty() {
            return context.out.answer(&self);
        }
        fields::check(asked, known)?;
        let items = self.items.iter().map(|item| projected(item, asked)).collect::<Result<Vec<_>>>()?;
        let Self { count, next_cursor, has_more, untrusted, .. } = self;
        context.out.answer(&Page { items, count, next_cursor, has_more, untrusted })
    }
}

/// The limit of a page, as a length in memory.
pub(crate) fn limit(asked: Option<u64>) -> Option<usize> {
    asked.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
