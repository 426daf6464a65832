//! `cp-session`: keep conversations as ledgers.
//!
//! A session is a directory with a ledger of turns ([`transcript`]). A round, which is a question and its answer, is
//! stored in one append ([`round`]): many programs may write to a session, and none leaves a partial round.

mod append;
mod compact;
mod delete;
mod lifecycle;
mod load;
mod memory;
mod round;
mod search;
mod session;
mod start;
mod transcript;

use cp_common::program::{Check, Program};
use cp_common::{Context, Result};
use cp_ledger::sessions::Session;

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-session",
    about: "keep conversations as ledgers",
    risk_tier: "T1",
    compliance: None,
    verbs: &[
        start::DOC,
        append::DOC,
        append::TEE_DOC,
        load::DOC,
        session::COUNT_DOC,
        session::SHOW_DOC,
        lifecycle::END_DOC,
        lifecycle::REOPEN_DOC,
        lifecycle::RENAME_DOC,
        session::LIST_DOC,
        lifecycle::CLEAR_DOC,
        load::EXPORT_DOC,
        start::FORK_DOC,
        compact::DOC,
        search::DOC,
        memory::REMEMBER_DOC,
        memory::RECALL_DOC,
        delete::DOC,
    ],
    groups: &[
        ("Hold a conversation", &["start", "append", "tee", "load", "count", "end", "reopen"]),
        ("Find one", &["list", "show", "search"]),
        ("Change one", &["rename", "clear", "fork", "compact", "delete"]),
        ("Exchange", &["export"]),
        ("Remember beyond a session", &["remember", "recall"]),
    ],
    environment: &[
        ("CP_SESSION", "The session, where none is named"),
        ("CP_AGENT", "The agent: an id in config/agents.json, or default"),
        ("CP_TIER", "The tier of new sessions and runs: ho1, ho2 or ho3"),
    ],
    schemas: cp_common::schemas!(
        session_added session_loaded session_counted session_shown session_page session_changed session_deleted
        session_found
    ),
    checks,
    credentials: None,
    audit: cp_ledger::audit,
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-session")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Start(start::Args),
    Append(append::Args),
    Tee(append::TeeArgs),
    Load(load::Args),
    /// Count the turns
    Count(session::Args),
    List(session::ListArgs),
    /// Archive the turns and begin again
    Clear(lifecycle::Args),
    /// Write summary.json into the session, without secrets
    Export(lifecycle::Args),
    Fork(start::ForkArgs),
    Delete(delete::Args),
    Compact(compact::Args),
    Search(search::Args),
    Remember(memory::RememberArgs),
    Recall(memory::RecallArgs),
    /// Print what a session is and where it is stored
    Show(session::Args),
    /// End a session: nothing more is added to it
    End(lifecycle::Args),
    /// Open a session again that has ended
    Reopen(lifecycle::Args),
    /// Name a session: the name stands for its id everywhere
    Rename(lifecycle::RenameArgs),
}

/// Runs the verb of the command line.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Start(args) => start::run(&args, context),
        Verb::Append(args) => append::run(&args, context),
        Verb::Tee(args) => append::tee(&args, context),
        Verb::Load(args) => load::run(&args, context),
        Verb::Count(args) => session::count(&args, context),
        Verb::List(args) => session::list(&args, context),
        Verb::Clear(args) => lifecycle::clear(&args, context),
        Verb::Export(args) => load::export(&args, context),
        Verb::Fork(args) => start::fork(&args, context),
        Verb::Delete(args) => delete::run(&args, context),
        Verb::Compact(args) => compact::run(&args, context),
        Verb::Search(args) => search::run(&args, context),
        Verb::Remember(args) => memory::remember(&args, context),
        Verb::Recall(args) => memory::recall(&args, context),
        Verb::Show(args) => session::show(&args, context),
        Verb::End(args) => lifecycle::end(&args, context),
        Verb::Reopen(args) => lifecycle::reopen(&args, context),
        Verb::Rename(args) => lifecycle::rename(&args, context),
    }
}

fn checks(context: &mut Context) -> Vec<Check> {
    vec![match Session::all(&context.home) {
        Ok(all) => Check::pass("sessions", format!("{} in {}", all.len(), context.home.root().display())),
        Err(e) => Check::not_fine(
            "sessions",
            cp_common::program::Status::Fail,
            e.message(),
            "give --home a directory that can be read",
        ),
    }]
}

#[cfg(test)]
mod tests {
    use cp_testkit::{of_record, same_or_update};
    use schemars::{Schema, schema_for};

    /// The checked-in schemas are those of the types. `UPDATE=1` rewrites them.
    #[test]
    fn schemas_are_those_of_the_types() {
        let schemas: [(&str, Schema); 8] = [
            ("session_added", of_record(schema_for!(crate::round::Added))),
            ("session_loaded", schema_for!(crate::load::Loaded)),
            ("session_counted", schema_for!(crate::session::Counted)),
            ("session_shown", schema_for!(crate::session::Shown)),
            ("session_page", schema_for!(cp_common::wire::Page<crate::session::Listed>)),
            ("session_changed", schema_for!(crate::lifecycle::Changed)),
            ("session_deleted", schema_for!(crate::delete::Deleted)),
            ("session_found", schema_for!(cp_common::wire::Page<crate::search::Found>)),
        ];
        for (name, mut schema) in schemas {
            if name == "session_found" {
                schema.insert("x-untrusted".to_owned(), serde_json::json!(["items"]));
            }
            same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
        }
    }
}
