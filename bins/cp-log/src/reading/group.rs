//! Which of the files that were named or found are one ledger.

use std::collections::HashMap;
use std::path::PathBuf;

use cp_common::Context;
use cp_common::output::Severity;
use cp_ledger::read::segments;

use super::files::Target;

/// The files of one ledger, the oldest first.
pub(crate) struct Group {
    pub(crate) ledger: PathBuf,
    pub(crate) files: Vec<Target>,
}

impl Group {
    /// Whether only closed segments were named, so that nobody asked for the others.
    pub(crate) fn is_part(&self) -> bool {
        self.files.iter().all(|file| file.named && segments::is_closed(&file.path))
    }

    /// The files of each ledger, in the order in which the ledgers were named or found.
    pub(crate) fn all(targets: &[Target], context: &mut Context) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        let mut places = HashMap::new();
        for target in targets {
            let ledger = segments::ledger_of(&target.path);
            let place = *places.entry(ledger.clone()).or_insert_with(|| {
                groups.push(Self { ledger, files: Vec::new() });
                groups.len() - 1
            });
            let files = &mut groups[place].files;
            if !files.iter().any(|file| file.path == target.path) {
                files.push(target.clone());
            }
        }
        for group in &mut groups {
            // Digits sort before letters, so the file that goes on comes last.
            group.files.sort_by(|a, b| a.path.cmp(&b.path));
            group.files.dedup_by(|later, earlier| {
                let twice = segments::unpacked_name(&later.path) == segments::unpacked_name(&earlier.path);
                if twice {
                    let (later, earlier) = (later.path.display(), earlier.path.display());
                    let message = format!("{later} is {earlier} packed, and was not looked at");
                    context.out.notice("segment_twice", Severity::Warning, message);
                }
                twice
            });
        }
        groups
    }
}
