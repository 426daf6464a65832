//! Pages of a list, as queries give them.

use cp_common::context::options::QueryOptions;
use cp_common::wire::fields;
use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde_json::Value;

/// The part of a list that was asked for, and where the next part begins.
pub(super) fn page<T>(items: Vec<T>, query: &QueryOptions) -> Result<(Vec<T>, Option<String>)> {
    let skip: usize = match &query.cursor {
        Some(cursor) => {
            cursor.parse().map_err(|_| Error::usage("--cursor must be the next_cursor of an earlier page"))?
        }
        None => 0,
    };
    let take = query.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let more = items.len() > skip.saturating_add(take);
    let next = more.then(|| (skip + take).to_string());
    Ok((items.into_iter().skip(skip).take(take).collect(), next))
}

/// The items with the members that were asked for.
pub(super) fn projected(items: impl IntoIterator<Item = impl Serialize>, members: &[String]) -> Result<Vec<Value>> {
    let project = |item| {
        let value = serde_json::to_value(item).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        Ok(fields::project(value, members))
    };
    items.into_iter().map(project).collect()
}

/// A member that is a text; empty where it is not there.
pub(super) fn text_of<'a>(item: &'a Value, member: &str) -> &'a str {
    item.get(member).and_then(Value::as_str).unwrap_or_default()
}
