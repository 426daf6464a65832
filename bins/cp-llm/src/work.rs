//! From a prompt, as it came, to the work that it is: what the flags say wins over what it says itself.

use std::sync::atomic::{AtomicU64, Ordering};

use cp_common::stream::filter::{Body, text_of};
use cp_common::wire::record;
use cp_common::wire::{Prompt, ToolSpec};
use cp_common::{Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::backend::Backend;
use crate::call::{Engine, Work};
use crate::resume::Done;
use crate::stub;
use crate::wire::Ask;

/// What the flags say for every prompt.
pub(crate) struct Defaults {
    /// The system text.
    pub system: Option<String>,
    /// The models, the first one first.
    pub models: Vec<String>,
    /// The model that the settings name, for prompts that name none.
    pub fallback: Option<String>,
    /// The tools, instead of those that a prompt brings.
    pub tools: Option<Vec<ToolSpec>>,
    /// The most tokens to answer with.
    pub max_tokens: Option<u64>,
    /// How freely to choose words.
    pub temperature: Option<f64>,
    /// The JSON Schema that answers shall follow.
    pub schema: Option<Value>,
    /// Whether words are shown as they come.
    pub stream: bool,
}

/// Makes work of prompts. Shared by the thread that reads ahead and the one that prints.
pub(crate) struct Asker {
    /// What answers.
    pub engine: Engine,
    /// What the flags say.
    pub defaults: Defaults,
    /// What an earlier run has done.
    pub done: Option<Done>,
    /// How many items there were.
    pub asked: AtomicU64,
}

impl Asker {
    /// The work that an item is.
    pub(crate) fn work(&self, body: &Body<'_>) -> Result<Work> {
        match body {
            Body::Text(text) => self.placed(Prompt::of_text(text_of(text)?), Map::new()),
            Body::Row(data) => self.work_of(data),
            Body::Record(record) => {
                self.work_of(record.data.ok_or_else(|| Error::validation("the prompt has no `data`"))?)
            }
        }
    }

    /// The work that the data of a prompt is.
    pub(crate) fn work_of(&self, data: &RawValue) -> Result<Work> {
        self.placed(record::read::<Prompt>(data)?.checked()?, params_of(data)?)
    }

    fn placed(&self, prompt: Prompt, params: Map<String, Value>) -> Result<Work> {
        let own = match &self.engine.backend {
            Backend::Stub(_) => Some(stub::MODEL),
            // The program has a model of its own; an empty name asks for it.
            Backend::Llm(_) | Backend::Speaker(..) => Some(""),
            Backend::Server(_) => None,
        };
        // Work that cannot be made takes no place.
        let work = self.defaults.work(prompt, params, own)?;
        self.engine.policy.permit(work.prompt.prompt_id.as_deref(), &work.ask.system)?;
        Ok(Work { place: self.asked.fetch_add(1, Ordering::Relaxed), ..work })
    }
}

impl Defaults {
    /// The work that a prompt is.
    fn work(&self, mut prompt: Prompt, mut params: Map<String, Value>, own: Option<&str>) -> Result<Work> {
        let mut models = self.models.clone();
        if models.is_empty() {
            models.extend(prompt.model.clone().or_else(|| self.fallback.clone()).or_else(|| own.map(str::to_owned)));
        }
        if models.is_empty() {
            return Err(Error::config("no model is named")
                .hint("give -m MODEL, or set CP_MODEL; `cp-llm models` lists what the backend has")
                .fatal());
        }
        if let Some(most) = self.max_tokens {
            params.insert("max_tokens".to_owned(), most.into());
        }
        if let Some(temperature) = self.temperature {
            params.insert("temperature".to_owned(), temperature.into());
        }
        if self.system.is_some() {
            // The words that it named are not sent.
            prompt.prompt_id = None;
        }
        let ask = Ask {
            system: self.system.clone().or_else(|| prompt.system.clone()).unwrap_or_default(),
            messages: prompt.messages.clone(),
            tools: self.tools.clone().unwrap_or_else(|| prompt.tools.clone()),
            model: String::new(),
            params,
            schema: self.schema.clone(),
            stream: self.stream,
            conversation: None,
        };
        Ok(Work { prompt, ask, models, place: 0 })
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
