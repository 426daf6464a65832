//! Where Gemini has its parameters: most in `generationConfig`, and the others beside it.

use serde_json::{Map, Value, json};

use super::{Request, list, schema};

/// The members of `generationConfig`, as the provider's own types have them.
const GENERATION: [&str; 27] = [
    "audioTimestamp",
    "audioTranscriptionConfig",
    "candidateCount",
    "enableAffectiveDialog",
    "enableEnhancedCivicAnswers",
    "frequencyPenalty",
    "imageConfig",
    "logprobs",
    "maxOutputTokens",
    "mediaResolution",
    "modelConfig",
    "presencePenalty",
    "responseFormat",
    "responseJsonSchema",
    "responseLogprobs",
    "responseMimeType",
    "responseModalities",
    "responseSchema",
    "routingConfig",
    "seed",
    "speechConfig",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
    "translationConfig",
];

/// The members of the body that may be spelt with underscores too.
const BESIDE: [&str; 6] =
    ["cachedContent", "modelArmorConfig", "safetySettings", "serviceTier", "systemInstruction", "toolConfig"];

/// The parameters of a request, each in its place.
pub(super) struct Places {
    /// The members of `generationConfig`.
    pub config: Map<String, Value>,
    /// The members beside it.
    pub others: Map<String, Value>,
}

/// The parameters of a request in their places. What is not known here goes beside, as it is given.
pub(super) fn places(request: &Request) -> Places {
    let (mut config, mut others) = (request.object("generationConfig"), Map::new());
    for (name, value) in &request.params {
        match name.as_str() {
            "generationConfig" | "tools" | "reasoning_effort" | "thinking" => {}
            "max_tokens" => drop(config.insert("maxOutputTokens".to_owned(), value.clone())),
            "stop" => drop(config.insert("stopSequences".to_owned(), list(value))),
            name => match camel(name) {
                known if GENERATION.contains(&known.as_str()) => drop(config.insert(known, value.clone())),
                known if BESIDE.contains(&known.as_str()) => drop(others.insert(known, value.clone())),
                _ => drop(others.insert(name.to_owned(), value.clone())),
            },
        }
    }
    if let Some(given) = &request.schema {
        config.insert("responseMimeType".to_owned(), "application/json".into());
        config.insert("responseJsonSchema".to_owned(), schema::gemini(given));
    }
    let thinking = thinking(request);
    if !thinking.is_empty() {
        let known = config.entry("thinkingConfig").or_insert_with(|| json!({}));
        if let Some(known) = known.as_object_mut() {
            for (name, value) in thinking {
                known.entry(name).or_insert(value);
            }
        }
    }
    Places { config, others }
}

/// How much the model thinks, and whether that is shown.
fn thinking(request: &Request) -> Map<String, Value> {
    let mut members = Map::new();
    if let Some(Value::Object(given)) = request.params.get("thinking") {
        let budget = match given.get("type").and_then(Value::as_str) {
            Some("disabled") => Some(0.into()),
            Some("adaptive") => Some((-1).into()),
            _ => given.get("budget_tokens").cloned(),
        };
        members.extend(budget.map(|budget| ("thinkingBudget".to_owned(), budget)));
    }
    if let Some(effort) = request.params.get("reasoning_effort").filter(|_| members.is_empty()) {
        // Up to 2.5 there are only budgets; these are what the provider itself makes of an effort.
        let budget = match effort.as_str() {
            Some("none") => Some(0),
            Some("minimal" | "low") => Some(1024),
            Some("medium") => Some(8192),
            Some("high") => Some(24_576),
            _ => None,
        };
        let has_levels = !["gemini-1", "gemini-2"].iter().any(|old| request.model.contains(old));
        match budget.filter(|budget| !has_levels || *budget == 0) {
            Some(budget) => members.insert("thinkingBudget".to_owned(), budget.into()),
            None => members.insert("thinkingLevel".to_owned(), effort.clone()),
        };
    }
    if request.reasoning {
        members.insert("includeThoughts".to_owned(), true.into());
    }
    members
}

/// A name with underscores as the provider spells it.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut spelt = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        spelt.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        spelt.push_str(letters.as_str());
    }
    spelt
}
