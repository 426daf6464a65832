//! The program as a user meets it: a real binary against servers whose every byte is chosen here.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod batch;
mod blocks;
mod counterparts;
mod failures;
mod gemini;
mod interrupt;
mod jobs;
mod limits;
mod llm;
mod messages;
mod policy;
mod programs;
mod requests;
mod responses;
mod secrets;
mod stub;
mod tape;
mod tls;
