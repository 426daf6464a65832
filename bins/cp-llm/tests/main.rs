//! End-to-end tests of the binary against servers with scripted responses.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod agents;
mod attachments;
mod batch;
mod budget;
mod cache;
mod conveniences;
mod counterparts;
mod endpoints;
mod ends;
mod failures;
mod interrupt;
mod jobs;
mod limits;
mod llm;
mod local;
mod messages;
mod parameters;
mod policy;
mod programs;
mod quirks;
mod rate_limits;
mod reasoning;
mod recorded;
mod recordings;
mod requests;
mod rows;
mod secrets;
mod stub;
mod table;
mod tls;
