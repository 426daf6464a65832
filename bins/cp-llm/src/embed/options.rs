//! The options of the command line, and the engine that they make.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::context::options::StreamOptions;
use cp_common::{Context, Result};

use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{Setup, Target};
use crate::backend::ready::Backends;
use crate::engine::Engine;
use crate::engine::purse::{self, Purse};
use crate::engine::retry::RetryPolicy;
use crate::policy::Policy;

/// The longest wait before a try.
const WAIT: Duration = Duration::from_mins(1);

/// Print the vector of each text
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model (default: the setting `embedding_model`)
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// What answers: openai, gemini or stub
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// How many numbers a vector is to have (default: as many as the model gives)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub dimensions: Option<u32>,
    /// The most texts in one request
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub batch: u16,
    /// The longest time for one try, in seconds
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// How often to try again what may succeed later
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u32,
    /// The most dollars to spend
    #[arg(long, value_name = "X")]
    budget_usd: Option<f64>,
    /// The most tokens to spend
    #[arg(long, value_name = "N")]
    budget_tokens: Option<u64>,
    /// The file with the sums of a budget that processes share
    #[arg(long, value_name = "FILE")]
    budget_file: Option<PathBuf>,
    #[command(flatten)]
    pub stream_options: StreamOptions,
    /// The text; - adds standard input
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
}

impl Args {
    /// What asks for vectors, and of which model.
    pub(super) fn prepared(&self, context: &Context) -> Result<(Engine, Target)> {
        let policy = Policy::load(&context.home)?;
        let permission = policy.permission();
        let endpoints = Endpoints::load(&context.config, self.backend.as_deref())?.looking(permission().is_ok());
        let target = match context.config.text("embedding_model", self.model.as_deref()) {
            Some(model) => endpoints.target(&model)?,
            None => endpoints.embedder()?,
        };
        let setup = Setup::new(Duration::from_secs(self.timeout), permission);
        let backends = Backends::new(Setup { embeds: true, ..setup });
        backends.of(&target.endpoint)?;
        if let Some(file) = &self.budget_file {
            context.home.check_writable(file)?;
        }
        let purse = Purse::open(&purse::Terms {
            usd: self.budget_usd,
            tokens: self.budget_tokens,
            policy_usd: policy.budget_usd(),
            file: self.budget_file.as_deref(),
            ..purse::Terms::default()
        })?;
        let retries = RetryPolicy { retries: self.retries, max_wait: WAIT };
        let engine = Engine::new(context, backends, retries, policy.fetch(), policy.logs_content())?;
        Ok((Engine { counts_what_is_free: self.budget_usd.is_some(), purse, ..engine }, target))
    }
}
