//! `cp-llm batch result`: the answers of batches, as the messages that a direct run would have printed.
//!
//! Each row is settled once: its outcome is on the ledger and in the state file before it is printed, and a second run
//! prints it from there.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use cp_common::output::Place;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, keys, signals};
use serde_json::{Value, json};

use super::provider::{Client, Progress};
use super::state::{Batch, Outcome, Row};
use crate::backend::Exchange;
use crate::backend::server::Server;
use crate::send::print_cut;
use crate::wire_api::ends::remark;
use crate::wire_api::{bad_answer, exact, parsed, text_of};

/// The entry of this verb in `reference`.
pub(super) const DOC: VerbDoc = VerbDoc {
    path: "batch result",
    class: Class::Governed,
    output: "message",
    also: &["summary"],
    examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch result BAT-"],
    events: &["llm.response", "llm.batch"],
    ..VerbDoc::EMPTY
};

/// Print the answers of batches that have ended
#[derive(clap::Args)]
pub(super) struct Args {
    /// The batches, by id or a prefix of it
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    context.out.filtering();
    if args.ids.len() > 1 {
        context.out.streaming()?;
    }
    for id in &args.ids {
        print_answers(&mut Batch::find_locked(&context.home, id)?, context)?;
    }
    Ok(())
}

/// Prints the answers of a batch, in the order of its input.
fn print_answers(batch: &mut Batch, context: &mut Context) -> Result<()> {
    let mut source = None;
    for row in batch.rows() {
        let (number, row, settled) = row?;
        signals::check()?;
        let outcome = match (settled, &mut source) {
            (Some(outcome), _) => outcome,
            (None, Some((client, results))) => settle(client, results, number, &row, batch)?,
            (None, none) => {
                let (client, results) = none.insert(open(batch, context)?);
                settle(client, results, number, &row, batch)?
            }
        };
        context.out.place = Place { index: row.index, line: row.line };
        if row.index.is_some() {
            context.out.streaming()?;
        }
        match outcome {
            Ok(message) => {
                if let Some(remark) = remark(&message) {
                    context.warn(remark);
                }
                context.out.record(Kind::Message, &message)?;
                context.out.item_succeeded();
            }
            Err(error) => {
                let error = Error::from_value(&error);
                print_cut(&error, context)?;
                context.out.item_failed(error)?;
            }
        }
    }
    if source.is_some() { batch.sync() } else { Ok(()) }
}

/// Downloads the results of a batch, which must have ended.
fn open(batch: &Batch, context: &mut Context) -> Result<(Client, Results)> {
    let client = Client::of_batch(batch, context)?;
    let Progress { job, results, recorded } = client.progress(batch)?;
    let id = &job.job_id;
    if !job.is_ended() {
        return Err(Error::new(Code::Conflict, format!("{id} has not ended"))
            .with("reason", "not_ended")
            .hint(format!("wait for it: cp-llm batch status --wait {id}")));
    }
    if let Some(failure) = job.failure.as_deref().filter(|_| job.done == 0) {
        return Err(Error::validation(format!("the provider rejected the batch: {failure}"))
            .with("origin", "upstream")
            .with("upstream_message", failure)
            .with("_untrusted", vec!["/upstream_message"]));
    }
    // The file has no name: the provider keeps the results of a run that is killed.
    let path = context.home.state("batches").join(format!("{id}.results"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
    let file = file.and_then(|file| std::fs::remove_file(&path).map(|()| file));
    let mut found = Results::new(file.map_err(|e| Error::io("keeping the results of the batch", e).fatal())?);
    for path in client.server().into_iter().flat_map(|server| results.iter().map(move |path| (server, path))) {
        path.0.download(path.1, &mut found.file)?;
        found.update()?;
    }
    if found.is_whole(recorded) {
        return Ok((client, found));
    }
    let what = format!("{} of {} rows", found.lines.len(), recorded.1);
    Err(Error::new(Code::Network, format!("the results of {id} are incomplete: {what}"))
        .with("origin", "upstream")
        .with("reason", "cut")
        .hint("ask for them again"))
}

/// Gets the outcome of a row and stores it.
fn settle(client: &Client, results: &Results, number: u64, row: &Row, batch: &mut Batch) -> Result<Outcome> {
    let work = row.work(number, &client.endpoint);
    let backend = &client.ready.backend;
    let exchange = match backend.server() {
        Some(server) => results.exchange(number, server)?,
        None => backend.exchange(&work.request, &[], &mut |_, _| Ok(())),
    };
    signals::check()?;
    // A signal waits until the outcome is both on the ledger and in the state file.
    let _effect = signals::effect();
    let outcome = client.engine.message_of_row(&work, &batch.name_of(number), &row.request_hash, exchange)?;
    let outcome = outcome.map_err(|error| error.to_value());
    batch.add(&outcome)?;
    Ok(outcome)
}

/// The results of a batch: files with lines in any order. Only the place of each row's line is in memory.
struct Results {
    file: File,
    lines: HashMap<u64, (u64, usize)>,
    /// The number of bytes that were read, and of rows in the first file.
    read: u64,
    first: Option<u64>,
    /// True if a line is not complete.
    is_torn: bool,
}

impl Results {
    fn new(file: File) -> Self {
        Self { file, lines: HashMap::new(), read: 0, first: None, is_torn: false }
    }

    /// Finds the line of each row in the file that was added.
    fn update(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(self.read))?;
        let (mut reader, mut line) = (BufReader::new(&self.file), Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            let json = parsed(&line).ok();
            self.is_torn |= json.is_none() && !line.ends_with(b"\n");
            let id = json.as_ref().and_then(|json| text_of(json, "custom_id")?.strip_prefix("row-")?.parse().ok());
            self.lines.extend(id.map(|id: u64| (id, (self.read, line.len()))));
            self.read += line.len() as u64;
            line.clear();
        }
        self.first.get_or_insert(self.lines.len() as u64);
        Ok(())
    }

    /// True if no row is missing that the provider counts in the first file and in all.
    fn is_whole(&self, (first, all): (u64, u64)) -> bool {
        !self.is_torn && self.first.unwrap_or(0) >= first && self.lines.len() as u64 >= all
    }

    /// The outcome of a row.
    fn exchange(&self, number: u64, server: &Server) -> Result<Exchange> {
        let Some((at, length)) = self.lines.get(&number) else {
            return Ok(Exchange::of(Err(bad_answer("missing", "the batch ended without a result for this row"))));
        };
        let mut bytes = vec![0; *length];
        self.file.read_exact_at(&mut bytes, *at)?;
        Ok(of_line(&bytes, server))
    }
}

/// Parses a line of results, of either API.
fn of_line(bytes: &[u8], server: &Server) -> Exchange {
    let line = match parsed(bytes) {
        Ok(line) => line,
        Err(error) => return Exchange::of(Err(error)),
    };
    let status =
        line.pointer("/response/status_code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    if let Some(body) = exact(bytes, "/result/message").or_else(|| exact(bytes, "/response/body")) {
        let (body, status) = (body.get().as_bytes(), status.unwrap_or(200));
        let outcome = match line.pointer("/response/body") {
            Some(failure) if status >= 300 => Err(server.failure(failure, status)),
            _ => server.answer(body),
        };
        let request_id = line.pointer("/response/request_id").and_then(Value::as_str).map(str::to_owned);
        return Exchange { status: Some(status), request_id, hash: Some(keys::hash(body)), ..Exchange::of(outcome) };
    }
    let result = line.get("result").unwrap_or(&Value::Null);
    let (kind, failure) = match line.get("error") {
        Some(error) if result.is_null() => (text_of(error, "code"), json!({"error": error})),
        _ => (text_of(result, "type"), result.get("error").cloned().unwrap_or_default()),
    };
    let left = |code, reason: &str| {
        let why = format!("the batch was {reason} before this row was answered");
        Error::new(code, why).with("origin", "upstream").with("reason", reason)
    };
    Exchange::of(Err(match kind.unwrap_or_default() {
        "expired" | "batch_expired" => left(Code::Timeout, "expired"),
        "canceled" | "batch_cancelled" => left(Code::Conflict, "cancelled"),
        _ => server.failure(&failure, 200),
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn results(files: &[&str]) -> Results {
        let mut results = Results::new(tempfile::tempfile().unwrap());
        for text in files {
            results.file.write_all(text.as_bytes()).unwrap();
            results.update().unwrap();
        }
        results
    }

    fn line(number: usize) -> String {
        json!({"custom_id": format!("row-{number}"), "result": {"type": "errored"}}).to_string() + "\n"
    }

    #[test]
    fn rows_of_first_file_are_counted_once() {
        let (one, two) = (line(1), line(2));
        assert!(results(&[&(one.clone() + &one)]).is_whole((1, 1)) && results(&[&one, &two]).is_whole((1, 2)));
        assert!(!results(&[&one, &two]).is_whole((2, 2)), "the other line is in the file of errors");
    }

    proptest! {
        #[test]
        fn results_cut_anywhere_have_gap(rows in 1_usize..6, cut in any::<prop::sample::Index>(), has_counts: bool) {
            let whole: String = (0..rows).map(line).collect();
            let recorded = (if has_counts { rows as u64 } else { 0 }, rows as u64);
            prop_assert!(results(&[&whole]).is_whole(recorded));
            // The last line feed may be missing.
            let cut = cut.index(whole.len());
            prop_assert_eq!(results(&[&whole[..cut]]).is_whole(recorded), cut == whole.len() - 1, "{}", &whole[..cut]);
            // A torn line of a row that is already there.
            let torn = format!("{whole}{}", &whole[..cut.clamp(1, line(0).len() - 2)]);
            prop_assert!(!results(&[&torn]).is_whole(recorded));
        }
    }
}
