//! `cp-mcp proxy`: a server that is started here, in the sandbox, behind the gate.

use std::io::{BufWriter, Write as _};
use std::sync::{Arc, Mutex};

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::{Code, Context, Error, Result};
use cp_servers::{Launcher, Sandbox, Spec, is_cp_mcp, name_of, unavailable};
use os_pipe::PipeWriter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PIPE_BUF;
use serde_json::json;

use crate::gate::{self, Outbox, QUEUE, Server};
use crate::stdio::{self, locked, workers};

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
    stdio::begin(context)?;
    gate::run(name, false, start(&spec, &launcher)?, context)
}

/// Starts a server.
pub(crate) fn start(spec: &Spec, launcher: &Launcher) -> Result<Server> {
    let (mut child, home) = launcher.start(spec).map_err(|e| unavailable(&e, spec))?;
    let (input, output) = child.take_pipes().ok_or_else(|| Error::new(Code::Io, "the server has no pipes"))?;
    // Our own bridge confines its server itself.
    let is_outside = spec.table.sandbox == Sandbox::None || is_cp_mcp(spec);
    let sandbox = if is_outside { "none" } else { "tool" };
    let description = json!({ "name": spec.name, "command": spec.argv, "env": spec.table.env, "sandbox": sandbox });
    let named = spec.clone();
    let stop = move |why: Option<Error>| {
        child.stop();
        drop(home);
        unavailable(&why.unwrap_or_else(|| child.gone()), &named)
    };
    Ok(Server { outbox: outbox(input)?, output, description, stop: Box::new(stop) })
}

/// The end of the pipe to a server. Each line that waits has a reference to it.
type Sink = Arc<Mutex<BufWriter<PipeWriter>>>;

/// Sends lines to a server, which may stop reading. A thread writes those for which its pipe has no room, and those
/// after them.
fn outbox(input: BufWriter<PipeWriter>) -> Result<Outbox> {
    let write = |(line, input): (String, Sink)| {
        let mut input = locked(&input);
        // A server that does not read has exited, which is its own event.
        let _ = input.write_all(line.as_bytes()).and_then(|()| input.flush());
    };
    let (queue, input) = (workers("to-server", 1, QUEUE, write)?, Arc::new(Mutex::new(input)));
    Ok(Box::new(move |line| {
        let is_idle = Arc::strong_count(&input) == 1;
        if is_idle && line.len() <= PIPE_BUF && has_room(locked(&input).get_ref()) {
            write((line, Arc::clone(&input)));
            return true;
        }
        queue.try_send((line, Arc::clone(&input))).is_ok()
    }))
}

/// True if a pipe takes a line of at most [`PIPE_BUF`] bytes at once.
fn has_room(pipe: &PipeWriter) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
