//! `cp-mcp connect`: a server over streamable HTTP behind the gate. Each message of the client is an HTTP request of
//! its own, which a handshake precedes.

mod endpoint;
mod link;
mod remote;

use std::path::PathBuf;

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::{Context, Error, Result};
use cp_servers::Launcher;

use self::endpoint::{Address, Headers};
use self::remote::Remote;
use crate::gate;

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

/// Connect to a server over HTTP, and check and record its calls
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The URL of its MCP endpoint (default: url of [mcp.N] in the policy)
    #[arg(required_unless_present = "name")]
    url: Option<String>,
    /// The server's name in the policy, [mcp.N] (default: the host of the URL, with - for dots)
    #[arg(long = "server", value_name = "NAME", value_parser = gate::server_name)]
    name: Option<String>,
    /// A file of headers for each request, one `Name: value` a line, that only its owner can read
    #[arg(long, value_name = "F")]
    header_file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let given = args.url.as_deref().map(Address::of).transpose()?;
    let name = match (&args.name, &given) {
        (None, Some(address)) => address.name()?,
        (name, _) => name.clone().unwrap_or_default(),
    };
    let table = Launcher::of(context)?.table(&name);
    let address = match given {
        Some(address) => address,
        None => Address::of(table.url.as_deref().ok_or_else(|| {
            Error::usage(format!("no URL is given, and the policy has none in [mcp.{name}]"))
                .hint("cp-mcp connect --server NAME URL")
        })?)?,
    };
    address.permit(&name, &table)?;
    let headers = args.header_file.as_deref().map(Headers::of_file).transpose()?.unwrap_or_default();
    let is_quiet = context.options.quiet;
    gate::run(&name, |post| Remote::open(&name, &address, headers.clone(), &table, post, is_quiet), context)
}
