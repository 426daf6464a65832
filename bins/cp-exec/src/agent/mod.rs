//! A whole agent in the sandbox: its private [`state`], its variables, and its network.

mod state;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use cp_egress::{Destination, Network};
use cp_hosts::Host;

use self::state::State;
use crate::decision::{AgentCommand, UNLIMITED};
use crate::glob::name_matches;
use crate::hosts::facts::{AgentFacts, Facts};
use crate::hosts::shell;
use crate::policy::Policy;
use crate::run::own_terminals;
use crate::sandbox::plan::Terminals;

/// The hosts, by the names of their programs.
const HOSTS: [Host; 5] = [Host::Claude, Host::Codex, Host::Gemini, Host::Copilot, Host::Opencode];

/// The variable of the user's shell, in which agents run command lines.
const SHELL: &str = "SHELL";

/// Variables of the user's terminal and language.
const TERMINAL: [&str; 7] = ["TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "LC_*", "TZ", "NO_COLOR"];

/// A request for an agent.
pub(crate) struct Request<'a> {
    pub host: Option<Host>,
    pub argv: &'a [String],
    /// Further directories of its state.
    pub state: &'a [PathBuf],
    /// Further domains that it needs.
    pub domains: &'a [String],
    /// True for the login command of the host.
    pub login: bool,
    /// Further variables.
    pub env: &'a [String],
    /// True if the agent may use the terminal of this program.
    pub interactive: bool,
}

/// The host of a command: the one that is named, or that of its program.
pub(crate) fn host_of(named: Option<Host>, argv: &[String]) -> Option<Host> {
    let name = argv.first().map(|word| Path::new(word).file_name().unwrap_or_default().to_string_lossy());
    named.or_else(|| HOSTS.into_iter().find(|host| name.as_deref() == Some(host.name())))
}

/// Prepares an agent: creates its state, and collects its variables. Returns messages for the user as well.
pub(crate) fn prepare(request: &Request<'_>, policy: &Policy) -> Result<(AgentCommand, Vec<String>)> {
    let facts = request.host.map(|host| &Facts::of(host).agent);
    let argv = match (request.argv, facts) {
        ([], Some(facts)) if request.login => facts.login.clone(),
        (argv, _) => argv.to_vec(),
    };
    let terminals = if request.interactive { own_terminals() } else { Terminals::Private };
    let mut env = environment(request, facts, terminals)?;
    let (mut state, mut notes) = (Vec::new(), Vec::new());
    if let (Some(host), Some(facts)) = (request.host, facts) {
        let own = State::of(host, policy);
        notes = own.create(host, facts, &cp_hosts::person().unwrap_or_else(|| policy.loaded.home.clone()))?;
        env.extend(own.variables(facts)?);
        state.push(own.directory);
    }
    for directory in request.state {
        let missing = |e| Error::io("--state", e).in_file(directory);
        state.push(policy.base.join(directory).canonicalize().map_err(missing)?);
    }
    let script = shell::file(policy.cp_home.root());
    let path: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let command = AgentCommand {
        argv,
        path: path.into_iter().filter(|directory| directory.is_absolute()).collect(),
        env,
        state,
        programs: std::env::current_exe().into_iter().chain(Some(script).filter(|path| path.is_file())).collect(),
        network: network(request, facts, policy)?,
        terminals,
        timeout: UNLIMITED,
    };
    Ok((command, notes))
}

/// The network of an agent: that of the policy, with the domains of its host and those of the request. A login needs
/// the loopback interface of this machine, to which the browser returns.
fn network(request: &Request<'_>, facts: Option<&AgentFacts>, policy: &Policy) -> Result<Network> {
    let named = request.domains.iter().map(|domain| Destination::parse(domain));
    let named = named.collect::<std::result::Result<Vec<_>, _>>();
    let mut domains = named.map_err(|why| Error::usage(format!("--allow-host: {why}")))?;
    domains.extend(facts.into_iter().flat_map(|facts| facts.domains.iter().cloned()));
    Ok(if request.login { Network::Host } else { policy.exec().network.with(&domains) })
}

/// The variables that an agent gets from the environment of this program.
fn environment(
    request: &Request<'_>,
    facts: Option<&AgentFacts>,
    terminals: Terminals,
) -> Result<BTreeMap<String, String>> {
    let mut patterns: Vec<&str> = facts.into_iter().flat_map(|facts| &facts.environment).map(String::as_str).collect();
    patterns.push(SHELL);
    if terminals != Terminals::Private {
        patterns.extend(TERMINAL);
    }
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let passes = |(name, _): &(String, String)| patterns.iter().any(|pattern| name_matches(pattern, name));
    let mut env: BTreeMap<String, String> = std::env::vars_os().filter_map(text).filter(passes).collect();
    env.extend(facts.into_iter().flat_map(|facts| facts.set.clone()));
    for pair in request.env {
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (
                pair.as_str(),
                std::env::var(pair).map_err(|e| {
                    Error::usage(format!("--env {pair}: {e}")).hint("set the variable, or write --env NAME=VALUE")
                })?,
            ),
        };
        if name.is_empty() || value.contains('\0') {
            return Err(Error::usage(format!("--env {pair}: not a valid variable")).hint("write --env NAME=VALUE"));
        }
        env.insert(name.to_owned(), value);
    }
    Ok(env)
}
