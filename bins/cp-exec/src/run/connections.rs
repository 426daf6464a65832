//! Connections of a run to the destinations of the policy: served outside of the sandbox, and recorded.

use std::net::{SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use crate::exec_result::{Connections, RefusedConnection};
use cp_common::output::printable_line;
use cp_egress::{Connection, Decision, Destination, Egress};

use super::journal::Recorder;
use crate::nofollow::Node;
use crate::refusal::{TO_ALLOW, allow_line};
use crate::sandbox::NetworkNamespace;
use cp_common::glob::name_matches;

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
        reported: Vec<OwnedFd>,
        shown: Vec<Node>,
    ) -> std::io::Result<Self> {
        let (namespace, sockets) = NetworkNamespace::of(reported, shown)?;
        let egress = Egress::start(destinations, sockets, Served { namespace, quiet })?;
        Ok(Self { quiet, egress, report: Connections::default() })
    }

    /// Records the connections that ended and the refusals since the last call. `is_over`: the processes of the run
    /// have ended, and so do all connections. Returns messages about first refusals.
    pub(super) fn record(&mut self, recorder: &mut Recorder, is_over: bool) -> Vec<String> {
        let connections = self.egress.records(is_over);
        let mut messages = Vec::new();
        for connection in &connections {
            recorder.add("exec.connection", connection);
            if connection.decision == Decision::Allow {
                self.report.allowed += 1;
                self.report.bytes_in += connection.bytes_in;
                self.report.bytes_out += connection.bytes_out;
            } else {
                messages.extend(self.refuse(connection).and_then(|first| explain(&first, self.quiet)));
            }
        }
        messages
    }

    /// Adds a refusal, and returns the first one of a name. The record of repeated refusals follows that of the first
    /// one.
    fn refuse(&mut self, connection: &Connection) -> Option<RefusedConnection> {
        self.report.refused += connection.count;
        let refused = refused(connection)?;
        let first = &mut self.report.first_refused;
        let is_same = |known: &&mut RefusedConnection| {
            (&known.name, known.port, &known.address) == (&refused.name, refused.port, &refused.address)
        };
        if let Some(known) = first.iter_mut().find(is_same) {
            known.count += refused.count;
            return None;
        }
        (first.len() < NAMED).then(|| first.push(refused.clone()))?;
        Some(refused)
    }

    /// The connections of the run, if there were any.
    pub(super) fn report(self) -> Option<Connections> {
        Some(self.report).filter(|all| all.allowed + all.refused > 0)
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
        if let Some(message) = refused(refusal).and_then(|refused| explain(&refused, self.quiet)) {
            self.namespace.tell(client, &format!("cp-exec: {}\n", printable_line(&message)));
        }
    }
}

/// A refusal as results name it; none for those above the limit.
fn refused(connection: &Connection) -> Option<RefusedConnection> {
    let (name, port, rule) = (connection.name.clone()?, connection.port, connection.rule.clone());
    let address = connection.address.map(|address| address.to_string());
    // An IPv6 address is in brackets.
    let pinned = port.zip(address.as_ref()).map(|(port, address)| format!("{name}:{port}={address}"));
    let entry = pinned.unwrap_or_else(|| name.clone());
    // A question may contain any name.
    let allow = Destination::parse(&entry).is_ok().then(|| allow_line("network", &entry));
    Some(RefusedConnection { name, port, address, rule, allow, count: connection.count })
}

/// The message about a refusal; none about a name that needs none.
fn explain(refused: &RefusedConnection, quiet: &[String]) -> Option<String> {
    let RefusedConnection { name, address, rule, allow, .. } = refused;
    if quiet.iter().any(|pattern| name_matches(pattern, name)) {
        return None;
    }
    let why = match (rule.as_str(), address) {
        ("private_address", Some(address)) => format!("its address {address} is not public"),
        ("limit", _) => "too many names in one run".to_owned(),
        _ => "the policy does not list this name".to_owned(),
    };
    let hint = allow.as_ref().filter(|_| rule != "limit").map(|line| format!("; {TO_ALLOW}{line}"));
    Some(format!("connection to {name} refused: {why}{}", hint.unwrap_or_default()))
}
