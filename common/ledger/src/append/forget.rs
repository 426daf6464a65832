//! Forgetting a sealed value: the vault says that it is meant, the ledger says so, the key is overwritten, and the ledger says that it was.
//! A crash between any two of these is made good by whoever opens the ledger next.

use cp_common::Result;
use cp_common::wire::Receipt;

use super::Ledger;
use crate::format::Entry;
use crate::format::line::Hash;
use crate::store::vault::{self, Pending, Stage, Vault};

impl Ledger {
    /// Takes a sealed value away for good. `None` if it is not there.
    pub fn forget(&mut self, hash: &Hash) -> Result<Option<Receipt>> {
        if !vault::is_there(&self.path) {
            return Ok(None);
        }
        let mut vault = Vault::open(&self.path)?;
        let _held = vault.lock()?;
        if let Some(earlier) = vault.pending()? {
            self.carry_out(&mut vault, &earlier)?;
        }
        // A ledger that takes no entry has nothing forgotten.
        let ready = self.ready();
        self.unlock();
        ready?;
        let pending = vault.intend(hash)?;
        pending.map(|pending| self.carry_out(&mut vault, &pending)).transpose()
    }

    /// Finishes what a crash kept from being forgotten.
    pub(super) fn go_on_forgetting(&mut self) -> Result<()> {
        if !vault::is_pending(&self.path)? {
            return Ok(());
        }
        let mut vault = Vault::open(&self.path)?;
        let _held = vault.lock()?;
        // Another one may have finished it while we waited.
        vault.pending()?.map_or(Ok(()), |pending| self.carry_out(&mut vault, &pending).map(drop))
    }

    fn carry_out(&mut self, vault: &mut Vault, pending: &Pending) -> Result<Receipt> {
        let sealed = pending.hash.to_string();
        match pending.stage {
            Stage::Meant => {
                self.append_own(&Entry::new("ledger.forget").with("sealed", &sealed))?;
                vault.recorded(pending)?;
            }
            Stage::Recorded => {}
        }
        vault.erase(pending)?;
        let receipt = self.append_own(&Entry::new("ledger.forgotten").with("sealed", &sealed))?;
        vault.done()?;
        Ok(receipt)
    }

    /// Appends one entry of the ledger's own, on disk when this returns.
    fn append_own(&mut self, entry: &Entry) -> Result<Receipt> {
        let written = self.ready().and_then(|known| self.write_own(known, std::slice::from_ref(entry)));
        self.unlock();
        let known = written?;
        self.sync_now()?;
        Ok(self.receipt(known.next - 1, &known.hash))
    }
}
