//! Items: the place and outcome of each, and failures, both our own and those in the input.

use serde_json::Value;

use super::closing::{error_members, message_of};
use super::{FAILURES_SHOWN, Format, Held, ItemStatus, Output, Place, Shape, UpstreamEnd};
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Error, Result};

impl Output {
    /// Returns the place of the input line that the next records answer.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Sets the place of the input line that the next records answer.
    pub fn set_place(&mut self, place: Place) {
        self.place = place;
    }

    /// Marks the current item as deferred: [`crate::stream::filter::settle`] counts it later.
    pub fn defer_item(&mut self) {
        self.item_status = ItemStatus::Deferred;
    }

    /// Marks the current item as skipped.
    pub fn skip_item(&mut self) {
        self.item_status = ItemStatus::Skipped;
    }

    /// Returns the status of the current item and resets it.
    pub(crate) fn take_item_status(&mut self) -> ItemStatus {
        std::mem::take(&mut self.item_status)
    }

    /// Counts an item that succeeded.
    pub fn item_succeeded(&mut self) {
        self.counts.succeeded += 1;
    }

    /// Counts an item that was skipped.
    pub fn item_skipped(&mut self) {
        self.counts.skipped += 1;
    }

    /// Writes an item's failure; the stream continues.
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

    /// Passes on a failure from upstream without changes.
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
