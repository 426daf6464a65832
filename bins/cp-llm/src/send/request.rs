//! The request that a prompt becomes: options override the members of the prompt. `--dry-run` prints it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cp_common::stream::filter::{Body, text_of};
use cp_common::wire::{Content, Prompt, Reply, ToolSpec, record};
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::backend::Destination;
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{Endpoint, Target};
use crate::backend::server::header;
use crate::engine::{Engine, Work};
use crate::policy::Policy;
use crate::wire_api::Request;

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
            (None, None) => Ok((self.endpoints.default_target()?, Vec::new())),
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
    match params.keys().find_map(|name| Some((name, reserved_hint(name)?))) {
        Some((name, hint)) => Err(Error::validation(format!("data.params: `{name}` is not a parameter")).hint(hint)),
        None => Ok(params),
    }
}

/// Members of a body that are no parameters, and what sets them.
const RESERVED: [(&str, &str); 5] = [
    ("model", "use -m MODEL"),
    ("stream", "use --stream"),
    ("messages", "give the text, or a prompt record"),
    ("contents", "give the text, or a prompt record"),
    ("input", "give the text, or a prompt record"),
];

/// What sets a member of the body that is no parameter; none for one that is.
pub(super) fn reserved_hint(name: &str) -> Option<&'static str> {
    RESERVED.iter().find(|(own, _)| *own == name).map(|(_, hint)| *hint)
}

/// The parameters, those that have an option of their own among them. No error repeats a value.
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

/// The JSON that a text is, else the text. What begins as JSON and is none was meant as JSON, and so was a number that JSON has not.
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

/// The headers, each as a name and a value. No error repeats a value.
pub(super) fn headers(given: &[String]) -> Result<Vec<(String, String)>> {
    let mut headers: Vec<(String, String)> = Vec::with_capacity(given.len());
    for given in given {
        let form = "write --header NAME=VALUE or --header 'Name: value'";
        let Some((name, value)) = given.split_once(['=', ':']) else {
            return Err(Error::usage("a header has neither `=` nor `:`").hint(form));
        };
        let (name, value) =
            header(name, value).map_err(|e| Error::usage(e.message()).hint(e.hint_text().unwrap_or(form)))?;
        if headers.iter().any(|(known, _)| *known == name) {
            return Err(Error::usage(format!("the header {name} is given twice")).hint("give it once"));
        }
        headers.push((name, value));
    }
    Ok(headers)
}

/// What a dry run prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DryRun {
    /// How it would be asked.
    backend: String,
    /// Who would be asked.
    endpoint: String,
    /// Where the request would go; absent for a backend without a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The headers, the key left out.
    headers: Map<String, Value>,
    /// The body, byte for byte.
    request: Box<RawValue>,
}

impl Reply for DryRun {
    fn text(&self) -> String {
        self.request.get().to_owned()
    }
}

impl DryRun {
    /// The request that the work would begin with.
    pub(super) fn of(engine: &Engine, work: &mut Work) -> Result<Self> {
        engine.note_lowered(work)?;
        let backend = engine.ready(work)?.backend;
        let body = backend.body(work.request())?;
        let request = serde_json::from_slice(&body).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let (url, headers) = match backend.destination(work.request()) {
            Some(Destination { url, headers }) => (Some(url), headers),
            None => (None, Vec::new()),
        };
        let headers = headers.into_iter().map(|(name, value)| (name, value.into())).collect();
        let endpoint = work.target().endpoint.name.clone();
        Ok(Self { backend: backend.name().to_owned(), endpoint, url, headers, request })
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
    fn a_value_is_json_where_it_parses_and_else_text() {
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

    #[test]
    fn what_is_no_parameter_is_refused_and_its_value_not_repeated() {
        for given in [
            "secret",
            "=secret",
            "a b=secret",
            "a={secret",
            "a=[\"secret\"",
            "model=secret",
            "max_tokens=11",
            "a=NaN",
            "a=1e999",
        ] {
            let error = parsed(&[given]).unwrap_err();
            assert!(!format!("{error:?}{:?}", error.hint_text()).contains("secret"), "{given}: {error:?}");
        }
        assert!(parsed(&["a=1", "a=2"]).unwrap_err().message().contains("twice"));
    }

    #[test]
    fn a_header_is_a_token_and_visible_characters() {
        let parsed = |given: &str| headers(&[given.to_owned()]);
        assert_eq!(parsed("X-A: b=c").unwrap(), [("x-a".to_owned(), "b=c".to_owned())]);
        assert_eq!(parsed("x-a=b:c").unwrap(), [("x-a".to_owned(), "b:c".to_owned())]);
        for given in
            ["secret", "=secret", "a b: secret", "x: secret\r\ny: z", "x=secretß", "Host: secret", "Content-Length=5"]
        {
            let error = parsed(given).unwrap_err();
            let is_repeated = format!("{error:?}").contains("secret") && given != "secret";
            assert!(!is_repeated, "{given}: {error:?}");
        }
        assert!(headers(&["a=1".to_owned(), "A: 2".to_owned()]).unwrap_err().message().contains("twice"));
    }
}
