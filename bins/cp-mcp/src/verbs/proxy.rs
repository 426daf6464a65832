//! `cp-mcp proxy`: any server that speaks over standard streams, in the sandbox, behind the gate.

use std::path::Path;
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use cp_common::coprocess::Child;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::lines::{LINE_LIMIT, Lines, Next};
use cp_common::{Code, Context, Error, Result};
use cp_servers::{Launcher, Sandbox, ScratchHome, Spec, Table, is_name, not_fatal, unavailable};
use serde_json::{Value, json};

use crate::gate::{self, Server};
use crate::inbox::{Event, Post};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "proxy",
    class: Class::Governed,
    output: "item",
    also: &["summary"],
    examples: &[r#"echo '{"jsonrpc":"2.0","method":"hello"}' | {} proxy --name s --json -- /bin/cat"#],
    input: &[Input::Bytes],
    events: gate::EVENTS,
    ..VerbDoc::EMPTY
};

/// How many lines may wait until the server reads them.
const QUEUE: usize = 256;
/// How many bytes of them.
const UNREAD: usize = 2 * LINE_LIMIT;

/// Stand before a server that is started here, in the sandbox
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What it is called in the policy: [mcp.N] (default: the file name of SERVER)
    #[arg(long, value_name = "N")]
    name: Option<String>,
    /// The server and its arguments, after `--`; without them the policy has them
    #[arg(value_name = "SERVER")]
    server: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let file = args.server.first().and_then(|server| Path::new(server).file_name()?.to_str());
    let Some(name) = args.name.as_deref().or(file.filter(|name| is_name(name))) else {
        return Err(Error::usage("the server has no name").hint("cp-mcp proxy --name NAME -- SERVER ARGUMENTS"));
    };
    if !is_name(name) {
        return Err(Error::usage(format!("--name {name}: a name is 1 to 64 letters, digits, _ and -")));
    }
    let launcher = Launcher::of(context)?;
    let given = (!args.server.is_empty()).then(|| args.server.clone());
    let spec = Spec { name: name.to_owned(), argv: launcher.argv(name, given)?, ..Spec::default() };
    let table = launcher.table(name)?;
    gate::pass(name, |post, _| Process::start(&spec, &table, &launcher, post), context)
}

/// A server that is a process. Its output is read by a thread, and its input written by another: it may stop to read.
struct Process {
    child: Child,
    outbox: Option<SyncSender<Vec<u8>>>,
    /// How many bytes it has not read.
    unread: Arc<AtomicUsize>,
    spec: Spec,
    table: Table,
    _home: Option<ScratchHome>,
}

impl Process {
    fn start(spec: &Spec, table: &Table, launcher: &Launcher, post: Post) -> Result<Self> {
        let (mut child, home) = launcher.start_aloud(spec).map_err(|e| unavailable(&e, spec, table))?;
        let (mut input, output) = child.take_pipes().ok_or_else(|| Error::new(Code::Io, "the server has no pipes"))?;
        let (outbox, lines): (_, Receiver<Vec<u8>>) = sync_channel(QUEUE);
        let unread = Arc::<AtomicUsize>::default();
        let left = Arc::clone(&unread);
        let write = move || {
            use std::io::Write as _;
            while let Ok(line) = lines.recv() {
                if input.write_all(&line).and_then(|()| input.flush()).is_err() {
                    return;
                }
                left.fetch_sub(line.len(), Ordering::Relaxed);
            }
        };
        let failed = |e| Error::io("starting a thread", e);
        Builder::new().name("to-server".to_owned()).spawn(write).map_err(failed)?;
        Builder::new().name("from-server".to_owned()).spawn(move || read(output, &post)).map_err(failed)?;
        Ok(Self { child, outbox: Some(outbox), unread, spec: spec.clone(), table: table.clone(), _home: home })
    }
}

fn read(mut output: Lines<ChildStdout>, post: &Post) {
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

/// The next line. The end of one that is too long is not waited for.
fn next(output: &mut Lines<ChildStdout>) -> Result<Option<Vec<u8>>> {
    while !output.wait_line(Duration::from_hours(1))? {}
    if !output.is_too_long() {
        match output.next(&mut || Ok(()))? {
            Next::Line(line) => return Ok(Some(output.bytes(&line).to_vec())),
            Next::End => return Ok(None),
            Next::TooLong(_) => {}
        }
    }
    let message = format!("the server wrote a line that is longer than {} MiB", LINE_LIMIT >> 20);
    Err(Error::new(Code::Server, message))
}

impl Server for Process {
    fn send(&mut self, line: &[u8]) -> Result<()> {
        let line = [line, b"\n"].concat();
        let (length, name) = (line.len(), &self.spec.name);
        let is_full = self.unread.fetch_add(length, Ordering::Relaxed) > UNREAD;
        if !is_full && self.outbox.as_ref().is_some_and(|outbox| outbox.try_send(line).is_ok()) {
            return Ok(());
        }
        self.unread.fetch_sub(length, Ordering::Relaxed);
        Err(Error::new(Code::Server, format!("the server {name} does not read what it is sent")))
    }

    fn close(&mut self) -> Result<()> {
        self.outbox = None;
        self.child.stop();
        Ok(())
    }

    fn described(&self) -> Value {
        let sandbox = if self.table.sandbox == Sandbox::None { "none" } else { "tool" };
        json!({ "name": self.spec.name, "command": self.spec.argv, "sandbox": sandbox })
    }

    fn end(&mut self, left: Result<()>) -> Error {
        self.outbox = None;
        let why = left.err().unwrap_or_else(|| not_fatal(&self.child.gone()));
        unavailable(&why, &self.spec, &self.table)
    }
}
