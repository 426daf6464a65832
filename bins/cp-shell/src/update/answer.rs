//! What `cp-shell update` answers.

use cp_common::output::Notice;
use cp_common::wire::Reply;
use serde::Serialize;

/// What was done, or would be.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the answer")]
pub(super) struct Updated {
    /// `updated`, `rolled_back`, `current` where there was nothing to do, `available` for `--check`, `planned` for `--dry-run`.
    pub(super) status: &'static str,
    /// The version that was in force before.
    pub(super) previous_version: String,
    /// The version that is in force now.
    pub(super) current_version: String,
    /// The version that was asked for, or the newest; null where a package manager knows it.
    pub(super) target_version: Option<String>,
    /// Whether the target is newer than what is in force.
    pub(super) update_available: bool,
    /// `release`, `apt`, `cargo`, or `development`, which is not updated.
    pub(super) install_method: &'static str,
    /// What installs the target.
    pub(super) command: String,
    /// Whether the programs were replaced.
    pub(super) binary_replaced: bool,
    /// `verified`, or `not_checked` where nothing was to be installed or a package manager answers for it.
    pub(super) signature_status: &'static str,
    /// Whether a signature was verified, here and now.
    pub(super) signature_verified: bool,
    /// What was verified.
    pub(super) verification: Option<Verification>,
    /// Whether skills that a person installed are brought up to date too.
    pub(super) skill_sync_supported: bool,
    /// `synced`, `current`, `not_installed`, or `not_started`.
    pub(super) skill_sync_status: &'static str,
    /// What to do next, in order.
    pub(super) next_steps: Vec<String>,
    /// What a caller should know: the notice of a newer release.
    pub(super) notices: Vec<Notice>,
}

/// What is certain of a release.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Verification {
    /// The key that signed the list of its files.
    pub(super) key: String,
    /// Its archive for this machine.
    pub(super) archive: String,
    /// The hash of the archive in that list; what is installed has it.
    pub(super) sha256: String,
}

impl Reply for Updated {
    fn text(&self) -> String {
        let Self { status, previous_version, current_version, target_version, skill_sync_status, .. } = self;
        let line = match *status {
            "current" => format!("{current_version} is the newest version"),
            "available" | "planned" => {
                format!("{} would replace {current_version}", target_version.as_deref().unwrap_or("the newest version"))
            }
            _ => format!("{status}: {previous_version} → {current_version}, skill: {skill_sync_status}"),
        };
        [line]
            .into_iter()
            .chain(self.next_steps.iter().map(|step| format!("next: {step}")))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_type() {
        cp_common::wire::schemas::same_or_update(env!("CARGO_MANIFEST_DIR"), "update", &schemars::schema_for!(Updated));
    }
}
