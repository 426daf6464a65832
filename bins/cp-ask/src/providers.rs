//! The providers: the keys, each in a file of `keys/api/` that only its owner can read, and the models. `cp-llm` knows
//! the endpoints, reads the keys and chooses the default model. A key is never printed.

use std::path::Path;

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use cp_common::context::given::{self, text_of};
use cp_common::coprocess::{ask_with, cmd};
use cp_common::home::config::{Config, variable};
use cp_common::home::{Home, is_id, resolved, write_whole};
use cp_common::output::{Output, to_stderr};
use cp_common::{Error, Result, signals};
use rustix::stdio::stdin;
use rustix::termios::isatty;
use serde_json::Value;
use toml_edit::{DocumentMut, value};

use crate::{Rest, TEXT, execute};

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Store the key of a provider or an endpoint, from standard input
    Set {
        /// The provider or the endpoint
        name: String,
    },
    /// List the names of keys and their sources, never the keys
    List,
}

/// Runs `keys` and returns the text to print.
pub(crate) fn keys(action: Option<&Keys>, home: &Home) -> Result<String> {
    let Some(Keys::Set { name }) = action else {
        let lines = sources()?.into_iter().map(|(name, source)| format!("{name:<16}{source}\n"));
        return Ok(lines.collect::<Vec<_>>().concat());
    };
    let unknown = || {
        let error = Error::not_found(format!("no provider or endpoint `{name}` takes a key"));
        error.hint(format!("choose anthropic, openai or gemini, or add [endpoints.{name}] to config/cp.toml"))
    };
    if !is_id(name) {
        return Err(unknown());
    }
    let file = resolved(&home.keys().join("api").join(name));
    write_whole(&file, format!("{}\n", read_key(name)?).as_bytes())?;
    // What cp-llm does not read would only seem to be stored.
    if !sources()?.iter().any(|(known, _)| known == name) {
        std::fs::remove_file(&file).map_err(|e| Error::io("removing", e).in_file(&file))?;
        return Err(unknown());
    }
    Ok(format!("the key of {name} is stored in {}\n", file.display()))
}

/// Returns the endpoints with a key, and the source that `cp-llm` reads each key from.
fn sources() -> Result<Vec<(String, String)>> {
    let context: Value = ask_with("cp-llm", &["context"], b"", [])?;
    let sources = context["credentials"]["sources"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(sources.map(|source| (text(&source["provider"]), text(&source["source"]))).collect())
}

/// Reads a key from standard input, on a terminal without echo.
fn read_key(name: &str) -> Result<String> {
    let text = if isatty(stdin()) {
        let silent =
            "trap 'stty echo' EXIT INT; stty -echo; printf 'Key of %s: ' \"$1\" >&2; read -r key; printf %s \"$key\"";
        let key = cmd("sh", ["-c", silent, "sh", name]).unchecked().read().map_err(|e| Error::io("starting sh", e))?;
        signals::check()?;
        to_stderr("\n");
        key
    } else {
        text_of(&given::bytes(Path::new("-"), 64 << 10)?)?.to_owned()
    };
    let key = text.trim();
    if key.is_empty() || key.contains(|c: char| !c.is_ascii_graphic()) {
        return Err(Error::validation("standard input does not hold one key").hint("a key is one word without spaces"));
    }
    Ok(key.to_owned())
}

#[derive(Subcommand)]
pub(crate) enum Models {
    /// Print or set the default model
    Default {
        /// The model, as -m takes it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        model: Option<String>,
    },
}

/// Lists the models with `cp-llm`, or prints or sets the default one.
pub(crate) fn models(action: Option<Models>, rest: Rest, home: &Home, out: &mut Output) -> Result<u8> {
    // A link, such as one to a file under version control, stays.
    let file = resolved(&home.config_file());
    let Some(Models::Default { model }) = action else {
        if let Ok(model) = default_model(&file) {
            to_stderr(&format!("cp-ask: {model} is the default; cp-ask models default MODEL sets another\n"));
        }
        return execute("cp-llm", &["models"], rest, &[TEXT]);
    };
    if let Some(model) = &model {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut document: DocumentMut = text.parse().map_err(|e| Error::config(format!("{e}")).in_file(&file))?;
        document["model"] = value(model.as_str());
        write_whole(&file, document.to_string().as_bytes())?;
        if let Some(other) = variable("CP_MODEL").filter(|other| other != model) {
            to_stderr(&format!("cp-ask: {model} is stored, but CP_MODEL has precedence: {other}\n"));
        }
    }
    out.raw(format!("{}\n", default_model(&file)?).as_bytes())?;
    Ok(0)
}

/// Returns the model of the settings, or the one that `cp-llm` would ask.
fn default_model(settings: &Path) -> Result<String> {
    if let Some(model) = Config::load(settings)?.text("model", None) {
        return Ok(model);
    }
    let request: Value = ask_with("cp-llm", &["--dry-run", "--input=text"], b"hi", [])?;
    let member = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    Ok(format!("{}/{}", member("endpoint"), member("model")))
}
