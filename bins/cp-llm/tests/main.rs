//! The program as a user meets it: a real binary against servers whose every byte is chosen here.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod aside;
mod attachments;
mod batch;
mod blocks;
mod cache;
mod counterparts;
mod daily;
mod embed;
mod endpoints;
mod failures;
mod gemini;
mod interrupt;
mod jobs;
mod limits;
mod llm;
mod local;
mod messages;
mod parameters;
mod policy;
mod programs;
mod purse;
mod requests;
mod responses;
mod rows;
mod secrets;
mod storm;
mod stub;
mod tape;
mod tls;
