//! Connections of a run to the destinations of the policy: served outside of the sandbox, and recorded.

use std::net::{SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use crate::exec_result::{Connections, RefusedConnection};
use cp_common::output::printable_line;
use cp_egress::{Connection, Decision, Destination, Egress};

use super::steps::Steps;
use crate::nofollow::Node;
use crate::refusal::{TO_ALLOW, allow_line};
use crate::sandbox::NetworkNamespace;

/// The most refused connections that a result names.
const NAMED: usize = 10;

/// The resolver and the forwarder of a run, and its connections so far.
pub(super) struct RunConnections {
    /// The names whose refusal needs no message.
    quiet: &'static [String],
    egress: Egress,
    report: Connections,
}

impl RunConnections {
    /// Starts to serve the network namespace of a run.
    pub(super) fn start(
        destinations: &[Destination],
        quiet: &'static [String],
        socket: OwnedFd,
        shown: Vec<Node>,
    ) -> std::io::Result<Self> {
        let (namespace, sockets) = NetworkNamespace::receive(socket, shown)?;
        let egress = Egress::start(destinations.to_vec(), sockets, Served { namespace, quiet })?;
        Ok(Self { quiet, egress, report: Connections::default() })
    }

    /// Records the connections that ended and the refusals since the last call.
    /// `say` writes to the standard error of the run.
    pub(super) fn record(&mut self, steps: Option<&mut Steps>, say: &mut dyn FnMut(&str)) {
        let mut say = unless_quiet(self.quiet, say);
        add(&mut self.report, &self.egress.records().collect::<Vec<_>>(), steps, &mut say);
    }

    /// Ends the connections after the processes of the run have ended, and returns the report.
    pub(super) fn finish(self, steps: Option<&mut Steps>, say: &mut dyn FnMut(&str)) -> Connections {
        let Self { quiet, egress, mut report } = self;
        add(&mut report, &egress.finish(), steps, &mut unless_quiet(quiet, say));
        report
    }
}

/// The network namespace of a run, whose programs read why a name is refused.
struct Served {
    namespace: NetworkNamespace,
    quiet: &'static [String],
}

impl cp_egress::Namespace for Served {
    fn listen(&self, address: SocketAddrV4) -> std::io::Result<TcpListener> {
        self.namespace.listen(address)
    }

    fn explain_refusal(&self, client: SocketAddr, refusal: &Connection) {
        if let Some(refused) = refused(refusal) {
            let mut tell = |text: &str| self.namespace.tell(client, &format!("cp-exec: {}\n", printable_line(text)));
            unless_quiet(self.quiet, &mut tell)(&refused);
        }
    }
}

/// Passes on the refusals whose names are not quiet.
fn unless_quiet<'a>(quiet: &'static [String], say: &'a mut dyn FnMut(&str)) -> impl FnMut(&RefusedConnection) + 'a {
    move |refused| {
        let is_quiet = |pattern: &String| match pattern.strip_prefix('*') {
            Some(end) => refused.name.ends_with(end),
            None => *pattern == refused.name,
        };
        if !quiet.iter().any(is_quiet) {
            say(&explain(refused));
        }
    }
}

fn add(
    report: &mut Connections,
    connections: &[Connection],
    steps: Option<&mut Steps>,
    say: &mut dyn FnMut(&RefusedConnection),
) {
    for connection in connections {
        match connection.decision {
            Decision::Allow => {
                report.allowed += 1;
                report.bytes_in += connection.bytes_in;
                report.bytes_out += connection.bytes_out;
            }
            Decision::Deny => refuse(report, connection, say),
        }
    }
    if let Some(steps) = steps {
        steps.record_connections(connections);
    }
}

/// Adds a refusal to the report. The record of repeated refusals follows that of the first one.
fn refuse(report: &mut Connections, connection: &Connection, say: &mut dyn FnMut(&RefusedConnection)) {
    report.refused += connection.count;
    let Some(refused) = refused(connection) else { return };
    let is_same = |known: &&mut RefusedConnection| {
        (&known.name, known.port, &known.address) == (&refused.name, refused.port, &refused.address)
    };
    if let Some(known) = report.first_refused.iter_mut().find(is_same) {
        known.count += refused.count;
    } else if report.first_refused.len() < NAMED {
        say(&refused);
        report.first_refused.push(refused);
    }
}

/// A refusal as results name it; none for those above the limit.
fn refused(connection: &Connection) -> Option<RefusedConnection> {
    Some(RefusedConnection {
        name: connection.name.clone()?,
        port: connection.port,
        allow: entry(connection).map(|entry| allow_line("network", &entry)),
        address: connection.address.map(|address| address.to_string()),
        rule: connection.rule.clone(),
        count: connection.count,
    })
}

/// The entry of the policy that would allow a refused connection. An IPv6 address is in brackets.
fn entry(connection: &Connection) -> Option<String> {
    let name = connection.name.as_ref()?;
    let entry = match (connection.port, connection.address) {
        (Some(port), Some(address)) => format!("{name}:{port}={address}"),
        _ => name.clone(),
    };
    // A question may contain any name.
    Destination::parse(&entry).is_ok().then_some(entry)
}

fn explain(refused: &RefusedConnection) -> String {
    let RefusedConnection { name, address, rule, allow, .. } = refused;
    let why = match (rule.as_str(), address) {
        ("private_address", Some(address)) => format!("its address {address} is not public"),
        ("limit", _) => return format!("connection to {name} refused: too many names in one run"),
        _ => "the policy does not list this name".to_owned(),
    };
    let hint = allow.as_ref().map(|line| format!("; {TO_ALLOW}{line}"));
    format!("connection to {name} refused: {why}{}", hint.unwrap_or_default())
}
