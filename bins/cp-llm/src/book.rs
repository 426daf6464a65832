//! What goes on the ledger: each try's request before it is sent, and what came of it. Hashes and counts always; what was said only
//! inside a session or run that was named, or where policy says so. Never a header, so never a key.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cp_common::program::{Audit, Finished};
use cp_common::wire::{Receipt, Usage};
use cp_common::{Context, Result};
use cp_ledger::{Entry, Ledger, Sync};

use crate::call::Work;
use crate::exchange::{Traces, hash_of};
use crate::mirror::{self, Conversation};
use crate::wire::Answer;

/// The ledger's name below home.
const NAME: &str = "cp-llm.jsonl";

/// The ledger of a run of this program, opened with the first request.
pub(crate) struct Book {
    path: PathBuf,
    sync: Sync,
    ledger: Mutex<Option<Ledger>>,
    agent: String,
    session: Option<String>,
    run: Option<String>,
    /// Why the network may be used, where it is.
    network: Option<&'static str>,
    /// What is said goes on the ledger too.
    keeps_words: bool,
}

/// One try.
pub(crate) struct Tried<'a> {
    /// Who is asked.
    pub backend: &'a str,
    /// Which model.
    pub model: &'a str,
    /// Which try, from 1.
    pub attempt: u32,
    /// The hash of the request's body.
    pub request_hash: &'a str,
}

impl Book {
    /// The ledger that this command line's effects go to. `network` says why somebody may be asked, if somebody is.
    pub(crate) fn of(context: &Context, network: Option<&'static str>, logs_content: bool) -> Result<Self> {
        let (session, run) = (context.session(), context.options.run.clone());
        Ok(Self {
            path: cp_ledger::effect_path(context, NAME)?,
            // What is paid for goes to the disk, and nobody waits for it; what costs nothing can be had again.
            sync: if network.is_some() { Sync::Batch } else { Sync::None },
            ledger: Mutex::new(None),
            agent: context.agent(None),
            keeps_words: logs_content || session.is_some() || run.is_some(),
            session,
            run,
            network,
        })
    }

    /// How a prompt goes to a backend that keeps conversations; none outside of a session.
    pub(crate) fn conversation(&self, work: &Work) -> Result<Option<Conversation>> {
        let session = work.prompt.session_id.as_ref().or(self.session.as_ref());
        session.map(|session| mirror::conversation(&work.ask.messages, session, &self.path)).transpose()
    }

    /// Records that a request is about to be sent.
    pub(crate) fn asked(&self, tried: &Tried<'_>, work: &Work, body: &[u8]) -> Result<()> {
        let mut entry = self
            .entry("llm.request", tried, work)
            .with("bytes", &body.len())
            .with("stream", &work.ask.stream)
            .with("messages", &work.ask.messages.len())
            .with("tools", &work.ask.tools.len());
        if !work.ask.system.is_empty() {
            entry = entry.with("system_hash", &hash_of(work.ask.system.as_bytes()));
        }
        if let Some(id) = &work.prompt.prompt_id {
            entry = entry.with("prompt_id", id);
        }
        if let Some(network) = self.network {
            entry = entry.with("network", network);
        }
        if self.keeps_words {
            entry = entry.content(work.prompt.input());
        }
        self.append(entry).map(|_| ())
    }

    /// Records what came of it.
    pub(crate) fn answered(
        &self,
        tried: &Tried<'_>,
        work: &Work,
        outcome: &Result<Answer>,
        usage: Option<&Usage>,
        traces: &Traces,
        took: Duration,
    ) -> Result<Option<Receipt>> {
        let mut entry = self
            .entry("llm.response", tried, work)
            .with("status", &traces.status)
            .with("request_id", &traces.request_id)
            .with("response_hash", &traces.hash)
            .with("duration_ms", &milliseconds(took))
            .with("first_token_ms", &traces.first.map(milliseconds));
        match outcome {
            Ok(answer) => {
                entry = entry
                    .role("assistant")
                    .with("id", &answer.id)
                    .with("answered_by", &answer.model)
                    .with("stop_reason", &answer.stop)
                    .with("tool_calls", &answer.calls.len())
                    .with("usage", &usage);
                if let Some(mirror) = &traces.mirror {
                    entry = entry.with("mirror", mirror);
                }
                if self.keeps_words {
                    entry = entry.content(&answer.text);
                }
            }
            Err(error) => {
                entry = entry.message(error.message()).with("code", error.code().row().name);
                entry = entry.with("reason", &error.details().get("reason"));
            }
        }
        self.append(entry).map(Some)
    }

    /// Records that an answer was taken from a recording, and nobody was asked.
    pub(crate) fn recalled(&self, from: &str, key: &str, work: &Work) -> Result<()> {
        let tried = Tried { backend: from, model: &work.models[0], attempt: 0, request_hash: key };
        self.append(self.entry("llm.response", &tried, work).with("cached", &true)).map(|_| ())
    }

    fn entry(&self, event: &str, tried: &Tried<'_>, work: &Work) -> Entry {
        let mut entry = Entry::new(event).agent(work.prompt.agent.as_ref().unwrap_or(&self.agent));
        if let Some(session) = work.prompt.session_id.as_ref().or(self.session.as_ref()) {
            entry = entry.session(session);
        }
        if let Some(run) = &self.run {
            entry = entry.run(run);
        }
        entry
            .with("backend", tried.backend)
            .with("model", tried.model)
            .with("attempt", &tried.attempt)
            .with("request_hash", tried.request_hash)
    }

    fn append(&self, entry: Entry) -> Result<Receipt> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match ledger.take() {
            Some(open) => open,
            None => Ledger::open(&self.path, self.sync)?,
        };
        let receipt = ledger.insert(open).append(entry)?;
        Ok(Receipt { ledger: receipt.ledger, seq: receipt.seq, hash: receipt.hash })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The audit, which keeps command lines. The words of a prompt are content: here only their hash is kept.
pub(crate) fn audit(context: &Context) -> Result<Option<Box<dyn Audit>>> {
    Ok(cp_ledger::audit(context)?.map(|sink| Box::new(WithoutWords(sink)) as Box<dyn Audit>))
}

struct WithoutWords(Box<dyn Audit>);

impl Audit for WithoutWords {
    fn finished(&mut self, what: &Finished<'_>) -> Result<()> {
        let argv = without_words(what.argv);
        self.0.finished(&Finished { argv: &argv, ..what.clone() })
    }
}

/// Options that stand alone: what follows one of them is not its value.
const FLAGS: [&str; 10] = [
    "--stream",
    "--dry-run",
    "--json",
    "--compact",
    "--quiet",
    "--rows",
    "--closed",
    "--strict-exit",
    "--unordered",
    "--cache",
];

/// The command line with each text replaced by its hash.
fn without_words(argv: &[String]) -> Vec<String> {
    let hashed = |text: &String| format!("[{}]", hash_of(text.as_bytes()));
    let mut kept: Vec<String> = argv.iter().take(1).cloned().collect();
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word.clone());
            kept.extend(words.by_ref().map(hashed));
        } else if word == "-s" || word == "--system" {
            kept.push(word.clone());
            kept.extend(words.next().map(|text| if text.starts_with('@') { text.clone() } else { hashed(text) }));
        } else if let Some(text) = word.strip_prefix("--system=") {
            kept.push(format!("--system=[{}]", hash_of(text.as_bytes())));
        } else if word.starts_with('-') {
            kept.push(word.clone());
            if !FLAGS.contains(&word.as_str()) && !word.contains('=') && word != "-" {
                kept.extend(words.next().cloned());
            }
        } else if word == "models" {
            kept.push(word.clone());
        } else {
            kept.push(hashed(word));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_kept_without_what_was_said() {
        let argv = ["cp-llm", "--stream", "-m", "x", "-s", "be brief", "-s", "@soul.md", "hi there", "--", "-m"]
            .map(str::to_owned);
        let kept = without_words(&argv);
        assert_eq!(&kept[..5], ["cp-llm", "--stream", "-m", "x", "-s"]);
        assert_eq!((&kept[6], &kept[7], &kept[9]), (&"-s".to_owned(), &"@soul.md".to_owned(), &"--".to_owned()));
        assert!(kept.iter().all(|word| !word.contains("brief") && !word.contains("there")), "{kept:?}");
        assert!(kept[10].starts_with("[sha256:"));
    }
}
