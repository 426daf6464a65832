//! A `tee` with a request id: the lines are passed on each time and recorded once. A dry run records nothing.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::context::options::{AppendOptions, StreamOptions};
use crate::keys::hex;
use crate::program::idempotency::{Begun, begin};
use crate::stream::filter::Body;
use crate::stream::{self, Recorder};
use crate::wire::{Code, Error, Result};

/// The recorded lines: the hash of all lines so far, at each acknowledgement of the ledger.
#[derive(Serialize, Deserialize)]
struct Recorded {
    acknowledged: Vec<String>,
}

/// Runs [`stream::tee`] once for its request id. A repeated request passes the same lines on without recording them,
/// and fails at the first closing line before which the lines differ.
pub fn tee(
    recorder: &mut dyn Recorder,
    append: &AppendOptions,
    arguments: &impl Serialize,
    options: StreamOptions,
    context: &mut Context,
) -> Result<()> {
    if append.dry_run {
        return stream::tee(&mut Nothing, options, context);
    }
    let Some(id) = append.request_id.as_deref() else { return stream::tee(recorder, options, context) };
    match begin::<Recorded>(Some(id), arguments, context)? {
        Begun::Again(outcome) => {
            let mut again = Again { id, first: outcome?.acknowledged.into_iter(), digest: Sha256::new() };
            stream::tee(&mut again, options, context)
        }
        Begun::First(request) => {
            let mut first = First { recorder, lines: 0, digest: Sha256::new(), acknowledged: Vec::new() };
            let outcome = stream::tee(&mut first, options, context);
            let First { lines, acknowledged, .. } = first;
            match outcome {
                Ok(()) => request.keep(Ok(Recorded { acknowledged }), context).map(drop),
                // It is unknown how many recorded lines are durable; a repeated request reports that.
                Err(error) if lines > 0 => Err(error),
                Err(error) => request.release().and(Err(error)),
            }
        }
    }
}

/// Records nothing.
struct Nothing;

impl Recorder for Nothing {
    fn record(&mut self, _body: Body<'_>, _context: &mut Context) -> Result<()> {
        Ok(())
    }

    fn acknowledge(&mut self, _context: &mut Context) -> Result<()> {
        Ok(())
    }
}

struct First<'a> {
    recorder: &'a mut dyn Recorder,
    lines: u64,
    digest: Sha256,
    acknowledged: Vec<String>,
}

impl Recorder for First<'_> {
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        add(&mut self.digest, &body);
        self.lines += 1;
        self.recorder.record(body, context)
    }

    fn idle(&mut self, context: &mut Context) -> Result<()> {
        self.recorder.idle(context)
    }

    fn acknowledge(&mut self, context: &mut Context) -> Result<()> {
        self.recorder.acknowledge(context)?;
        self.acknowledged.push(hex(&self.digest.clone().finalize()));
        Ok(())
    }
}

struct Again<'a> {
    id: &'a str,
    first: std::vec::IntoIter<String>,
    digest: Sha256,
}

impl Recorder for Again<'_> {
    fn record(&mut self, body: Body<'_>, _context: &mut Context) -> Result<()> {
        add(&mut self.digest, &body);
        Ok(())
    }

    fn acknowledge(&mut self, _context: &mut Context) -> Result<()> {
        if self.first.next() == Some(hex(&self.digest.clone().finalize())) {
            return Ok(());
        }
        let message =
            format!("the request id `{}` was used for other lines: these are passed on and not recorded", self.id);
        Err(Error::new(Code::Conflict, message)
            .with("request_id", self.id)
            .with("reason", "other_arguments")
            .hint("use a new id for a new request")
            .fatal())
    }
}

/// Adds the recorded content of a line, each part with its length first.
fn add(digest: &mut Sha256, body: &Body<'_>) {
    let mut part = |kind: u8, bytes: &[u8]| {
        digest.update([kind]);
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    match body {
        Body::Text(bytes) => part(0, bytes),
        Body::Row(row) => part(1, row.get().as_bytes()),
        Body::Record(record) => {
            part(2, record.kind.map_or("", |kind| kind.name()).as_bytes());
            for raw in [record.data, record.error] {
                part(u8::from(record.ok) + 3, raw.map_or("", |raw| raw.get()).as_bytes());
            }
        }
    }
}
