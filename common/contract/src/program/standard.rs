//! The verbs that every program has.

use crate::program::identity::{Program, VerbDoc};
use crate::wire::schemas;

/// The verbs of every program.
pub(crate) const VERBS: [VerbDoc; 5] = [
    doc(
        "reference",
        "reference",
        &["{} reference", "{} reference --fields options", "{} reference --verb doctor --fields commands"],
    ),
    doc("context", "context", &["{} context"]),
    VerbDoc { is_for_person: true, ..doc("doctor", "doctor", &["{} doctor"]) },
    doc("changelog", "changelog", &["{} changelog", "{} changelog --since 0.0.1"]),
    doc("completions", "completions", &["{} completions bash"]),
];

const fn doc(path: &'static str, output: &'static str, examples: &'static [&'static str]) -> VerbDoc {
    VerbDoc { path, output, examples, ..VerbDoc::EMPTY }
}

/// The variables of the environment that every program reads.
pub(crate) const ENVIRONMENT: [(&str, &str); 3] = [
    ("CP_HOME", "The home directory, unless --home names one"),
    ("XDG_DATA_HOME", "The data directory: cp in it is the home, unless CP_HOME is set"),
    ("CP_FORMAT", "The format of results: json, text or raw"),
];

/// The schemas of these verbs, and those that any verb may use.
pub(crate) const SCHEMAS: [(&str, &str); 8] = [
    ("reference", include_str!("../../schemas/reference.json")),
    ("context", include_str!("../../schemas/context.json")),
    ("doctor", include_str!("../../schemas/doctor.json")),
    ("changelog", include_str!("../../schemas/changelog.json")),
    ("completions", include_str!("../../schemas/completions.json")),
    schemas::PREVIEW,
    schemas::SUMMARY,
    schemas::ERROR,
];

/// Returns the commands of these verbs.
pub(crate) fn commands(program: &Program) -> Vec<clap::Command> {
    vec![
        clap::Command::new("reference").about("Print every verb, option, schema, exit status and error code").arg(
            clap::Arg::new("verb")
                .long("verb")
                .value_name("VERB")
                .help("Only this verb, or those below it, and their schemas; '' is the implicit verb"),
        ),
        clap::Command::new("context").about("Print the effective settings and the source of each"),
        clap::Command::new("doctor").about("Check the setup and report how to fix it").args(program.doctor.iter().map(
            |key| {
                clap::Arg::new(*key)
                    .long(*key)
                    .value_name("VALUE")
                    .help(format!("The {key} to check, instead of the configured one"))
            },
        )),
        clap::Command::new("changelog")
            .about("Print the changes of each version")
            .arg(clap::Arg::new("since").long("since").value_name("VERSION").help("Only versions newer than this one")),
        clap::Command::new("completions").about("Print the completions of a shell").arg(
            clap::Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(["bash", "zsh", "fish"])
                .help("The shell: bash, zsh or fish"),
        ),
    ]
}
