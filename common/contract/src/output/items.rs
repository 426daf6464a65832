//! Items: the place of each, what became of it, and the failures, ours and those of whoever wrote the input.

use serde_json::Value;

use super::closing::{error_members, message_of};
use super::{FAILURES_SHOWN, Format, Held, ItemStatus, Output, Place, Shape, UpstreamEnd};
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Error, Result};

impl Output {
    /// The place of the input line that the next records answer.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Says which input line the next records answer.
    pub fn set_place(&mut self, place: Place) {
        self.place = place;
    }

    /// Says that the item under way is not counted yet: [`crate::stream::filter::settle`] reports what came of it.
    pub fn defer_item(&mut self) {
        self.item_status = ItemStatus::Deferred;
    }

    /// Says that the item under way is left out.
    pub fn skip_item(&mut self) {
        self.item_status = ItemStatus::Skipped;
    }

    /// What the counts take the item for that was under way until now.
    pub(crate) fn take_item_status(&mut self) -> ItemStatus {
        std::mem::take(&mut self.item_status)
    }

    /// Counts an item that was done.
    pub fn item_succeeded(&mut self) {
        self.counts.succeeded += 1;
    }

    /// Counts an item that was left out.
    pub fn item_skipped(&mut self) {
        self.counts.skipped += 1;
    }

    /// Writes an item's failure; the stream goes on.
    pub fn item_failed(&mut self, error: Error) -> Result<()> {
        let error = error.without_secrets();
        self.counts.failed += 1;
        if self.format == Format::Json {
            let mut value = error.to_value();
            if let (Some(index), Some(Value::Object(details))) = (self.place.index, value.get_mut("details")) {
                details.insert("index".to_owned(), index.into());
            }
            let mut open = record::head(false, Some(Kind::Error.name()));
            record::member(&mut open, "error", value.to_string().as_bytes());
            self.emit(Held::Own { open, failure: Some(error.code()) })?;
        }
        self.own_failures += 1;
        if self.own_failures <= FAILURES_SHOWN {
            self.say_error(&error);
        }
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    /// Passes on a failure from upstream, unchanged.
    pub(crate) fn pass_failure(&mut self, record: &Record<'_>) -> Result<()> {
        let code = record.code();
        self.upstream_failures = true;
        if record.closed {
            self.upstream_end.get_or_insert_with(|| UpstreamEnd { code, error: error_members(record) });
        } else {
            self.counts.failed += 1;
            self.first_failure.get_or_insert_with(|| Error::new(code, message_of(record)));
        }
        if record.kind == Some(Kind::Summary) {
            return Ok(());
        }
        if self.format != Format::Json {
            return Ok(());
        }
        let opened = record.opened();
        if record.closed {
            return self.emit(Held::Upstream { line: record.line.to_vec(), opened, failure: code });
        }
        self.set_shape(Shape::Stream);
        self.pass(&opened)
    }
}
