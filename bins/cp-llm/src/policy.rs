//! What the policy of a home says about this program: the table `[llm]` of `config/policy.toml`. The other tables are read and
//! judged by the programs that they are about. No option and no variable widens it.

use cp_common::home::Home;
use cp_common::spelling::nearest;
use cp_common::{Code, Error, Result};
use serde::Deserialize;

use crate::backend::{Backend, variable};
use crate::governed::Register;

/// The variable that holds the token of a program that may use the network.
const TOKEN: &str = "CAPABILITY_NETWORK";

#[derive(Default, Deserialize)]
struct File {
    #[serde(default)]
    llm: Table,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    governed_prompts: Governed,
    network: Network,
    log_content: bool,
    budget_usd: Option<f64>,
    /// What cp-compose reads of this table.
    #[serde(rename = "redact")]
    _redact: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Governed {
    /// The hash of each system text is on the ledger.
    #[default]
    Log,
    /// And it begins with a registered prompt.
    Require,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Network {
    #[default]
    Allow,
    /// Only for who holds a token.
    Token,
}

/// The policy.
pub(crate) struct Policy {
    table: Table,
    register: Register,
}

impl Policy {
    /// Reads the policy of a home. Without a file prompts are free, and their hashes on the ledger.
    pub(crate) fn load(home: &Home) -> Result<Self> {
        let file = home.policy_file();
        let table = match std::fs::read_to_string(&file) {
            Ok(text) => toml::from_str::<File>(&text).map_err(|e| explained(&text, &e).in_file(&file).fatal())?.llm,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                Table::default()
            }
            Err(e) => return Err(Error::config(Error::from(e).message()).in_file(&file).fatal()),
        };
        Ok(Self { table, register: Register::of(home) })
    }

    /// Whether what is said goes on the ledger outside of sessions and runs too.
    pub(crate) fn logs_content(&self) -> bool {
        self.table.log_content
    }

    /// The most dollars that one command line may spend, whatever it was given.
    pub(crate) fn budget(&self, given: Option<f64>, backend: &Backend) -> Option<f64> {
        // The stub costs nothing, and so it has no price to count with.
        let most = self.table.budget_usd.filter(|_| !matches!(backend, Backend::Stub(_)));
        [given, most].into_iter().flatten().reduce(f64::min)
    }

    /// How the network came to be used, for the ledger. Fails where it takes a token and there is none.
    pub(crate) fn network(&self) -> Result<&'static str> {
        match self.table.network {
            Network::Allow => Ok("allow"),
            Network::Token if variable(TOKEN).is_some() => Ok("token"),
            Network::Token => Err(Error::new(Code::Forbidden, "policy gives the network only to who holds a token")
                .with("rule", "llm.network")
                .with("missing", TOKEN)
                .hint(format!("set {TOKEN}, or ask another --backend: the stub and --replay need no network"))
                .fatal()),
        }
    }

    /// Refuses a prompt that is not governed where it must be.
    pub(crate) fn permit(&self, prompt_id: Option<&str>, system: &str) -> Result<()> {
        if self.table.governed_prompts == Governed::Log {
            return Ok(());
        }
        let refused = |why: String| {
            Error::new(Code::Forbidden, why)
                .with("rule", "llm.governed_prompts")
                .hint("compose it: cp-compose --prompt PRM-ID … | cp-llm, without -s")
        };
        let Some(id) = prompt_id else { return Err(refused("policy requires a governed prompt".to_owned())) };
        if self.register.begins(id, system)? {
            return Ok(());
        }
        Err(refused(format!("the system text does not begin with the prompt `{id}`")).with("prompt_id", id))
    }
}

/// A parser's error as ours: line, key, and the nearest known key.
fn explained(text: &str, error: &toml::de::Error) -> Error {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() as u64 + 1);
    let message = error.message().lines().next().unwrap_or_default().to_owned();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let word = quoted.next().filter(|_| message.starts_with("unknown ")).map(str::to_owned);
    let near = word.and_then(|word| nearest(&word, quoted).map(str::to_owned));
    let error = Error::config(message).at_line(line);
    match near {
        Some(near) => error.with("nearest", near.as_str()).hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<Table> {
        toml::from_str::<File>(text).map(|file| file.llm).map_err(|e| explained(text, &e))
    }

    #[test]
    fn a_slip_is_named_with_its_line_and_other_tables_are_others() {
        let e = table("[exec]\nanything = 1\n[llm]\nnetwrk = \"token\"\n").err().unwrap();
        assert!(e.message().contains("line 4") && e.message().contains("netwrk"), "{e}");
        assert_eq!(e.details()["nearest"], "network");
        assert_eq!(table("[llm]\nnetwork = \"tokens\"\n").err().unwrap().details()["nearest"], "token");
        assert_eq!(table("[exec]\nanything = 1\n").unwrap().network, Network::Allow);
    }

    #[test]
    fn the_smaller_budget_holds_and_the_stub_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let register = Register::of(&Home::find(Some(directory.path())).unwrap());
        let policy = Policy { table: table("[llm]\nbudget_usd = 5.0\n").unwrap(), register };
        let stub = Backend::Stub(crate::stub::Stub::default());
        assert_eq!(policy.budget(Some(7.0), &stub), Some(7.0));
        assert_eq!(policy.budget(None, &stub), None);
    }
}
