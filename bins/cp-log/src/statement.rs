//! `cp-log export --as in-toto`: a statement about whole ledgers, or about bundles, in an envelope that the key of the ledger signs. Tools
//! that know in-toto and DSSE verify it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, wire};
use cp_ledger::format::line::Hash;
use cp_ledger::proof::leaves::{each_line, files_of, origin_in};
use cp_ledger::proof::note::Signer;
use cp_ledger::proof::tree::{Tree, leaf};
use cp_ledger::read::source::lines_of;
use cp_ledger::store::blob;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::bundle::check::prove;
use crate::bundle::format::begins_bundle;
use crate::bundle::runs::Runs;
use crate::reading::{by_ledger, to_read};

const TYPE: &str = "application/vnd.in-toto+json";

/// A signed envelope, as DSSE version 1 defines it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Dsse"))]
pub(crate) struct Envelope {
    /// The media type of the payload.
    payload_type: &'static str,
    /// The in-toto statement, in base64.
    payload: String,
    /// The signature of the type and the payload.
    signatures: [Signature; 1],
}

/// A signature.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Signature {
    /// The name and the id of the key, as signed checkpoints have them.
    keyid: String,
    /// The Ed25519 signature, in base64.
    sig: String,
}

/// Writes the statement about these files; without any, about the ledgers of the run or all of home.
pub(crate) fn write(files: &[PathBuf], key: &Path, context: &mut Context) -> Result<()> {
    let signer = Signer::load(key)?;
    let mut parts = Vec::new();
    let run = context.options.run.clone().filter(|_| files.is_empty());
    if let [file] = files
        && begins_bundle(lines_of(file)?.peek()?)
    {
        parts.push(bundle(file)?);
    } else {
        let of_run = run.as_ref().map(|run| Runs::find(run, context)).transpose()?;
        let files = of_run.as_ref().map_or(files, |runs| &runs.ledgers[..runs.own]);
        for (rank, _) in by_ledger(to_read(files, context)?) {
            parts.push(ledger(&rank.ledger)?);
        }
    }
    if parts.is_empty() {
        return Err(Error::not_found("no ledger to sign").hint("name a ledger, a bundle or --run"));
    }
    let (subject, ledgers): (Vec<Value>, Vec<Vec<Value>>) = parts.into_iter().unzip();
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": "urn:cp-tools:ledger:1",
        "predicate": {"run": run, "ledgers": ledgers.concat()},
    });
    let payload = serde_json::to_vec(&statement).map_err(|e| Error::validation(e.to_string()))?;
    let head = format!("DSSEv1 {} {TYPE} {} ", TYPE.len(), payload.len());
    let sig = BASE64.encode(signer.sign_bytes(&[head.as_bytes(), &payload].concat()));
    let verifier = signer.verifier();
    let keyid = format!("{}+{:08x}", verifier.name(), u32::from_be_bytes(verifier.id()));
    let envelope =
        Envelope { payload_type: TYPE, payload: BASE64.encode(&payload), signatures: [Signature { keyid, sig }] };
    context.out.streaming()?;
    context.out.record_raw(Kind::Item, &wire::raw(&envelope)?)?;
    context.out.item_succeeded();
    Ok(())
}

fn subject(file: &Path, digest: &Hash) -> Value {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    json!({"name": name, "digest": {"sha256": digest.hex()}})
}

/// A bundle that holds, and the ledgers in it.
fn bundle(file: &Path) -> Result<(Value, Vec<Value>)> {
    let missing = || Error::not_found("a bundle is signed as a file").in_file(file);
    let (digest, _) = blob::digest(file)?.ok_or_else(missing)?;
    let ledgers = prove(file)?.iter().map(serde_json::to_value).collect::<Result<_, _>>();
    Ok((subject(file, &digest), ledgers.map_err(|e| Error::validation(e.to_string()))?))
}

/// A ledger without damage: the bytes of its files in order, its size and the root of its tree.
fn ledger(path: &Path) -> Result<(Value, Vec<Value>)> {
    let (mut hash, mut tree, mut origin) = (Sha256::new(), Tree::default(), None);
    each_line(&files_of(path)?, |line| {
        if line.seq() == 0 {
            origin = origin_in(line);
        }
        hash.update(line.bytes());
        hash.update(b"\n");
        tree.push(leaf(&line.hash().raw()));
        Ok(ControlFlow::Continue(()))
    })?;
    let missing = || Error::new(Code::Validation, "not a ledger: it has no opening line").in_file(path);
    let about = json!({"origin": origin.ok_or_else(missing)?, "size": tree.size(), "root": Hash::from_raw(&tree.root()).to_string()});
    Ok((subject(path, &Hash::from_raw(&hash.finalize().into())), vec![about]))
}
