//! A call that is being carried out, and a result for it that no tool gave.

use std::time::Instant;

use cp_common::wire::{ToolCall, ToolResult};

/// A call that is being carried out.
pub(super) struct Pending {
    /// Its place among the calls of the message.
    pub(super) at: usize,
    pub(super) call: ToolCall,
    pub(super) began: Instant,
}

impl Pending {
    /// A failure that this program reports to the model.
    pub(super) fn failed(&self, content: impl Into<String>) -> ToolResult {
        ToolResult {
            id: self.call.id.clone(),
            name: self.call.name.clone(),
            content: content.into(),
            images: Vec::new(),
            is_error: true,
            exit_code: None,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            receipt: None,
            untrusted: Vec::new(),
        }
    }

    /// The failure of a call that took too long.
    pub(super) fn timed_out(&self) -> ToolResult {
        self.failed(format!("stopped after {:.1} seconds", self.began.elapsed().as_secs_f64()))
    }
}
