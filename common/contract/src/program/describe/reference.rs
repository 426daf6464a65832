//! `reference`: the machine-readable description of a program.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::program::identity::{Program, VERSION, VerbDoc};
use crate::program::{command, standard};
use crate::wire::error::EXITS;
use crate::wire::record::SCHEMA_VERSION;
use crate::wire::schemas::SHARED;
use crate::wire::{Code, Error, Reply, Result};

/// The machine-readable description of a program.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reference {
    /// The program's name.
    pub tool: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// The version of the envelope.
    pub schema_version: &'static str,
    /// Description, one line.
    pub about: &'static str,
    /// Risk tier: T0 reads, T1 writes, T2 cannot be undone.
    pub risk_tier: &'static str,
    /// Readiness for release, with the evidence.
    pub release_readiness: Value,
    /// The verbs.
    pub commands: Vec<Command>,
    /// The environment variables that the program reads, with descriptions.
    pub environment: BTreeMap<&'static str, &'static str>,
    /// The schemas of the output, by the name in `output_schema`: `json_schema`, and `untrusted_fields`, the members with
    /// text from a model, a command or a third party.
    pub schemas: BTreeMap<&'static str, Value>,
    /// The meaning of each exit status.
    pub exit_codes: BTreeMap<String, &'static str>,
    /// The error codes: the exit status, and whether a retry may succeed.
    pub error_codes: BTreeMap<&'static str, Value>,
}

/// The output of `scripts/conformance` for a version against a real server; the last line counts.
const LIVE: &str = include_str!("../../../live.jsonl");

/// True if this version passed every check of that run.
fn is_tried_live() -> bool {
    let last = LIVE.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    last.is_some_and(|last| last["version"] == concat!("cp-llm ", env!("CARGO_PKG_VERSION")) && last["failed"] == 0)
}

/// Returns the readiness for release.
pub(super) fn readiness() -> Value {
    let mut readiness: Value = serde_json::from_str(include_str!("../../../readiness.json")).unwrap_or_default();
    if is_tried_live() {
        readiness["live_smoke_status"] = "verified".into();
    }
    readiness
}

/// A verb.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Command {
    #[serde(flatten)]
    doc: VerbDoc,
    /// Description, one line.
    pub description: String,
    /// Its own options and operands, and the options of every program.
    pub params: Vec<Parameter>,
    /// The names in `schemas` of all possible output, including the main one.
    pub outputs: Vec<&'static str>,
    /// Command lines that run without changes.
    pub examples: Vec<String>,
    /// The possible exit statuses, explained in `exit_codes`.
    pub exit_codes: Vec<u8>,
}

/// An option or operand.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parameter {
    /// The name: `--long`, or the operand's, as in help.
    pub name: String,
    /// The short form: `-s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// The default value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// flag, string, or the possible values.
    pub r#type: String,
    /// True if it is required.
    pub required: bool,
    /// True if it may be repeated.
    pub multiple: bool,
    /// Description, one line.
    pub description: String,
}

impl Reply for Reference {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} {}: {}", self.tool, self.version, self.about)];
        for command in &self.commands {
            lines.push(format!("  {:<24} {}", [self.tool, command.doc.path].join(" ").trim(), command.description));
        }
        lines.join("\n")
    }
}

impl Reference {
    /// Keeps only the verb with these words, or those below it, and the schemas that they use.
    pub(super) fn narrowed(mut self, verb: Option<&str>) -> Result<Self> {
        let Some(verb) = verb else { return Ok(self) };
        let below = format!("{verb} ");
        let known: Vec<&str> = self.commands.iter().map(|command| command.doc.path).collect();
        self.commands.retain(|command| {
            let path = command.doc.path;
            path == verb || (!verb.is_empty() && path.starts_with(&below))
        });
        if self.commands.is_empty() {
            let error = Error::not_found(format!("{} has no verb `{verb}`", self.tool)).with("verbs", known.clone());
            return Err(error.nearest(verb, known, &format!("`{} --help` lists them", self.tool)));
        }
        self.schemas.retain(|name, _| self.commands.iter().any(|command| command.outputs.contains(name)));
        Ok(self)
    }
}

pub(super) fn reference(program: &'static Program, mut root: clap::Command) -> Result<Reference> {
    root.build();
    let commands: Vec<Command> =
        command::verbs(&root).iter().map(|(path, verb)| leaf(program, verb, path)).collect::<Result<_>>()?;
    let outputs: Vec<&str> = commands.iter().flat_map(|command| command.outputs.iter().copied()).collect();
    let shared = SHARED.iter().filter(|(name, _)| outputs.contains(name));
    let schemas = program.schemas.iter().chain(shared).map(|(name, text)| (*name, schema(text)));
    Ok(Reference {
        tool: program.name,
        version: VERSION,
        schema_version: SCHEMA_VERSION,
        about: program.about,
        risk_tier: program.risk_tier,
        release_readiness: readiness(),
        commands,
        environment: standard::ENVIRONMENT.into_iter().chain(program.environment.iter().copied()).collect(),
        schemas: schemas.collect(),
        exit_codes: EXITS.into_iter().map(|(exit, meaning)| (exit.to_string(), meaning)).collect(),
        error_codes: Code::ROWS
            .iter()
            .map(|row| (row.name, json!({"exit": row.exit, "retryable": row.retryable})))
            .collect(),
    })
}

fn leaf(program: &Program, verb: &clap::Command, path: &str) -> Result<Command> {
    let doc =
        program.doc(path).ok_or_else(|| Error::new(Code::Unknown, format!("the verb `{path}` is not described")))?;
    Ok(Command {
        doc: *doc,
        description: command::about(verb),
        params: parameters(verb),
        outputs: doc.outputs(),
        examples: doc.examples.iter().map(|example| example.replace("{}", program.name)).collect(),
        exit_codes: doc.all_exits(),
    })
}

fn parameters(verb: &clap::Command) -> Vec<Parameter> {
    let shown =
        |argument: &&clap::Arg| !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version");
    verb.get_arguments().filter(shown).map(parameter).collect()
}

fn parameter(argument: &clap::Arg) -> Parameter {
    let takes_value = argument.get_action().takes_values();
    let values: Vec<String> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let defaults = argument.get_default_values().iter().filter(|_| takes_value).map(|value| value.to_string_lossy());
    Parameter {
        name: command::name(argument),
        short: argument.get_long().and(argument.get_short()).map(|short| format!("-{short}")),
        default: defaults.map(String::from).reduce(|all, value| all + "," + &value),
        r#type: match values.join("|") {
            _ if !takes_value => "flag".to_owned(),
            none if none.is_empty() => "string".to_owned(),
            values => values,
        },
        required: argument.is_required_set(),
        multiple: command::is_multiple(argument),
        description: argument.get_help().map(ToString::to_string).unwrap_or_default(),
    }
}

fn schema(text: &str) -> Value {
    let schema: Value = serde_json::from_str(text).unwrap_or_default();
    let untrusted = schema.get("x-untrusted").cloned().unwrap_or_else(|| json!([]));
    json!({"untrusted_fields": untrusted, "json_schema": schema})
}
