//! `cp-mcp serve`: the cp-tools as MCP tools for any agent, over standard streams.

mod answer;
mod call;
mod protocol;
mod server;
mod shared;
mod tools;

use cp_common::program::{Class, Input, VerbDoc};

pub(crate) use self::server::run;

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &[
        r#"echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | {} serve --json"#,
        r#"echo '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' | {} serve --only cp_read,cp_check >lines"#,
    ],
    input: &[Input::Bytes],
    events: &["mcp.session", "mcp.call", "mcp.result", "approval.granted", "approval.denied"],
    ..VerbDoc::new("serve", Class::Governed, "item")
};

/// Offer these programs as tools to any agent
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these tools, by name
    #[arg(long = "only", value_name = "NAME,…", value_delimiter = ',')]
    tools: Vec<String>,
}
