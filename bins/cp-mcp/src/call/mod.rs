//! `cp-mcp call`: the executor of tool calls at servers. It takes `tool_call` records, and answers with `tool_result`
//! records.

mod server;

use std::collections::BTreeSet;
use std::path::PathBuf;

use cp_common::context::options::StreamOptions;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::ToolCall;
use cp_common::wire::record::Kind;
use cp_common::{Context, Error, Result, signals};
use cp_mcp_wire::{OfferingServer, Offers};
use cp_servers::{Launcher, Spec};
use serde::Deserialize;

use self::server::Server;
use crate::gate;
use crate::stdio::Item;

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["item", "summary"],
    examples: &[
        r#"echo '{"ok":true,"schema_version":"1.0","type":"tool_call","data":{"id":"1","name":"cp/cp_check","input":{"command":"ls"}}}' | {} call --mcp 'cp=cp-mcp serve' --json"#,
    ],
    input: &[Input::Records],
    events: gate::EVENTS,
    ..VerbDoc::new("call", Class::Governed, "tool_result")
};

/// Start servers, and run the tool calls of records
#[derive(clap::Args)]
pub(crate) struct Args {
    /// An MCP server, its name and its command (repeatable)
    #[arg(long, value_name = "NAME=COMMAND", required = true)]
    mcp: Vec<String>,
    /// Start all servers first, and print what they offer
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    stream: StreamOptions,
}

/// A server that cannot be started fails its calls, and not the others.
struct Calls {
    servers: Vec<Server>,
    /// True if what they offer was printed.
    is_listed: bool,
}

/// The run of the calls that follow, and its ledger.
#[derive(Deserialize)]
struct Run {
    run: String,
    ledger: PathBuf,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let specs = specs(args, &Launcher::of(context)?)?;
    let servers = specs.into_iter().map(|spec| Server::new(spec, context)).collect::<Result<_>>()?;
    context.out.streaming()?;
    let mut calls = Calls { servers, is_listed: args.list };
    let listed = if args.list { calls.list(context) } else { Ok(()) };
    let done = listed.and_then(|()| filter::run(&mut calls, Source::Input, args.stream, context));
    // A signal must not interrupt the exit of the servers.
    let _effect = signals::effect();
    calls.servers.iter_mut().for_each(|server| server.gate.stop());
    done
}

/// The servers of the options.
fn specs(args: &Args, launcher: &Launcher) -> Result<Vec<Spec>> {
    let specs = args.mcp.iter().map(|server| launcher.parse(server)).collect::<Result<Vec<_>>>()?;
    let names: BTreeSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    if names.len() < specs.len() {
        return Err(Error::usage("two MCP servers have one name").hint("give one of them another name"));
    }
    Ok(specs)
}

impl Calls {
    /// Prints what the servers offer, in one record, and then the failure of each that does not answer.
    fn list(&mut self, context: &mut Context) -> Result<()> {
        let (mut all, mut failed) = (Offers::default(), Vec::new());
        for server in &mut self.servers {
            match server.offers(context) {
                Ok((offering, tools)) => {
                    context.out.item_succeeded();
                    all.servers.push(offering);
                    all.tools.extend(tools);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    let (name, shown) = (server.gate.name.clone(), error.to_value());
                    all.servers.push(OfferingServer { name, error: shown, ..OfferingServer::default() });
                    failed.push(error);
                }
            }
        }
        let item = Item { offers: Some(all), untrusted: vec!["/servers", "/tools"], ..Item::default() };
        context.out.record(Kind::Item, &item)?;
        failed.into_iter().try_for_each(|error| context.out.item_failed(error))?;
        context.out.flush()
    }
}

impl Filter for Calls {
    fn accepts(&self) -> &'static [Kind] {
        &[]
    }

    fn may_be_empty(&self) -> bool {
        self.is_listed
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let Body::Record(record) = body else {
            return Err(Error::validation("not a record").hint("send a `tool_call` record, see cp-record(5)"));
        };
        if record.kind_name.as_deref() == Some("run") {
            let Run { run, ledger } = record.read()?;
            return self.servers.iter_mut().try_for_each(|server| server.follow(&run, &ledger));
        }
        let call: ToolCall = record.read()?;
        let (name, tool) = call.name.split_once('/').unwrap_or_default();
        let Some(server) = self.servers.iter_mut().find(|server| server.gate.name == name) else {
            let message = format!("no server has the tool {}", call.name);
            return Err(Error::not_found(message).hint("name it SERVER/TOOL"));
        };
        let result = server.call(&call, tool, context)?;
        context.out.record(Kind::ToolResult, &result)?;
        context.out.flush()
    }
}
