//! The models of the backends, and the default model in `config/cp.toml`.

use clap::Subcommand;
use cp_common::home::config::{Config, Origin};
use cp_common::home::{Home, write_whole};
use cp_common::output::{Output, to_stderr};
use cp_common::{Error, Result};
use toml_edit::{DocumentMut, value};

use crate::execute::{Rest, execute};

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

/// Lists the models with `cp-llm`, or prints or sets the default one.
pub(crate) fn run(args: Args, home: &Home, out: &mut Output) -> Result<u8> {
    let Some(Action::Default { model }) = args.action else {
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
    let current = Config::load(&file)?.get("model", None).ok_or_else(none)?;
    if model.is_some() && current.origin == Origin::Environment {
        to_stderr("cp-ask: CP_MODEL overrides config/cp.toml\n");
    }
    out.raw(format!("{}\n", current.text).as_bytes())?;
    Ok(0)
}
