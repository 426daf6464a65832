//! `cp-mcp proxy`: a server that is started here, in the sandbox, behind the gate.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cp_common::coprocess::Output;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Context, Error, Result};
use cp_servers::{Launcher, Sandbox, Spec, is_cp_mcp, name_of, unavailable};
use serde_json::json;

use crate::gate::{self, QUEUE, Server};
use crate::stdio::{Event, Post, locked, spawn, without_mark, workers};

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &[r#"echo '{"jsonrpc":"2.0","method":"hello"}' | {} proxy --server s --json -- /bin/cat"#],
    input: &[Input::Bytes],
    events: gate::EVENTS,
    ..VerbDoc::new("proxy", Class::Governed, "item")
};

/// Start a server in the sandbox, and check and record its calls
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server's name in the policy, [mcp.N] (default: the file or package that SERVER starts)
    #[arg(long = "server", value_name = "NAME", value_parser = gate::server_name)]
    name: Option<String>,
    /// The server and its arguments, after `--` (default: the command in the policy)
    #[arg(value_name = "SERVER")]
    server: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let found = name_of(&args.server);
    let Some(name) = args.name.as_deref().or(found.as_deref()) else {
        return Err(Error::usage("the server has no name").hint("cp-mcp proxy --server NAME -- SERVER ARGUMENTS"));
    };
    let launcher = Launcher::of(context)?;
    let given = (!args.server.is_empty()).then(|| args.server.clone());
    let spec = launcher.spec(name, given)?;
    gate::run(name, false, |post| start(&spec, &launcher, post), context)
}

/// Starts a server. One thread reads its output and another writes its input, because the server may stop reading.
pub(crate) fn start(spec: &Spec, launcher: &Launcher, post: Post) -> Result<Server> {
    let (mut child, home) = launcher.start(spec).map_err(|e| unavailable(&e, spec))?;
    let (input, mut output) = child.take_pipes().ok_or_else(|| Error::new(Code::Io, "the server has no pipes"))?;
    let (child, input, named) = (Arc::new(Mutex::new(child)), Mutex::new(input), spec.clone());
    let outbox = workers("to-server", 1, QUEUE, move |line: String| {
        let mut input = locked(&input);
        // A server that does not read has exited, which is its own event.
        let _ = input.write_all(line.as_bytes()).and_then(|()| input.flush());
    })?;
    let reader = Arc::clone(&child);
    spawn("from-server", move || {
        let why = loop {
            match next(&mut output) {
                Ok(Some(line)) => {
                    if post.send(Event::FromServer(line)).is_err() {
                        return;
                    }
                }
                Ok(None) => break locked(&reader).gone(),
                Err(error) => break error,
            }
        };
        let _ = post.send(Event::ServerLeft(unavailable(&why, &named)));
    })?;
    // Our own bridge confines its server itself.
    let is_outside = spec.table.sandbox == Sandbox::None || is_cp_mcp(spec);
    let sandbox = if is_outside { "none" } else { "tool" };
    let description = json!({ "name": spec.name, "command": spec.argv, "env": spec.table.env, "sandbox": sandbox });
    let stop = move || {
        locked(&child).stop();
        drop(home);
    };
    Ok(Server { outbox, description, stop: Box::new(stop) })
}

/// The next line. The end of a line that is too long is not read.
fn next(output: &mut Output) -> Result<Option<Vec<u8>>> {
    while !output.wait_line(Duration::from_hours(1))? {}
    if !output.is_too_long() {
        let Some(line) = output.next(&mut || Ok(()))? else { return Ok(None) };
        if let Ok(bytes) = output.bytes(&line) {
            return Ok(Some(without_mark(bytes).to_vec()));
        }
    }
    let message = format!("the server wrote a line that is longer than {} MiB", LINE_LIMIT >> 20);
    Err(Error::new(Code::Server, message))
}
