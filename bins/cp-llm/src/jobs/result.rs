//! `cp-llm batch result`: the answers of batches, as the messages that a direct run would have printed.
//!
//! Each row is settled once: its outcome is on the ledger and in the state file before it is printed, and a second run
//! prints it from there.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Seek as _};
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
    let mut known = batch.outcomes()?;
    let mut source: Option<Source> = None;
    for row in batch.rows()? {
        let (number, name, row) = row?;
        signals::check()?;
        let kept: Option<Outcome> = if source.is_none() { known.next()? } else { None };
        let outcome = match (kept, &mut source) {
            (Some(outcome), _) => outcome,
            (None, Some(source)) => source.settle(number, &name, &row, batch)?,
            (None, none) => {
                batch.cut(known.offset)?;
                none.insert(Source::open(batch, context)?).settle(number, &name, &row, batch)?
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

/// The source of outcomes that are not in the state file yet: the results of a server, or the stub.
struct Source {
    client: Client,
    results: Results,
}

impl Source {
    /// Downloads the results of a batch, which must have ended.
    fn open(batch: &Batch, context: &mut Context) -> Result<Self> {
        let client = Client::of_batch(batch, context)?;
        let progress = client.progress(batch)?;
        let (job, id) = (&progress.job, &batch.job.job_id);
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
        let path = batch.path.with_extension("results");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.and_then(|file| std::fs::remove_file(&path).map(|()| file));
        let mut file = file.map_err(|e| Error::io("keeping the results of the batch", e).fatal())?;
        // The second file, if there is one, is that of errors.
        let mut answers_end = None;
        if let Some(server) = client.server() {
            for path in &progress.results {
                server.download(path, &mut file)?;
                answers_end = answers_end.or(Some(file.stream_position()?));
            }
        }
        file.rewind()?;
        let found = Results::of(file, answers_end.unwrap_or(0))?;
        if !found.is_whole(&progress) {
            let (answers, rows) = (found.answered, found.lines.len());
            let (answered, recorded) = (progress.answered, progress.recorded());
            let what = format!("{answers} of {answered} answers, {rows} of {recorded} rows");
            return Err(Error::new(Code::Network, format!("the results of {id} are incomplete: {what}"))
                .with("origin", "upstream")
                .with("reason", "cut")
                .hint("ask for them again"));
        }
        Ok(Self { client, results: found })
    }

    /// Gets the outcome of a row and stores it.
    fn settle(&self, number: u64, name: &str, row: &Row, batch: &mut Batch) -> Result<Outcome> {
        let work = row.work(number, &self.client.endpoint);
        let backend = &self.client.ready.backend;
        let exchange = match backend.server() {
            Some(server) => self.results.exchange(number, server)?,
            None => backend.exchange(&work.request, &[], &mut |_, _| Ok(())),
        };
        signals::check()?;
        // A signal waits until the outcome is both on the ledger and in the state file.
        let _effect = signals::effect();
        let outcome = self.client.engine.message_of_row(&work, name, &row.request_hash, exchange)?;
        let outcome = outcome.map_err(|error| error.to_value());
        batch.add(&outcome)?;
        Ok(outcome)
    }
}

/// The results of a batch: lines in any order. Only the place of each row's line is in memory.
struct Results {
    file: File,
    lines: HashMap<u64, (u64, usize)>,
    /// The number of rows with an answer.
    answered: u64,
    /// True if the last line is not complete.
    is_torn: bool,
}

impl Results {
    /// Finds the line of each row. The responses that the provider counts end at `answers_end`.
    fn of(file: File, answers_end: u64) -> Result<Self> {
        let (mut lines, mut answered, mut is_torn) = (HashMap::new(), 0, false);
        let (mut reader, mut line, mut at) = (BufReader::new(&file), Vec::new(), 0);
        while reader.read_until(b'\n', &mut line)? > 0 {
            let json = parsed(&line).ok();
            is_torn = json.is_none() && !line.ends_with(b"\n");
            let result = json.unwrap_or_default();
            let number = text_of(&result, "custom_id").and_then(|id| id.strip_prefix("row-")?.parse().ok());
            if let Some(number) = number {
                // A request that was refused is completed too.
                let is_response = result["response"].is_object() && at < answers_end;
                let has_answer = is_response || result["result"]["type"] == "succeeded";
                let is_first = lines.insert(number, (at, line.len())).is_none();
                answered += u64::from(has_answer && is_first);
            }
            at += line.len() as u64;
            line.clear();
        }
        Ok(Self { file, lines, answered, is_torn })
    }

    /// True if no answer and no row is missing that the provider counts.
    fn is_whole(&self, progress: &Progress) -> bool {
        !self.is_torn && self.answered >= progress.answered && self.lines.len() as u64 >= progress.recorded()
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
    use crate::jobs::state::{BatchJob, State};

    fn results(text: &str, answers_end: u64) -> Results {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        Results::of(file, answers_end).unwrap()
    }

    fn line(number: usize, kind: usize) -> String {
        match kind {
            0 => json!({"custom_id": format!("row-{number}"), "result": {"type": "succeeded", "message": {}}}),
            1 => json!({"custom_id": format!("row-{number}"), "response": {"status_code": 400, "body": {}}}),
            _ => json!({"custom_id": format!("row-{number}"), "result": {"type": "errored"}}),
        }
        .to_string()
    }

    #[test]
    fn responses_of_first_file_are_counted_once_if_they_are_complete() {
        let (anthropic, openai, failed) = (line(0, 0), line(1, 1), line(2, 2));
        let answered = |text: &str| results(text, u64::MAX).answered;
        assert_eq!(answered(&[&*anthropic, &openai, &failed, &anthropic].join("\n")), 2);
        assert_eq!(answered(&format!("{anthropic}\n{}", &openai[..openai.len() - 1])), 1);
        let files = format!("{openai}\n{}\n", line(3, 1));
        assert_eq!(results(&files, openai.len() as u64).answered, 1, "the other line is in the file of errors");
    }

    proptest! {
        #[test]
        fn results_cut_anywhere_have_gap(
            kinds in prop::collection::vec(0_usize..3, 1..6),
            cut in any::<prop::sample::Index>(),
            has_counts: bool,
        ) {
            let whole: String = kinds.iter().enumerate().map(|(at, kind)| line(at, *kind) + "\n").collect();
            let rows = kinds.len() as u64;
            let answered = kinds.iter().filter(|kind| **kind < 2).count() as u64;
            let counts = if has_counts { (rows, answered) } else { (0, 0) };
            let job = BatchJob { status: State::Succeeded, count: rows, done: counts.0, ..BatchJob::default() };
            let progress = Progress { job, answered: counts.1, recorded: counts.0, results: Vec::new() };
            prop_assert!(results(&whole, u64::MAX).is_whole(&progress));
            // The last line feed may be missing.
            let cut = cut.index(whole.len());
            prop_assert_eq!(results(&whole[..cut], u64::MAX).is_whole(&progress), cut == whole.len() - 1, "{}", &whole[..cut]);
            // A torn line of a row that is already there.
            let torn = format!("{whole}{}", &whole[..cut.clamp(1, line(0, kinds[0]).len() - 1)]);
            prop_assert!(!results(&torn, u64::MAX).is_whole(&progress));
        }
    }
}
