//! Programs that reach other machines.

use super::{BuiltIn, Test, rule};
use crate::policy::Verdict::{Confirm, Deny};

#[rustfmt::skip]
pub(super) const RULES: &[BuiltIn] = &[
    rule("ssh.options", &["ssh", "scp", "sftp"], Test::Options(&["-o", "-F", "-S", "-D", "-J", "-W"]), Deny,
        "an option can name a program, a configuration or another way out", &["ssh -o ProxyCommand=id x", "ssh -oProxyCommand=id x", "scp -S id a b:", "ssh -F x y"], &["scp a b:"]),
    rule("ssh.command", &["ssh", "mosh", "telnet", "rlogin"], Test::Command, Confirm,
        "runs commands on another machine, which no policy here covers", &["ssh host rm -rf /", "ssh host"], &["scp a b:"]),
    rule("curl.config", &["curl", "wget"], Test::Options(&["-K", "--config", "--use-askpass", "-e", "--execute", "--use-server-timestamps"]), Deny,
        "reads more options from a file, or runs a program", &["curl -K x", "wget --use-askpass=id x", "wget -e x=y z"], &["curl https://example.com"]),
    rule("netcat", &["nc", "ncat", "netcat", "socat", "cryptcat"], Test::Command, Deny,
        "connects programs and the network in any way", &["nc -e sh host 1", "socat - EXEC:id"], &["curl x"]),
];
