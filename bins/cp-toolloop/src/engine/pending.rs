//! An active call, and its results that do not come from a tool.

use std::time::Instant;

use cp_common::wire::{ToolCall, ToolResult};

/// An active call.
pub(super) struct Pending {
    /// Its index among the calls of the message.
    pub(super) at: usize,
    pub(super) call: ToolCall,
    pub(super) began: Instant,
}

impl Pending {
    /// A failed result for the model.
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

    /// The failed result of a call that reached its time limit.
    pub(super) fn timed_out(&self) -> ToolResult {
        self.failed(format!("stopped after {:.1} seconds", self.began.elapsed().as_secs_f64()))
    }
}
