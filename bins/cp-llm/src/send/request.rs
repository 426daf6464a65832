//! From a prompt, as it came, to the work that it is: what the options say wins over what the prompt says.

use std::sync::atomic::{AtomicU64, Ordering};

use cp_common::stream::filter::{Body, text_of};
use cp_common::wire::record;
use cp_common::wire::{Content, Prompt, ToolSpec};
use cp_common::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::dialect::Request;
use crate::engine::Work;
use crate::policy::Policy;

/// What the options say for every prompt.
pub(super) struct Defaults {
    /// The system text.
    pub system: Option<String>,
    /// The models, the first one first.
    pub models: Vec<String>,
    /// The model of prompts that name none: the setting's, else the backend's own.
    pub fallback: Option<String>,
    /// The tools, instead of those that a prompt brings.
    pub tools: Option<Vec<ToolSpec>>,
    /// The most tokens to answer with.
    pub max_tokens: Option<u64>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// The JSON Schema that answers must match.
    pub schema: Option<Value>,
    /// Whether the answer is shown as it comes.
    pub stream: bool,
}

/// Makes requests of prompts.
pub(crate) struct RequestBuilder {
    defaults: Defaults,
    policy: Policy,
    /// How many requests were made.
    made: AtomicU64,
}

impl RequestBuilder {
    /// A builder of the requests that this policy permits.
    pub(super) fn new(defaults: Defaults, policy: Policy) -> Self {
        Self { defaults, policy, made: AtomicU64::new(0) }
    }

    /// The work that an item of the input is.
    pub(crate) fn work(&self, body: &Body<'_>) -> Result<Work> {
        match body {
            Body::Text(text) => self.permitted(Prompt::of_text(text_of(text)?), Map::new()),
            Body::Row(data) => self.work_of(data),
            Body::Record(record) => {
                self.work_of(record.data.ok_or_else(|| Error::validation("the prompt has no `data`"))?)
            }
        }
    }

    fn work_of(&self, data: &RawValue) -> Result<Work> {
        self.permitted(record::read::<Prompt>(data)?.checked()?, params_of(data)?)
    }

    fn permitted(&self, mut prompt: Prompt, params: Map<String, Value>) -> Result<Work> {
        // Providers refuse it, and a model that does not would be paid for nothing.
        if matches!(prompt.messages.last().map(|turn| &turn.content), Some(Content::Text(text)) if text.trim().is_empty())
        {
            return Err(Error::validation("the text to send is empty").hint("write what to ask: cp-llm -- TEXT"));
        }
        if self.defaults.system.is_some() {
            // The text that the id names is not sent.
            prompt.prompt_id = None;
        }
        let (mut request, fallbacks) = self.defaults.request(&prompt, params)?;
        self.policy.permit(prompt.prompt_id.as_deref(), &request.system)?;
        // A request that cannot be made has no position.
        request.position = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Work::new(prompt, request, fallbacks))
    }
}

impl Defaults {
    /// The request that a prompt is, and the models to fall back to.
    fn request(&self, prompt: &Prompt, mut params: Map<String, Value>) -> Result<(Request, Vec<String>)> {
        let (model, fallbacks) = match self.models.split_first() {
            Some((first, others)) => (Some(first), others.to_vec()),
            None => (prompt.model.as_ref().or(self.fallback.as_ref()), Vec::new()),
        };
        let model = model.cloned().ok_or_else(|| {
            Error::config("no model is named")
                .hint("give -m MODEL, or set CP_MODEL; `cp-llm models` lists what the backend has")
                .fatal()
        })?;
        if let Some(most) = self.max_tokens {
            params.insert("max_tokens".to_owned(), most.into());
        }
        if let Some(temperature) = self.temperature {
            params.insert("temperature".to_owned(), temperature.into());
        }
        let request = Request {
            system: self.system.clone().or_else(|| prompt.system.clone()).unwrap_or_default(),
            messages: prompt.messages.clone(),
            tools: self.tools.clone().unwrap_or_else(|| prompt.tools.clone()),
            model,
            params,
            schema: self.schema.clone(),
            stream: self.stream,
            conversation: None,
            position: 0,
        };
        Ok((request, fallbacks))
    }
}

/// The members of `params`, those that only a provider knows among them.
fn params_of(data: &RawValue) -> Result<Map<String, Value>> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        params: Map<String, Value>,
    }
    Ok(record::read::<Head>(data)?.params)
}
