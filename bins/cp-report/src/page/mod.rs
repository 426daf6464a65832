//! The page: the summary in templates, the bundle, and the script.

mod head;
mod text;
mod writer;

use sha2::{Digest as _, Sha256};

use crate::bundle::Ledger;
use crate::model::Place;

pub(crate) use self::head::{Heading, heading};
pub(crate) use self::writer::{Input, write};

/// A ledger of the page.
pub(crate) struct Placed {
    /// Its id on this page and on others.
    pub(crate) id: String,
    pub(crate) ledger: Ledger,
    /// The run whose ledger it is.
    pub(crate) run: Option<String>,
}

impl Placed {
    pub(crate) fn new(ledger: Ledger, others: &[Self]) -> Self {
        let digest = Sha256::digest(&ledger.origin);
        let mut id = format!("{:08x}", u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]));
        if others.iter().any(|other| other.id == id) {
            id = format!("{id}x{}", others.len());
        }
        Self { id, ledger, run: None }
    }
}

/// The id of a line, on this page and on others.
fn id_of(ledgers: &[Placed], (ledger, seq): Place) -> String {
    format!("l{}-{seq}", ledgers.get(ledger).map(|placed| &*placed.id).unwrap_or_default())
}
