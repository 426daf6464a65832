//! What every program says of itself, from one implementation: `reference`, `context`, `doctor`, `changelog`, `completions`.

use std::collections::BTreeMap;

use clap::{ArgAction, ArgMatches, CommandFactory};
use serde::Serialize;
use serde_json::{Map, Value};

pub use crate::changelog::{Changelog, Release};

use crate::changelog;
use crate::config::{Origin, SETTINGS};
use crate::context::Context;
use crate::error::{Code, EXITS, Error, Result};
use crate::output::Reply;
use crate::program::{Check, Class, Credentials, Program, Status, VERSION, VerbDoc, command_of};
use crate::record::SCHEMA_VERSION;
use crate::schemas;

/// The verbs of every program.
pub(crate) const VERBS: [VerbDoc; 5] = [
    doc("reference", "reference", &["{} reference"]),
    doc("context", "context", &["{} context"]),
    doc("doctor", "doctor", &["{} doctor"]),
    doc("changelog", "changelog", &["{} changelog", "{} changelog --since 0.0.1"]),
    doc("completions", "completions", &["{} completions bash"]),
];

const fn doc(path: &'static str, output: &'static str, examples: &'static [&'static str]) -> VerbDoc {
    VerbDoc { path, class: Class::Query, output, examples, dangerous: false }
}

/// The schemas of what they print.
const SCHEMAS: [(&str, &str); 5] = [
    ("reference", include_str!("../schemas/reference.json")),
    ("context", include_str!("../schemas/context.json")),
    ("doctor", include_str!("../schemas/doctor.json")),
    ("changelog", include_str!("../schemas/changelog.json")),
    ("completions", include_str!("../schemas/completions.json")),
];

/// Their place in the command tree.
pub(crate) fn commands() -> Vec<clap::Command> {
    vec![
        clap::Command::new("reference").about("Print every verb, option, schema, exit status and error code"),
        clap::Command::new("context").about("Print the settings in force and where each comes from"),
        clap::Command::new("doctor").about("Look for what is wrong and say what to do about it"),
        clap::Command::new("changelog")
            .about("Print what changed")
            .arg(clap::Arg::new("since").long("since").value_name("VERSION").help("Only versions newer than this one")),
        clap::Command::new("completions").about("Print the completions of a shell").arg(
            clap::Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(clap::value_parser!(clap_complete::Shell))
                .help("bash, zsh, fish, elvish or powershell"),
        ),
    ]
}

/// Runs one of them.
pub(crate) fn run<C: CommandFactory>(verb: &str, matches: &ArgMatches, context: &mut Context) -> Result<()> {
    let own = matches.subcommand().map(|(_, own)| own);
    match verb {
        "reference" => context.out.answer(&reference(context.program, command_of::<C>(context.program))?),
        "context" => {
            let answer = settings(context);
            context.out.answer(&answer)
        }
        "doctor" => {
            let answer = doctor(context);
            context.out.answer(&answer)
        }
        "changelog" => {
            let since = own.and_then(|own| own.get_one::<String>("since")).map(String::as_str);
            context.out.answer(&changelog::changelog(context.program.name, since)?)
        }
        _ => {
            let shell = own.and_then(|own| own.get_one::<clap_complete::Shell>("shell")).copied();
            let shell = shell.ok_or_else(|| Error::usage("completions needs a shell"))?;
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command_of::<C>(context.program), context.program.name, &mut script);
            let script = String::from_utf8_lossy(&script).into_owned();
            context.out.answer(&Completions { shell: shell.to_string(), script })
        }
    }
}

/// A completion script.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Completions {
    /// Which shell it is for.
    pub shell: String,
    /// The script itself; with `--format raw` the bare bytes.
    pub script: String,
}

impl Reply for Completions {
    fn text(&self) -> String {
        self.script.trim_end().to_owned()
    }
}

/// Everything a program can do, for programs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reference {
    /// The program's name.
    pub tool: &'static str,
    /// The program's version.
    pub version: &'static str,
    /// The version of the envelope.
    pub schema_version: &'static str,
    /// One line.
    pub about: &'static str,
    /// T0 reads, T1 writes, T2 cannot be undone.
    pub risk_tier: &'static str,
    /// How ready for release it is, and on what evidence.
    pub release_readiness: Readiness,
    /// Its verbs.
    pub commands: Vec<CommandReference>,
    /// What they print, by the name in `output_schema`.
    pub schemas: BTreeMap<String, SchemaReference>,
    /// What each exit status means.
    pub exit_codes: BTreeMap<String, &'static str>,
    /// Every error code.
    pub error_codes: BTreeMap<&'static str, ErrorReference>,
    /// Whether it can update itself.
    pub update: UpdateReference,
}

/// How ready for release a program is.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Readiness {
    /// stable, beta or unpublishable.
    pub level: &'static str,
    /// Whether every public function must be covered by a test.
    pub fcc_required: bool,
    /// What the contract suite found.
    pub fcc_status: &'static str,
    /// Whether the tests need stand-ins for the services it calls.
    pub mock_upstream_required: bool,
    /// Whether they have them.
    pub mock_upstream_status: &'static str,
    /// Whether a stable release needs a recorded run against the real services.
    pub live_smoke_required_for_stable: bool,
    /// Whether there is one.
    pub live_smoke_status: &'static str,
    /// Why it is not further.
    pub reason: &'static str,
    /// What to look at before trusting the level.
    pub required_evidence: Vec<&'static str>,
}

fn readiness() -> Readiness {
    Readiness {
        level: "beta",
        fcc_required: true,
        fcc_status: "verified",
        mock_upstream_required: true,
        mock_upstream_status: "verified",
        live_smoke_required_for_stable: true,
        live_smoke_status: "missing",
        reason: "stable needs a recorded run against live model services",
        required_evidence: vec![
            "functional_contract_coverage_100",
            "mock_upstream_contract_tests",
            "recorded_live_smoke_for_stable",
        ],
    }
}

/// A verb, for programs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandReference {
    /// Its words; empty for what is meant when no verb is named.
    pub path: String,
    /// What gates it.
    pub r#type: Class,
    /// One line.
    pub description: String,
    /// Its own options and operands, and the options of every program.
    pub params: Vec<Parameter>,
    /// The name of what it prints in `schemas`.
    pub output_schema: String,
    /// Command lines that run as they are.
    pub examples: Vec<String>,
    /// Whether it also needs `--dangerous`.
    pub dangerous: bool,
}

/// An option or operand.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parameter {
    /// Its name: `--long`, or the operand's.
    pub name: String,
    /// flag, string, or the values it can take.
    pub r#type: String,
    /// Whether it must be there.
    pub required: bool,
    /// Whether it may be given more than once.
    pub multiple: bool,
    /// One line.
    pub description: String,
}

/// The shape of what a verb prints.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchemaReference {
    /// object or array.
    pub shape: String,
    /// Its members.
    pub fields: Vec<String>,
    /// Those that hold what a model, a command or a stranger wrote.
    pub untrusted_fields: Vec<String>,
    /// The JSON Schema.
    pub json_schema: Value,
}

/// A row of the error table.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorReference {
    /// The exit status.
    pub exit: u8,
    /// Whether trying again may help.
    pub retryable: bool,
    /// Whether the public contract defines it.
    pub core: bool,
}

/// Whether and how it updates itself.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpdateReference {
    /// It does not: a package manager does.
    pub supported: bool,
}

impl Reply for Reference {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} {}: {}", self.tool, self.version, self.about)];
        for command in &self.commands {
            lines.push(format!("  {:<24} {}", [self.tool, &command.path].join(" ").trim(), command.description));
        }
        lines.join("\n")
    }
}

fn reference(program: &'static Program, mut command: clap::Command) -> Result<Reference> {
    command.build();
    let docs: Vec<&VerbDoc> = program.verbs.iter().chain(&VERBS).collect();
    let mut commands = Vec::new();
    leaves(program, &command, &mut Vec::new(), &docs, &mut commands)?;
    let mut catalogue = BTreeMap::new();
    // What the dry run of a write answers with.
    let preview = docs.iter().any(|doc| doc.class == Class::Write).then_some(&schemas::PREVIEW);
    for (name, text) in program.schemas.iter().chain(&SCHEMAS).chain(preview) {
        catalogue.insert((*name).to_owned(), schema(name, text)?);
    }
    if let Some(doc) = docs.iter().find(|doc| !catalogue.contains_key(doc.output)) {
        return Err(Error::new(Code::Unknown, format!("the schema `{}` of `{}` is missing", doc.output, doc.path)));
    }
    let errors = Code::ALL.into_iter().map(Code::row);
    Ok(Reference {
        tool: program.name,
        version: VERSION,
        schema_version: SCHEMA_VERSION,
        about: program.about,
        risk_tier: program.risk_tier,
        release_readiness: readiness(),
        commands,
        schemas: catalogue,
        exit_codes: EXITS.into_iter().map(|(exit, meaning)| (exit.to_string(), meaning)).collect(),
        error_codes: errors
            .map(|row| (row.name, ErrorReference { exit: row.exit, retryable: row.retryable, core: row.core }))
            .collect(),
        update: UpdateReference { supported: false },
    })
}

fn leaves(
    program: &Program,
    command: &clap::Command,
    path: &mut Vec<String>,
    docs: &[&VerbDoc],
    into: &mut Vec<CommandReference>,
) -> Result<()> {
    for verb in command.get_subcommands() {
        let shown = program.shown(verb.get_name());
        if verb.is_hide_set() && !shown.is_empty() {
            continue;
        }
        path.push(shown.to_owned());
        if !verb.has_subcommands() || !verb.is_subcommand_required_set() {
            into.push(leaf(program, verb, path.join(" ").trim(), docs)?);
        }
        leaves(program, verb, path, docs, into)?;
        path.pop();
    }
    Ok(())
}

fn leaf(program: &Program, verb: &clap::Command, path: &str, docs: &[&VerbDoc]) -> Result<CommandReference> {
    let doc = docs
        .iter()
        .find(|doc| doc.path == path)
        .ok_or_else(|| Error::new(Code::Unknown, format!("the verb `{path}` is not described")))?;
    let params = verb.get_arguments().filter(|argument| !matches!(argument.get_id().as_str(), "help" | "version"));
    Ok(CommandReference {
        path: path.to_owned(),
        r#type: doc.class,
        description: verb.get_about().map(ToString::to_string).unwrap_or_default(),
        params: params.map(parameter).collect(),
        output_schema: doc.output.to_owned(),
        examples: doc.examples.iter().map(|example| example.replace("{}", program.name)).collect(),
        dangerous: doc.dangerous,
    })
}

fn parameter(argument: &clap::Arg) -> Parameter {
    let name = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => argument.get_id().to_string().to_uppercase(),
    };
    let values: Vec<String> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let r#type = match (argument.get_action().takes_values(), values.is_empty()) {
        (false, _) => "flag".to_owned(),
        (true, true) => "string".to_owned(),
        (true, false) => values.join("|"),
    };
    Parameter {
        name,
        r#type,
        required: argument.is_required_set(),
        multiple: matches!(argument.get_action(), ArgAction::Append | ArgAction::Count)
            || argument.get_num_args().is_some_and(|range| range.max_values() > 1),
        description: argument.get_help().map(ToString::to_string).unwrap_or_default(),
    }
}

fn schema(name: &str, text: &str) -> Result<SchemaReference> {
    let json_schema: Value = serde_json::from_str(text)
        .map_err(|e| Error::new(Code::Unknown, format!("the schema `{name}` is broken: {e}")))?;
    let names = |key: &str| -> Vec<String> {
        match json_schema.get(key) {
            Some(Value::Object(members)) => members.keys().cloned().collect(),
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    let shape = json_schema.get("type").and_then(Value::as_str).unwrap_or("object").to_owned();
    Ok(SchemaReference { shape, fields: names("properties"), untrusted_fields: names("x-untrusted"), json_schema })
}

/// The settings in force.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextAnswer {
    /// The program's version.
    pub version: &'static str,
    /// The home directory.
    pub home: String,
    /// Where the choice of home came from.
    pub home_origin: String,
    /// The agent that speaks.
    pub account: String,
    /// Each setting that has a value.
    pub config: BTreeMap<String, SettingAnswer>,
    /// Whether credentials are there, never what they are.
    pub credentials: Credentials,
}

/// A setting in force.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingAnswer {
    /// Its value.
    pub value: String,
    /// Where that came from.
    pub origin: Origin,
}

impl Reply for ContextAnswer {
    fn text(&self) -> String {
        let mut lines = vec![format!("home = {} ({})", self.home, self.home_origin)];
        lines.extend(
            self.config
                .iter()
                .map(|(key, setting)| format!("{key} = {} ({:?})", setting.value, setting.origin).to_lowercase()),
        );
        lines.extend(
            self.credentials.sources.iter().map(|found| format!("{}: key in {}", found.provider, found.source)),
        );
        lines.join("\n")
    }
}

fn settings(context: &Context) -> ContextAnswer {
    let in_force = |key: &str| {
        context.config.get(key, None).map(|value| SettingAnswer { value: value.text, origin: value.origin })
    };
    ContextAnswer {
        version: VERSION,
        home: context.home.root().display().to_string(),
        home_origin: context.home.origin().to_owned(),
        account: context.agent(None),
        config: SETTINGS.iter().filter_map(|s| in_force(s.key).map(|answer| (s.key.to_owned(), answer))).collect(),
        credentials: (context.program.credentials)(context),
    }
}

/// What `doctor` found.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doctor {
    /// One row for each thing that was looked at.
    pub checks: Vec<Check>,
    /// How many came out how.
    pub summary: Map<String, Value>,
}

impl Reply for Doctor {
    fn text(&self) -> String {
        let line = |check: &Check| {
            let mark = match check.status {
                Status::Pass => "✓",
                Status::Warn => "!",
                Status::Fail => "✗",
            };
            let fix = check.fix.as_ref().map(|fix| format!("\n  Hint: {fix}")).unwrap_or_default();
            format!("{mark} {}: {}{fix}", check.check, check.found)
        };
        self.checks.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn doctor(context: &mut Context) -> Doctor {
    let mut checks = vec![home_check(context), config_check(context)];
    checks.extend((context.program.checks)(context));
    let readiness = readiness();
    let minimum = format!("version {VERSION}, envelope {SCHEMA_VERSION}");
    checks.push(Check::pass("version", minimum));
    checks.push(Check::not_fine(
        "release_readiness",
        Status::Warn,
        format!("{}: {}", readiness.level, readiness.reason),
        "record a run against live services before calling it stable",
    ));
    let count = |status: Status| checks.iter().filter(|check| check.status == status).count().into();
    let summary = [("pass", count(Status::Pass)), ("warn", count(Status::Warn)), ("fail", count(Status::Fail))];
    Doctor { summary: summary.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(), checks }
}

fn home_check(context: &Context) -> Check {
    use rustix::fs::{Access, access};
    let root = context.home.root();
    let found = root.display().to_string();
    let existing = root.ancestors().find(|place| place.exists());
    match existing {
        Some(place) if access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok() && place.is_dir() => {
            Check::pass("home", found)
        }
        _ => Check::not_fine(
            "home",
            Status::Fail,
            format!("{found} cannot be written"),
            "give --home DIR, or set CP_HOME",
        ),
    }
}

fn config_check(context: &Context) -> Check {
    match crate::config::Config::load(&context.home.config_file()) {
        Ok(_) => Check::pass("config", "settings can be read"),
        Err(e) => Check::not_fine("config", Status::Fail, e.message(), e.cure().unwrap_or("correct the file")),
    }
}
