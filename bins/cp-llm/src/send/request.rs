//! The request that a prompt becomes: options override the members of the prompt. `--dry-run` prints it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cp_common::context::given::text_of;
use cp_common::stream::filter::Body;
use cp_common::wire::{Content, Prompt, Reply, ToolSpec, record};
use cp_common::{Code, Error, Result};
use cp_table::Template;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::backend::Backends;
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::Target;
use crate::engine::{Engine, Work};
use crate::policy::Policy;
use crate::wire_api::Request;

/// Makes requests from prompts, with the options that apply to all prompts, and checks them against policy.
pub(crate) struct RequestBuilder {
    /// The system text.
    pub system: Option<String>,
    /// The model.
    pub model: Option<Target>,
    /// The endpoints, for the models of prompts and the default model.
    pub endpoints: Endpoints,
    pub backends: Backends,
    /// Tools that replace the tools of prompts.
    pub tools: Option<Vec<ToolSpec>>,
    /// The parameters, the schema and the flags of all requests.
    pub common: Request,
    pub policy: Policy,
    /// The columns of the table whose rows become prompts, and their template.
    pub table: Option<(Vec<String>, Template)>,
    /// The number of requests so far.
    pub made: AtomicU64,
}

impl RequestBuilder {
    /// Prepares an item of the input.
    pub(crate) fn work(&self, body: &Body<'_>) -> Result<Work> {
        match (body, &self.table) {
            (Body::Text(text), _) => self.checked_work(Prompt::of_text(text_of(text)?), Map::new()),
            (Body::Row(row), Some((_, template))) => {
                cp_table::check(row)?;
                let text = template.render(&BTreeMap::new(), Some(row), None);
                let prompt = text.map(|text| Prompt { row: Some((*row).to_owned()), ..Prompt::of_text(&text) });
                prompt.and_then(|prompt| self.checked_work(prompt, Map::new())).map_err(|e| e.with_row(Some(row)))
            }
            (Body::Row(data), None) => self.work_of_data(data),
            (Body::Record(record), _) => {
                self.work_of_data(record.data.ok_or_else(|| Error::validation("the prompt has no `data`"))?)
            }
        }
    }

    fn work_of_data(&self, data: &RawValue) -> Result<Work> {
        #[derive(Default, Deserialize)]
        struct Head<'a> {
            #[serde(borrow)]
            row: Option<&'a RawValue>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let Head { row, params } = record::read(data).unwrap_or_default();
        let prompt = record::read::<Prompt>(data).and_then(Prompt::checked);
        let work =
            prompt.and_then(|prompt| self.checked_work(prompt, params.map(params_of).transpose()?.unwrap_or_default()));
        work.map_err(|error| error.with_row(row))
    }

    fn checked_work(&self, mut prompt: Prompt, mut params: Map<String, Value>) -> Result<Work> {
        // Most providers refuse an empty text, and the others charge for it.
        if matches!(prompt.messages.last().map(|turn| &turn.content), Some(Content::Text(text)) if text.trim().is_empty())
        {
            return Err(Error::validation("the text to send is empty").hint("write what to ask: cp-llm -- TEXT"));
        }
        if self.system.is_some() {
            // The governed text of the id is not sent.
            prompt.prompt_id = None;
        }
        if let Some(tools) = &self.tools {
            prompt.tools.clone_from(tools);
        }
        let target = match (&self.model, &prompt.model) {
            (Some(target), _) => target.clone(),
            (None, Some(model)) => self.endpoints.target(model)?,
            (None, None) => self.endpoints.default_target()?,
        };
        params.extend(self.common.params.clone());
        let mut request = Request {
            system: self.system.clone().or_else(|| prompt.system.clone()).unwrap_or_default(),
            messages: prompt.messages.clone(),
            tools: prompt.tools.clone(),
            params,
            ..self.common.clone()
        };
        self.policy.permit(prompt.prompt_id.as_deref(), &request.system)?;
        let ready = self.backends.of(&target.endpoint)?;
        // Invalid prompts do not count.
        request.position = self.made.fetch_add(1, Ordering::Relaxed);
        if request.position > 0 {
            request.id = request.id.map(|id| format!("{id}#{}", request.position));
        }
        Ok(Work::new(prompt, request, target, ready))
    }
}

/// All members of `params`, including those that only a provider knows.
fn params_of(params: &RawValue) -> Result<Map<String, Value>> {
    let params: Map<String, Value> = record::read(params)?;
    match params.keys().find_map(|name| Some((name, reserved_hint(name)?))) {
        Some((name, hint)) => Err(Error::validation(format!("data.params: `{name}` is not a parameter")).hint(hint)),
        None => Ok(params),
    }
}

/// Members of a request that are not parameters, and the options that set them.
const RESERVED: [(&str, &str); 6] = [
    ("model", "use -m MODEL"),
    ("stream", "use --stream"),
    ("background", "use cp-llm batch for answers that come later"),
    ("messages", "give the text, or a prompt record"),
    ("contents", "give the text, or a prompt record"),
    ("input", "give the text, or a prompt record"),
];

/// The hint for a name that is not a parameter.
pub(super) fn reserved_hint(name: &str) -> Option<&'static str> {
    RESERVED.iter().find(|(own, _)| *own == name).map(|(_, hint)| *hint)
}

/// Parses `-o KEY=VALUE` and adds the parameters that have options of their own. Errors never contain a value.
pub(super) fn parameters(given: &[String], named: [(&str, Option<Value>); 2]) -> Result<Map<String, Value>> {
    let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let mut parameters: Map<String, Value> = named.collect();
    for given in given {
        let (key, text) = given.split_once('=').ok_or_else(|| {
            Error::usage("a parameter after -o has no `=`").hint("write -o KEY=VALUE, such as -o top_p=0.9")
        })?;
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(Error::usage(format!("`{key}` after -o is not the name of a parameter"))
                .hint("write -o KEY=VALUE, such as -o top_p=0.9"));
        }
        if let Some(hint) = reserved_hint(key) {
            return Err(Error::usage(format!("`{key}` is not a parameter")).hint(hint));
        }
        if parameters.insert(key.to_owned(), value(key, text)?).is_some() {
            return Err(Error::usage(format!("the parameter `{key}` is given twice")).hint("give it once"));
        }
    }
    Ok(parameters)
}

/// Parses JSON, or takes the text as a string. Invalid JSON is an error if it begins like JSON or is a number such as
/// NaN.
fn value(key: &str, text: &str) -> Result<Value> {
    let wrong = |what: &str| {
        Error::usage(format!("-o {key}: {what}"))
            .hint(format!("correct it, or write it as a text in JSON: -o '{key}=\"…\"'"))
    };
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(e) if text.trim_start().starts_with(['{', '[', '"']) => Err(wrong(&format!("the value is not JSON: {e}"))),
        Err(_) if text.trim().parse::<f64>().is_ok_and(|number| !number.is_finite()) => {
            Err(wrong("JSON has no such number"))
        }
        Err(_) => Ok(text.into()),
    }
}

/// The output of a dry run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DryRun {
    /// The name of the wire API, or the path of the program.
    backend: String,
    /// The name of the endpoint.
    endpoint: String,
    /// The model.
    model: String,
    /// The URL; absent for a backend without a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The headers, without the key.
    headers: Map<String, Value>,
    /// The body, exactly as it would be sent.
    request: Box<RawValue>,
}

impl Reply for DryRun {
    fn text(&self) -> String {
        self.request.get().to_owned()
    }
}

impl DryRun {
    /// The first request for a prompt.
    pub(super) fn of(engine: &Engine, work: &Work) -> Result<Self> {
        engine.note_lowered(work)?;
        let backend = &work.ready.backend;
        let request = serde_json::from_slice(&work.body()?).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let (url, headers) = backend.server().map(|server| server.destination(&work.request)).unzip();
        let headers = headers.unwrap_or_default().into_iter().map(|(name, value)| (name, value.into())).collect();
        let Target { endpoint, model } = &work.target;
        let (backend, endpoint) = (backend.name().to_owned(), endpoint.name.clone());
        Ok(Self { backend, endpoint, model: model.clone(), url, headers, request })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(given: &[&str]) -> Result<Value> {
        let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
        parameters(&given, [("max_tokens", Some(7.into())), ("temperature", None)]).map(Value::Object)
    }

    #[test]
    fn parameter_is_json_or_text() {
        let given = [
            "a=1",
            "b=-0.5",
            "c=true",
            "d=null",
            "e=[1]",
            "f={\"x\":1}",
            "g=\"1\"",
            "h=low",
            "i=",
            "j=a=b",
            "temperature=0",
        ];
        let expected = json!({"max_tokens":7,"a":1,"b":-0.5,"c":true,"d":null,"e":[1],"f":{"x":1},"g":"1","h":"low","i":"","j":"a=b","temperature":0});
        assert_eq!(parsed(&given).unwrap(), expected);
    }
}
