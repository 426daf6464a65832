//! From a prompt, as it came, to the work that it is: what the options say wins over what the prompt says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cp_common::stream::filter::{Body, text_of};
use cp_common::wire::record;
use cp_common::wire::{Content, Prompt, ToolSpec};
use cp_common::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::parameters::own;
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{Endpoint, Target};
use crate::dialect::Request;
use crate::engine::Work;
use crate::policy::Policy;

/// Makes requests of prompts: what the options say for every prompt, and what the policy permits.
pub(crate) struct RequestBuilder {
    /// The system text.
    pub system: Option<String>,
    /// The models, the first one first.
    pub models: Vec<Target>,
    /// What the models of prompts mean, and which one is meant by those that name none.
    pub endpoints: Endpoints,
    /// The tools, instead of those that a prompt brings.
    pub tools: Option<Vec<ToolSpec>>,
    /// The parameters.
    pub params: Map<String, Value>,
    /// Whether what the model thinks is shown.
    pub reasoning: bool,
    /// The JSON Schema that answers must match.
    pub schema: Option<Value>,
    /// Whether the answer is shown as it comes.
    pub stream: bool,
    pub policy: Policy,
    /// How many requests were made.
    pub made: AtomicU64,
}

impl RequestBuilder {
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

    /// The endpoint of prompts that name none.
    pub(crate) fn endpoint(&self) -> Result<Arc<Endpoint>> {
        match self.models.first() {
            Some(first) => Ok(Arc::clone(&first.endpoint)),
            None => self.endpoints.default_for(None),
        }
    }

    fn work_of(&self, data: &RawValue) -> Result<Work> {
        let work = || self.permitted(record::read::<Prompt>(data)?.checked()?, params_of(data)?);
        work().map_err(|error| {
            #[derive(Deserialize)]
            struct Head<'a> {
                #[serde(borrow)]
                row: Option<&'a RawValue>,
            }
            error.with_row(record::read::<Head<'_>>(data).ok().and_then(|head| head.row))
        })
    }

    fn permitted(&self, mut prompt: Prompt, params: Map<String, Value>) -> Result<Work> {
        // Providers refuse it, and a model that does not would be paid for nothing.
        if matches!(prompt.messages.last().map(|turn| &turn.content), Some(Content::Text(text)) if text.trim().is_empty())
        {
            return Err(Error::validation("the text to send is empty").hint("write what to ask: cp-llm -- TEXT"));
        }
        if self.system.is_some() {
            // The text that the id names is not sent.
            prompt.prompt_id = None;
        }
        let (first, fallbacks) = self.targets(&prompt)?;
        let mut request = self.request(&prompt, params);
        self.policy.permit_attachments(&request.messages)?;
        self.policy.permit(prompt.prompt_id.as_deref(), &request.system)?;
        // A request that cannot be made has no position.
        request.position = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Work::new(prompt, request, first, fallbacks))
    }

    /// The model to ask for a prompt, and those to fall back to.
    fn targets(&self, prompt: &Prompt) -> Result<(Target, Vec<Target>)> {
        match (self.models.split_first(), &prompt.model) {
            (Some((first, others)), _) => Ok((first.clone(), others.to_vec())),
            (None, Some(model)) => Ok((self.endpoints.target(model)?, Vec::new())),
            (None, None) => Ok((self.endpoints.fallback()?, Vec::new())),
        }
    }

    /// The request that a prompt is. Its model is that of the target.
    fn request(&self, prompt: &Prompt, mut params: Map<String, Value>) -> Request {
        params.extend(self.params.clone());
        Request {
            system: self.system.clone().or_else(|| prompt.system.clone()).unwrap_or_default(),
            messages: prompt.messages.clone(),
            tools: self.tools.clone().unwrap_or_else(|| prompt.tools.clone()),
            params,
            schema: self.schema.clone(),
            stream: self.stream,
            reasoning: self.reasoning,
            ..Request::default()
        }
    }
}

/// The members of `params`, those that only a provider knows among them.
fn params_of(data: &RawValue) -> Result<Map<String, Value>> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        params: Map<String, Value>,
    }
    let params = record::read::<Head>(data)?.params;
    match params.keys().find_map(|name| Some((name, own(name)?))) {
        Some((name, cure)) => Err(Error::validation(format!("data.params: `{name}` is not a parameter")).hint(cure)),
        None => Ok(params),
    }
}
