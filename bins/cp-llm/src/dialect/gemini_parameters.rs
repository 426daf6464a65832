//! Where Gemini has its parameters: most in `generationConfig`, and the others beside it.

use serde_json::{Map, Value, json};

use super::{Request, list, schema};

/// The members of `generationConfig`, as the provider's own types have them.
const GENERATION: &str = "audioTimestamp audioTranscriptionConfig candidateCount enableAffectiveDialog enableEnhancedCivicAnswers \
frequencyPenalty imageConfig logprobs maxOutputTokens mediaResolution modelConfig presencePenalty responseFormat responseJsonSchema \
responseLogprobs responseMimeType responseModalities responseSchema routingConfig seed speechConfig stopSequences temperature \
thinkingConfig topK topP translationConfig";
/// The members beside it.
const BESIDE: &str = "cachedContent modelArmorConfig safetySettings serviceTier systemInstruction toolConfig";

/// The members of `generationConfig` and those beside it that the parameters are. What is not known here goes beside, as it is given.
pub(super) fn places(request: &Request) -> (Map<String, Value>, Map<String, Value>) {
    let (mut config, mut beside) = (request.object("generationConfig"), Map::new());
    for (name, value) in &request.params {
        let has = |list: &str, name: &str| list.split(' ').any(|known| known == name);
        match (name.as_str(), camel(name)) {
            ("generationConfig" | "tools" | "reasoning_effort" | "thinking", _) => {}
            ("max_tokens", _) => drop(config.insert("maxOutputTokens".to_owned(), value.clone())),
            ("stop", _) => drop(config.insert("stopSequences".to_owned(), list(value))),
            (_, known) if has(GENERATION, &known) => drop(config.insert(known, value.clone())),
            (_, known) if has(BESIDE, &known) => drop(beside.insert(known, value.clone())),
            (name, _) => drop(beside.insert(name.to_owned(), value.clone())),
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
    (config, beside)
}

/// How much the model thinks, and whether that is shown.
fn thinking(request: &Request) -> Map<String, Value> {
    let mut members = Map::new();
    let given = request.object("thinking");
    let budget = match given.get("type").and_then(Value::as_str) {
        Some("disabled") => Some(0.into()),
        Some("adaptive") => Some((-1).into()),
        _ => given.get("budget_tokens").cloned(),
    };
    if let Some(budget) = budget {
        members.insert("thinkingBudget".to_owned(), budget);
    } else if let Some(effort) = request.params.get("reasoning_effort") {
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
    let mut is_start = false;
    let letters = name.chars().filter_map(|letter| match (std::mem::replace(&mut is_start, letter == '_'), letter) {
        (_, '_') => None,
        (true, letter) => Some(letter.to_ascii_uppercase()),
        (false, letter) => Some(letter),
    });
    letters.collect()
}
