//! `cp-mcp connect`: a server over streamable HTTP behind the gate. Each message of the client is an HTTP request of
//! its own, which a handshake precedes.

mod endpoint;
mod link;

use std::path::PathBuf;
use std::sync::Mutex;

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::{Context, Error, Result};
use cp_http::client::{Client, Timeouts};
use cp_servers::Launcher;

use self::endpoint::{Address, Headers};
use self::link::{Link, MOST};
use crate::gate;
use crate::stdio;

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &[r#"echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | {} connect --json http://127.0.0.1:1/mcp"#],
    input: &[Input::Bytes],
    events: gate::EVENTS,
    ..VerbDoc::new("connect", Class::Governed, "item")
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
    // The gate limits the time of requests; this limit is for notifications.
    let timeouts = Timeouts { total: table.call_limit() + table.start_limit(), idle: None };
    let variable = |name: &str| std::env::var(name).ok();
    let client = Client::new("cp-mcp", &address.url, timeouts, MOST, variable)?;
    let (url, warn, session) = (address.url, Box::new(context.out.warner()), Mutex::default());
    let (output, post) = stdio::pipe()?;
    stdio::begin(context)?;
    let server = Link { name: name.clone(), client, url, headers, warn, post, session }.open(output)?;
    gate::run(&name, true, server, context)
}
