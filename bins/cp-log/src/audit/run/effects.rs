//! Effects: a command or a change is that of its call, a result and its evidence are those of the command, and a change has the contents
//! that its entry names.

use std::path::Path;

use cp_common::Result;
use cp_common::wire::{ChangeKind, FileChange, FilesChanged};
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use serde_json::Value;

use super::Run;
use super::calls::{Call, Effect};
use crate::audit::check::{Check, at};
use crate::audit::claim::{Claims, Entry, Source, Verdict};

/// A command that has begun.
pub(super) struct Command {
    source: Source,
    call: Option<String>,
    exe: Value,
    /// The number of the next step, and how many steps before it have no entry.
    next_step: u64,
    skipped: u64,
    has_ended: bool,
    /// True if an entry with its evidence has to follow.
    needs_evidence: bool,
}

impl Command {
    /// True if entries about it have to follow.
    pub(super) const fn is_open(&self) -> bool {
        !self.has_ended || self.needs_evidence
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        if !self.needs_evidence {
            return Ok(());
        }
        claims.record(self.source, "effect", Verdict::Broken("the command has ended without its evidence".to_owned()))
    }
}

impl Run {
    /// Judges an entry of cp-exec.
    pub(super) fn effect(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let mut check = Check::of(entry);
        match entry.event.as_str() {
            "exec.intent" => {
                let command = Command {
                    source: entry.source(),
                    call: entry.text("call").map(str::to_owned),
                    exe: entry.data.get("exe").cloned().unwrap_or_default(),
                    next_step: 0,
                    skipped: 0,
                    has_ended: false,
                    needs_evidence: false,
                };
                self.commands.insert(entry.seq, command);
                let Some(id) = entry.text("call") else { return Ok(()) };
                let (base, tools) = (self.base.clone(), self.tools.clone());
                match self.calls.iter_mut().find(|call| call.id == id) {
                    Some(call) => {
                        let path = tools.get(&call.name).and_then(|(_, path)| path.as_deref());
                        check = Check::new(entry.is_redacted() || call.is_redacted);
                        call.judge_command(entry, path, &base, &mut check);
                    }
                    None => drop(check.that(false, || "the message has no such call".to_owned())),
                }
            }
            "exec.step" | "exec.result" | "exec.evidence" | "exec.changes" => self.of_command(entry, &mut check),
            "exec.operation" => {
                let what = entry.data.get("what").cloned().unwrap_or_default();
                let id = entry.text("call").or(at(&what, &["call"]).as_str()).map(str::to_owned);
                self.operations.insert(entry.seq, id.clone());
                if at(&what, &["writes", "0"]).is_null() && what.get("writes").is_none() && id.is_none() {
                    return Ok(());
                }
                judge_contents(entry.ledger, &what, &mut check);
                let base = self.base.clone();
                match self.calls.iter_mut().find(|call| Some(&call.id) == id.as_ref()) {
                    Some(call) => {
                        let mut of_call = Check::new(entry.is_redacted() || call.is_redacted);
                        call.judge_operation(entry, &what, &base, &mut of_call);
                        check.join(of_call);
                    }
                    None => drop(check.that(id.is_none(), || "the message has no such call".to_owned())),
                }
            }
            _ => return Ok(()),
        }
        claims.record(entry.source(), "effect", check.verdict())
    }

    /// Judges an entry that belongs to a command.
    fn of_command(&mut self, entry: &Entry<'_>, check: &mut Check) {
        let Some(command) = entry.number("intent").and_then(|intent| self.commands.get_mut(&intent)) else {
            check.that(false, || "it belongs to no command of the run".to_owned());
            return;
        };
        match entry.event.as_str() {
            "exec.step" => {
                let number = entry.number("step").unwrap_or_default();
                check.that(number >= command.next_step, || format!("step {number} is there twice"));
                command.skipped += number.saturating_sub(command.next_step);
                command.next_step = number + 1;
            }
            "exec.result" => {
                check.that(!command.has_ended, || "the command has ended before".to_owned());
                command.has_ended = true;
                // A result without counts is of a command that was not started, or was killed.
                command.needs_evidence = entry.data.contains_key("steps");
                if command.needs_evidence {
                    check.same("the call", entry.text("call"), command.call.as_deref());
                }
                let unrecorded = at(entry.data.get("steps").unwrap_or(&Value::Null), &["unrecorded"]).as_u64();
                let is_whole = unrecorded.is_none_or(|unrecorded| command.skipped <= unrecorded);
                check.that(is_whole, || format!("{} steps have no entry", command.skipped));
                let has = |name: &str| entry.data.get(name).is_some_and(|value| !value.is_null());
                check.that(!(has("return_code") && has("signal")), || "it has a status and a signal".to_owned());
                let output = entry
                    .data
                    .get("stdout")
                    .and_then(|out| Some((at(out, &["sha256"]).as_str()?.to_owned(), at(out, &["bytes"]).as_u64()?)));
                let status = Some(entry.data.get("return_code").cloned().unwrap_or_default());
                let id = command.call.clone();
                if let Some(call) = self.call_of(id.as_deref()) {
                    call.effect = Some(Effect { seq: entry.seq, status, output });
                }
            }
            "exec.evidence" => {
                check.that(command.needs_evidence, || "its command has no result, or has evidence already".to_owned());
                command.needs_evidence = false;
                let reads = entry.data.get("declared_reads").and_then(Value::as_array);
                let names_exe =
                    |read: &Value| ["path", "sha256"].iter().all(|name| read.get(name) == command.exe.get(name));
                let holds = reads.is_some_and(|reads| reads.iter().any(names_exe));
                check.that(holds, || "the executable of its command is not among the files".to_owned());
            }
            _ => {
                check.that(command.has_ended, || "its command has no result".to_owned());
                let Ok(changes) = serde_json::from_value::<FilesChanged>(Value::Object(entry.data.clone())) else {
                    check.that(false, || "the changes cannot be parsed".to_owned());
                    return;
                };
                let kinds = [
                    (changes.created, ChangeKind::Created),
                    (changes.changed, ChangeKind::Changed),
                    (changes.removed, ChangeKind::Removed),
                ];
                for (claimed, kind) in kinds {
                    let is_one =
                        |found: ChangeKind| found == kind || found == ChangeKind::Mode && kind == ChangeKind::Changed;
                    let listed = changes.files.iter().filter(|file| is_one(file.change)).count() as u64;
                    let holds = claimed == listed || changes.truncated && claimed > listed;
                    check.that(holds, || format!("{listed} files are listed as {kind:?}, {claimed} are counted"));
                }
                let sides = |file: &FileChange| (file.before.is_some(), file.after.is_some());
                let holds = changes.files.iter().all(|file| match file.change {
                    ChangeKind::Created => sides(file) == (false, true),
                    ChangeKind::Removed => sides(file) == (true, false),
                    ChangeKind::Changed | ChangeKind::Mode => sides(file) == (true, true),
                });
                check.that(holds, || "a change contradicts the states before and after".to_owned());
            }
        }
    }
}

impl Call {
    /// Compares a command with the arguments of its call.
    fn judge_command(&self, entry: &Entry<'_>, path: Option<&str>, base: &str, check: &mut Check) {
        check.that(!self.is_answered, || "the call has a result already".to_owned());
        let argv = entry.data.get("argv").cloned().unwrap_or_default();
        let input = &self.input;
        let tool = if path.is_some() { "tool" } else { "shell" };
        check.same("the tool", entry.text("tool"), Some(tool));
        match (self.name.as_str(), path) {
            (_, Some(path)) => {
                let program = argv.get(0).and_then(Value::as_str).unwrap_or_default();
                check.that(program.ends_with(path), || format!("the program is {program}, not {path}"));
                let given =
                    argv.get(1).and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok());
                check.text("the arguments", given.as_ref(), Some(input));
            }
            ("bash", _) => {
                check.text("the line", entry.text("line"), at(input, &["command"]).as_str());
                let words: Vec<&str> = argv.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let is_of_shell = matches!(words[..], ["bash", "-c", line] if Some(line) == entry.text("line"));
                check.text("that the shell runs the line", is_of_shell, true);
            }
            ("shell", _) if input.get("argv").is_some() => {
                check.text("argv", Some(&argv), input.get("argv"));
            }
            ("shell", _) if input.get("command").is_some() => {
                let words = argv.as_array().into_iter().flatten().filter_map(Value::as_str);
                let plain = |text: &str| {
                    text.chars().filter(|c| !c.is_whitespace() && !r#"'"\"#.contains(*c)).collect::<String>()
                };
                let command = plain(at(input, &["command"]).as_str().unwrap_or_default());
                // A home directory or a shell may be in the words.
                let holds = plain(&words.collect::<String>()) == command
                    || command.contains('~')
                    || entry.text("line").is_some();
                check.text("that the words are those of the call", holds, true);
            }
            _ => {}
        }
        if path.is_none() {
            if self.name != "bash" && input.get("argv").is_some() {
                check.text("line", entry.text("line"), None::<&str>);
            }
            if at(input, &["cwd"]).is_null() {
                check.text("cwd", entry.text("cwd"), Some(base));
            }
            check.text("stdin", entry.text("stdin"), at(input, &["stdin"]).as_str());
            if let Some(seconds) = at(input, &["timeout"]).as_u64() {
                check.that(entry.number("timeout_ms").is_some_and(|limit| limit <= seconds * 1000), || {
                    "the time limit is longer than that of the call".to_owned()
                });
            }
        }
    }

    /// Compares an operation with the arguments of its call.
    fn judge_operation(&mut self, entry: &Entry<'_>, what: &Value, base: &str, check: &mut Check) {
        check.that(!self.is_answered, || "the call has a result already".to_owned());
        let arguments = self.input.get("arguments").unwrap_or(&self.input);
        let named = at(&self.input, &["operation"]).as_str().unwrap_or_default();
        let operation = entry.text("operation").unwrap_or_default();
        check.same("the operation", operation, format!("{}.{named}", self.name).as_str());
        let write = what.get("writes").and_then(|writes| writes.get(0));
        let read = what.get("reads").and_then(|reads| reads.get(0));
        let file = write.or(read).unwrap_or(&Value::Null);
        if let (Some(path), Some(asked)) = (at(file, &["path"]).as_str(), at(arguments, &["path"]).as_str()) {
            let expected = Path::new(base).join(asked);
            let plain =
                |path: &Path| path.components().filter(|part| part.as_os_str() != ".").collect::<std::path::PathBuf>();
            let is_same = plain(Path::new(path)) == plain(&expected);
            // A link or `..` leads to another name, which cannot be resolved any more.
            let may_differ = asked.contains("..") || asked.starts_with('~') || expected.is_symlink();
            check.text("that the path is that of the call", is_same || may_differ || leads_to(&expected, path), true);
        }
        let load = |side: &str| {
            let hash = at(file, &[side, "blob"]).as_str().and_then(Hash::parse)?;
            blob::load(entry.ledger, &hash).ok()
        };
        match operation {
            "filesystem.write_file" => {
                let content = at(arguments, &["content"]).as_str().unwrap_or_default();
                check.text(
                    "sha256",
                    at(file, &["sha256"]).as_str(),
                    Some(Hash::of(content.as_bytes()).to_string().as_str()),
                );
            }
            "filesystem.edit_file" => {
                let text = |name: &str| at(arguments, &[name]).as_str();
                if let (Some(old), Some(new), Some(before), Some(after)) =
                    (text("old"), text("new"), load("before"), load("after"))
                {
                    let before = String::from_utf8_lossy(&before).into_owned();
                    let is_all = at(arguments, &["all"]) == true;
                    let edited = if is_all { before.replace(old, new) } else { before.replacen(old, new, 1) };
                    let is_found = before.contains(old);
                    check.text("that the edit is that of the call", !is_found || edited.as_bytes() == after, true);
                }
            }
            _ => {}
        }
        let is_named = file.is_null() || at(file, &["path"]).is_string();
        check.that(is_named, || "the file has no path".to_owned());
        let members = ["sha256", "offset", "bytes"];
        let has_all = operation != "filesystem.read_file" || members.iter().all(|name| file.get(name).is_some());
        check.that(has_all, || "the file that was read has no hash, offset or length".to_owned());
        let whole = at(file, &["offset"]) == 0 || at(arguments, &["offset"]).is_u64();
        let is_plain = ["line", "lines", "numbered", "encoding"].iter().all(|name| arguments.get(name).is_none());
        let output = (operation == "filesystem.read_file" && whole && is_plain)
            .then(|| Some((at(file, &["sha256"]).as_str()?.to_owned(), at(file, &["bytes"]).as_u64()?)))
            .flatten();
        self.effect = Some(Effect { seq: entry.seq, status: None, output });
    }
}

/// True if a path is the file that another one leads to.
pub(super) fn leads_to(asked: &Path, path: &str) -> bool {
    let parent = asked.parent().and_then(|parent| parent.canonicalize().ok());
    parent.zip(asked.file_name()).is_some_and(|(parent, name)| parent.join(name) == Path::new(path))
}

/// Compares the members of changes with each other: the mode, and the contents before and after.
fn judge_contents(ledger: &Path, what: &Value, check: &mut Check) {
    for write in what.get("writes").and_then(Value::as_array).into_iter().flatten() {
        let (before, after) = (at(write, &["before"]), at(write, &["after"]));
        if write.get("after").is_none() {
            continue;
        }
        let mode = at(write, &["mode"]).as_str().unwrap_or_default();
        let holds = match mode {
            "create" => before.is_null() && !after.is_null(),
            "overwrite" | "edit" => !before.is_null() && !after.is_null(),
            "remove" => !before.is_null() && after.is_null(),
            "restore" => !before.is_null() || !after.is_null(),
            _ => false,
        };
        check.that(holds, || format!("the mode `{mode}` contradicts the contents before and after"));
        if !after.is_null() {
            check.same("sha256", write.get("sha256"), after.get("blob"));
            check.same("bytes", write.get("bytes"), after.get("len"));
        }
        for side in [before, after].into_iter().filter(|side| !side.is_null()) {
            let hash = at(side, &["blob"]).as_str().and_then(Hash::parse);
            check.that(hash.is_some(), || "a content has no hash".to_owned());
            let Some(bytes) = hash.and_then(|hash| blob::load(ledger, &hash).ok()) else { continue };
            check.same("len", at(side, &["len"]).as_u64(), Some(bytes.len() as u64));
        }
    }
}
