//! Our programs as tools: what each tool takes, which program does it, and what comes back.

mod answer;
mod approval;
mod call;
mod executor;
mod prompts;
mod protocol;
mod resources;
mod server;
mod shared;
mod tools;

pub(crate) use self::server::serve;
pub(crate) use self::shared::Allowance;
