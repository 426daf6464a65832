//! Pages of a list. A cursor holds the key of the last item of a page, so that items added or removed between two pages
//! cause no repeated and no missing items.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::context::options::QueryOptions;
use crate::wire::{Code, Error, Page, Result};

/// Number of hex digits that bind a cursor to its list.
const TAG_DIGITS: usize = 12;

/// The pages of one list, whose items are in the order of their keys `K`.
pub struct Pages<K> {
    /// The list and its filters; a cursor is valid only for the same scope.
    scope: String,
    limit: usize,
    after: Option<K>,
}

impl<K: Serialize + DeserializeOwned + Ord> Pages<K> {
    /// Makes the pages for the options of a query. `list` is the verb; `asked` holds all filters. A cursor of another
    /// verb, file or filter is rejected.
    pub fn of(list: &str, asked: &impl Serialize, query: &QueryOptions) -> Result<Self> {
        let asked = serde_json::to_string(asked).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let scope = format!("{list}\n{asked}\n");
        let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let after = query.cursor.as_deref().map(|cursor| key_of(cursor, &scope)).transpose()?.flatten();
        Ok(Self { scope, limit, after })
    }

    /// Returns the maximum number of items on a page.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the key of the last item of the previous page.
    pub fn after(&self) -> Option<&K> {
        self.after.as_ref()
    }

    /// True if an item was on a previous page.
    pub fn is_passed(&self, key: &K) -> bool {
        self.after.as_ref().is_some_and(|after| key <= after)
    }

    /// Returns the page from items in the order of their keys. Consumes only the items that it needs.
    pub fn page<T>(&self, items: impl IntoIterator<Item = (K, T)>) -> Result<Page<T>> {
        let mut left = items.into_iter().filter(|(key, _)| self.after.as_ref().is_none_or(|after| key > after));
        let (mut last, mut kept) = (None, Vec::new());
        while kept.len() < self.limit {
            let Some((key, item)) = left.next() else { break };
            last = Some(key);
            kept.push(item);
        }
        let has_more = left.next().is_some();
        let last = last.as_ref().or(self.after.as_ref());
        let next_cursor = has_more.then(|| cursor(&self.scope, last)).transpose()?;
        Ok(Page { count: kept.len(), items: kept, next_cursor, has_more, untrusted: &[] })
    }

    /// Returns the cursor of the items after this key.
    pub fn cursor(&self, key: &K) -> Result<String> {
        cursor(&self.scope, Some(key))
    }
}

/// Encodes a cursor; without a key it is the beginning of the list.
fn cursor<K: Serialize>(scope: &str, key: Option<&K>) -> Result<String> {
    let key = serde_json::to_string(&key).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    Ok(format!("{}{}", tag(scope, &key), base16ct::lower::encode_string(key.as_bytes())))
}

fn tag(scope: &str, key: &str) -> String {
    let digest = Sha256::new().chain_update(scope).chain_update(key).finalize();
    let mut tag = base16ct::lower::encode_string(&digest);
    tag.truncate(TAG_DIGITS);
    tag
}

fn key_of<K: DeserializeOwned>(cursor: &str, scope: &str) -> Result<Option<K>> {
    let wrong = || {
        Error::validation("the cursor is not one of this list: it is damaged, or from another verb, file or filter")
            .hint("give the next_cursor of the page before, with the same options")
    };
    let (given, key) = cursor.split_at_checked(TAG_DIGITS).ok_or_else(wrong)?;
    let key = base16ct::lower::decode_vec(key).ok().and_then(|key| String::from_utf8(key).ok()).ok_or_else(wrong)?;
    if tag(scope, &key) != given {
        return Err(wrong());
    }
    serde_json::from_str(&key).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    fn query(limit: u64, cursor: Option<&str>) -> QueryOptions {
        QueryOptions { limit: Some(limit), cursor: cursor.map(str::to_owned) }
    }

    fn page(items: &[u32], query: &QueryOptions) -> Page<u32> {
        let pages = Pages::of("a list", &"a filter", query).unwrap();
        pages.page(items.iter().map(|item| (Reverse(*item), *item))).unwrap()
    }

    #[test]
    fn pages_of_changing_list_neither_repeat_nor_skip_items() {
        let first = page(&[9, 7, 5, 3], &query(2, None));
        assert_eq!((first.items, first.has_more), (vec![9, 7], true));
        let cursor = first.next_cursor.unwrap();
        // 9, 8 and 7 are before the cursor: 8 was added, 7 was removed.
        let next = page(&[9, 8, 5, 4, 3], &query(2, Some(&cursor)));
        assert_eq!((next.items, next.has_more), (vec![5, 4], true));
        let last = page(&[3], &query(2, next.next_cursor.as_deref()));
        assert_eq!((last.items, last.has_more, last.next_cursor), (vec![3], false, None));
    }

    #[test]
    fn invalid_and_foreign_cursors_fail() {
        let cursor = page(&[9, 7, 5], &query(1, None)).next_cursor.unwrap();
        let refused = |list: &str, filter: &str, cursor: &str| {
            let pages = Pages::<Reverse<u32>>::of(list, &filter, &query(1, Some(cursor)));
            pages.err().map(|e| e.code()) == Some(Code::Validation)
        };
        assert!(!refused("a list", "a filter", &cursor));
        assert!(refused("another", "a filter", &cursor) && refused("a list", "another", &cursor));
        let changed = cursor.replacen(&cursor[..1], if cursor.starts_with('0') { "1" } else { "0" }, 1);
        for garbage in ["", "garbage", "2", "é", &cursor[1..], &cursor[..cursor.len() - 2], &changed] {
            assert!(refused("a list", "a filter", garbage), "{garbage}");
        }
    }
}
