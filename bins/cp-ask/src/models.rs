//! The models of the backends, and the default model in `config/cp.toml`.

use clap::Subcommand;
use cp_common::coprocess::ask_with;
use cp_common::home::config::Config;
use cp_common::home::{Home, write_whole};
use cp_common::output::{Output, to_stderr};
use cp_common::{Error, Result};
use serde_json::Value;
use toml_edit::{DocumentMut, value};

use crate::environment::{Rest, execute, variable};

/// The arguments of `models`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_flag = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    rest: Rest,
}

#[derive(Subcommand)]
enum Action {
    /// Print or set the default model
    Default {
        /// The model, as -m takes it
        model: Option<String>,
    },
}

/// The providers with a key, and the model of each where nobody names one.
pub(crate) const PROVIDERS: [(&str, &str); 3] =
    [("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-5.2"), ("gemini", "gemini-2.5-pro")];

/// Returns the endpoints with a key, and the source of each key.
pub(crate) fn keys() -> Result<Vec<(String, String)>> {
    let context: Value = ask_with("cp-llm", &["context"], b"", [])?;
    let sources = context["credentials"]["sources"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(sources.map(|source| (text(&source["provider"]), text(&source["source"]))).collect())
}

/// Returns the model that is asked for, or that of the only provider with a key if neither the command line nor the
/// prompt names one.
pub(crate) fn of(asked: Option<&String>, backend: Option<&str>, prompt: Option<&str>) -> Option<String> {
    if asked.is_some() || prompt.is_some() {
        return asked.cloned();
    }
    usual(backend, &settings().ok()?)
}

fn settings() -> Result<Config> {
    Config::load(&Home::find(None)?.config_file())
}

fn usual(backend: Option<&str>, config: &Config) -> Option<String> {
    if config.get("model", None).is_some() {
        return None;
    }
    let only = || keys().ok().filter(|keys| keys.len() == 1)?.pop().map(|(name, _)| name);
    let provider = config.text("backend", backend).or_else(only)?;
    // A server in the place of a provider has models of its own.
    let is_own = config.names("endpoints").any(|name| name == provider)
        || variable(&format!("{}_BASE_URL", provider.to_uppercase())).is_some();
    let (name, model) = PROVIDERS.iter().find(|(name, _)| *name == provider && !is_own)?;
    Some(format!("{name}/{model}"))
}

/// Says how to store a key, if no key and no setting chooses a backend.
pub(crate) fn missing_key(asked: Option<&String>, backend: Option<&str>) -> Option<String> {
    let config = settings().ok()?;
    let model = asked.cloned().or_else(|| config.text("model", None)).unwrap_or_default();
    let is_named = model.contains('/') || config.text("backend", backend).is_some();
    if is_named || config.names("endpoints").next().is_some() || !keys().ok()?.is_empty() {
        return None;
    }
    let is_of = |usual: &str| usual.split('-').next() == model.split('-').next();
    let provider = PROVIDERS.iter().find(|(_, usual)| is_of(usual)).map_or("openai", |(name, _)| name);
    Some(format!(
        "  Hint: cp-ask keys set {provider}\n  or anthropic, gemini, openai; offline: cp-ask --backend stub hi"
    ))
}

/// Lists the models with `cp-llm`, or prints or sets the default one.
pub(crate) fn run(args: Args, home: &Home, out: &mut Output) -> Result<u8> {
    let set = |config: &Config| config.text("model", None).or_else(|| usual(None, config));
    let Some(Action::Default { model }) = args.action else {
        if let Some(model) = set(&settings()?) {
            to_stderr(&format!("cp-ask: {model} is the default; cp-ask models default MODEL sets another\n"));
        }
        return execute("cp-llm", &["models", "--format", "text"], args.rest);
    };
    let file = home.config_file();
    if let Some(model) = &model {
        // The file is valid or absent.
        Config::load(&file)?;
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut document: DocumentMut = text.parse().map_err(|e| Error::config(format!("{e}")).in_file(&file))?;
        document["model"] = value(model.as_str());
        write_whole(&file, document.to_string().as_bytes())?;
    }
    let none = || Error::not_found("no default model is set").hint("cp-ask models default MODEL sets it");
    let current = set(&settings()?).ok_or_else(none)?;
    out.raw(format!("{current}\n").as_bytes())?;
    Ok(0)
}
