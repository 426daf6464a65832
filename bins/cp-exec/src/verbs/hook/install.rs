//! `cp-exec hook install`: the hook in the configuration of a host, shown as a difference and confirmed. What else is there stays.

use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::home::resolved;
use cp_common::program::confirm::{self, Change, Gate, Write};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::{Entry, effect_ledger};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::decision::difference;
use crate::digest::sha256;
use crate::hook::Host;
use crate::hosts::{Command, file_of, with_ours};
use crate::policy;
use crate::tools::filesystem::{After, Pending, present};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "hook install",
    class: Class::Write,
    output: "hook_changed",
    examples: &["{} hook install claude --project . --dry-run"],
    events: &["hook.install"],
    ..VerbDoc::EMPTY
};

/// Put the hook into the configuration of a host
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub write: WriteOptions,
}

/// Whose configuration.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// The agent
    #[arg(value_name = "HOST", value_enum)]
    pub host: Host,
    /// The configuration of a project, not your own
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

/// What became of a configuration.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "hook_changed"))]
pub(crate) struct Changed {
    /// The agent.
    host: String,
    /// Its file.
    file: String,
    /// Whether the file was changed now.
    #[serde(rename = "changed")]
    is_new: bool,
    /// The hash of the file; null if it is gone.
    sha256: Option<String>,
    /// What is left to do.
    next: Option<String>,
}

impl Reply for Changed {
    fn text(&self) -> String {
        let how = if self.is_new { "changed" } else { "unchanged" };
        let next = self.next.iter().map(|next| format!("\n{next}"));
        next.fold(format!("{how} {}", self.file), |text, next| text + &next)
    }
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let host = args.place.host;
    let program = text_of(&std::env::current_exe().map_err(|e| Error::io("finding this program", e))?)?;
    let home = text_of(&resolved(context.home.root()))?;
    let command = Command { host, program: &program, home: &home };
    let next =
        (host == Host::Codex).then_some("start codex and trust the hook (/hooks): until then codex passes it over");
    let made = |text: Option<&str>| with_ours(&command, text).map(Some);
    change("install", (&args.place, &args.write), next, context, made)
}

fn text_of(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| Error::validation("the path is not UTF-8").in_file(path))
}

/// The directory of the person, as the hosts find it.
pub(super) fn person(context: &Context) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    home.map_or_else(|| policy::load(&context.home.policy_file()).map(|loaded| loaded.home), Ok)
}

/// Makes another text of a host's file, or none, behind the gate of a write and on the record.
pub(super) fn change(
    action: &str,
    (place, write): (&Place, &WriteOptions),
    next: Option<&str>,
    context: &mut Context,
    made: impl FnOnce(Option<&str>) -> Result<Option<String>>,
) -> Result<()> {
    let host = place.host;
    let absolute = |project: &PathBuf| {
        project.canonicalize().map_err(|e| Error::not_found(format!("the project: {e}")).in_file(project))
    };
    let project = place.project.as_ref().map(absolute).transpose()?;
    let file = resolved(&file_of(host, project.as_deref(), &person(context)?));
    context.home.check_writable(&file)?;
    let verb = format!("hook {action}");
    let asked = Write { verb: &verb, arguments: &(host, &file), dangerous: false };
    confirm::write(&asked, write, context, |gate: Gate<'_, _>, context| {
        let before = present(&file)?;
        let text = before.as_ref().map(|before| std::str::from_utf8(&before.bytes)).transpose();
        let text = text.map_err(|e| Error::new(Code::Conflict, e.to_string()).in_file(&file))?;
        let after = made(text).map_err(|e| e.in_file(&file))?;
        let hash = |text: Option<&str>| text.map(|text| sha256(text.as_bytes()));
        let (old, new) = (hash(text), hash(after.as_deref()));
        let name = file.display().to_string();
        let changed = old != new;
        let answer = Changed {
            host: host.name().to_owned(),
            file: name.clone(),
            is_new: changed,
            sha256: new.clone(),
            next: next.map(str::to_owned),
        };
        if !changed {
            gate.nothing_to_do()?;
            return Ok(Some(answer));
        }
        if before.as_ref().is_some_and(|before| before.permissions & 0o222 == 0) {
            return Err(Error::new(Code::Forbidden, "the file is read-only")
                .in_file(&file)
                .hint("its owner can make it writable, for example with `chmod u+w`"));
        }
        let shown =
            difference(&name, text.unwrap_or_default().as_bytes(), after.as_deref().unwrap_or_default().as_bytes());
        let what = Change {
            action: action.to_owned(),
            resource: "hook".to_owned(),
            id: name.clone(),
            before: json!({ "sha256": old }),
            after: json!({ "sha256": new, "difference": shown }),
        };
        if !gate.pass(vec![what], context)? {
            return Ok(None);
        }
        let entry = Entry::new(format!("hook.{action}"))
            .with("host", &host)
            .with("file", &name.as_str())
            .with("before", &old)
            .with("after", &new);
        let mut ledger = effect_ledger(context, "cp-exec.jsonl")?;
        ledger.append(entry)?;
        ledger.sync()?;
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(|e| Error::io("creating the directory", e).in_file(parent))?;
        }
        let after = after.map(|text| After::new(text.into_bytes(), None));
        Pending { path: file.clone(), mode: "overwrite", before, after }.carry_out()?;
        Ok(Some(answer))
    })
}
