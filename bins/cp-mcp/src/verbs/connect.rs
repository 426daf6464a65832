//! `cp-mcp connect`: any server over streamable HTTP, behind the gate.

use std::path::PathBuf;

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::{Context, Error, Result};
use cp_servers::{Launcher, is_name};

use crate::gate;
use crate::http::Remote;
use crate::http::address::Address;
use crate::http::headers::Headers;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "connect",
    class: Class::Governed,
    output: "item",
    also: &["summary"],
    examples: &[r#"echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | {} connect --json http://127.0.0.1:1/mcp"#],
    input: &[Input::Bytes],
    events: gate::EVENTS,
    ..VerbDoc::EMPTY
};

/// Stand before a server that is reached over HTTP
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where its MCP endpoint is; without it the policy says it: url in [mcp.N]
    #[arg(required_unless_present = "name")]
    url: Option<String>,
    /// What it is called in the policy: [mcp.N] (default: the host of the URL, with - for its dots)
    #[arg(long, value_name = "N")]
    name: Option<String>,
    /// A file with headers of each request, one `Name: value` a line, that only its owner can read
    #[arg(long, value_name = "F")]
    header_file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let given = args.url.as_deref().map(Address::of).transpose()?;
    let name = match (&args.name, &given) {
        (None, Some(address)) => address.name()?,
        (name, _) => name.clone().unwrap_or_default(),
    };
    if !is_name(&name) {
        return Err(Error::usage(format!("--name {name}: a name is 1 to 64 letters, digits, _ and -")));
    }
    let table = Launcher::of(context)?.table(&name)?;
    let address = match given {
        Some(address) => address,
        None => Address::of(table.url.as_deref().ok_or_else(|| {
            Error::usage(format!("no URL is given, and the policy has none in [mcp.{name}]"))
                .hint("cp-mcp connect --name NAME URL")
        })?)?,
    };
    address.permit(&name, &table)?;
    let headers = args.header_file.as_deref().map(Headers::of_file).transpose()?.unwrap_or_default();
    let start = |post, context: &Context| Remote::open(&name, &address, headers.clone(), &table, post, context);
    gate::pass(&name, start, context)
}
