//! `cp-mcp proxy`: a server that is started here, in the sandbox, behind the gate.

use std::io::Write as _;
use std::time::Duration;

use cp_common::coprocess::{Child, Output};
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Context, Error, Result};
use cp_servers::{Launcher, Sandbox, Spec, is_cp_mcp, name_of, unavailable};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gate::{self, Behind, Outbox, Server};
use crate::stdio::{Event, Post, spawn, without_mark};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "proxy",
    class: Class::Governed,
    output: "item",
    also: &["summary"],
    examples: &[r#"echo '{"jsonrpc":"2.0","method":"hello"}' | {} proxy --server s --json -- /bin/cat"#],
    input: &[Input::Bytes],
    events: gate::EVENTS,
    ..VerbDoc::EMPTY
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
    gate::run(name, false, |post| Process::start(&spec, &launcher, post), context)
}

/// A server process. One thread reads its output and another writes its input, because the server may stop reading.
pub(crate) struct Process {
    child: Child,
    spec: Spec,
    _home: Option<TempDir>,
}

impl Process {
    pub(crate) fn start(spec: &Spec, launcher: &Launcher, post: Post) -> Result<Behind> {
        let (mut child, home) = launcher.start(spec).map_err(|e| unavailable(&e, spec))?;
        let (mut input, output) = child.take_pipes().ok_or_else(|| Error::new(Code::Io, "the server has no pipes"))?;
        let outbox =
            Outbox::open(move |message| input.write_all(message.line.as_bytes()).and_then(|()| input.flush()).is_ok())?;
        spawn("from-server", move || read(output, &post))?;
        Ok((outbox, Box::new(Self { child, spec: spec.clone(), _home: home })))
    }
}

fn read(mut output: Output, post: &Post) {
    let left = loop {
        let event = match next(&mut output) {
            Ok(Some(line)) => Event::FromServer(line),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        if post.send(event).is_err() {
            return;
        }
    };
    let _ = post.send(Event::ServerLeft(left));
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

impl Server for Process {
    fn close(&mut self) {
        self.child.stop();
    }

    fn described(&self) -> Value {
        // Our own bridge confines its server itself.
        let is_outside = self.spec.table.sandbox == Sandbox::None || is_cp_mcp(&self.spec);
        let sandbox = if is_outside { "none" } else { "tool" };
        json!({ "name": self.spec.name, "command": self.spec.argv, "env": self.spec.table.env, "sandbox": sandbox })
    }

    fn end(&mut self, left: Result<()>) -> Error {
        let why = left.err().unwrap_or_else(|| self.child.gone());
        unavailable(&why, &self.spec)
    }
}
