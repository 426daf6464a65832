//! Approvals: pending requests, the approvers, and the grants of persons, each valid for one start.
//!
//! A request is stored in the home as its record; its grant is stored beside it until its command starts. The grant is
//! bound to the hashes of the record, so that only the command that was shown can start, and to who granted it.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::clock;
use crate::coprocess::{Child, ChildOptions, cmd, split};
use crate::home::{Home, sweep, write_whole};
use crate::keys::hash;
use crate::output::{printable, printable_line};
use crate::program::grant::{self, Bound, encoded};
use crate::program::terminal;
use crate::wire::{Action, Approval, AskedBy, Binds, Code, Error, Grant, Level, Result, Scope, Shown, quoted};

/// Lifetime of a pending request: a week.
const PENDING_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// Directory of requests and grants, in the state of the home.
const DIRECTORY: &str = "approvals";

/// A spent grant, which is valid for one start.
#[derive(Clone, Debug)]
pub struct Spent {
    /// The request that was granted.
    pub approval: Approval,
    /// The grant.
    pub grant: Grant,
    /// The keyed hash of the grant.
    pub confirmed: String,
}

/// Makes a request for approval.
pub fn new(
    asked_by: AskedBy,
    action: Action,
    level: Level,
    scopes: &[Scope],
    shown: Shown,
    binds: Binds,
) -> Result<Approval> {
    let (asked_at, scopes) = (clock::from_unix_seconds(clock::unix_seconds()), scopes.to_vec());
    let unnamed = Approval { id: String::new(), asked_by, action, level, scopes, shown, binds, asked_at };
    Ok(Approval { id: id_of(&unnamed)?, ..unnamed })
}

/// Computes the id of a request. Equal requests of two runs, or of two calls of a run, have different ids.
pub fn id_of(approval: &Approval) -> Result<String> {
    let bytes = encoded(&(approval.action, approval.level, &approval.binds, approval.run_and_call()))?;
    Ok(format!("APR-{}", &hash(&bytes)["sha256:".len()..][..16]))
}

/// Stores the request, so that `cp-exec approve` lists it, and returns the error that asks for an answer.
pub fn pause(home: &Home, approval: &Approval) -> Result<Error> {
    write_whole(&file(home, &approval.id, "json"), &encoded(approval)?)?;
    let line = approve_line(home, &approval.id);
    let error = Error::new(Code::HumanRequired, format!("requires approval by a person: {}", approval.shown.why));
    Ok(error
        .with("rule", approval.shown.rule.clone())
        .with("action", "approve_command")
        .with("id", approval.id.clone())
        .with("resume", line.clone())
        .with("approval", serde_json::to_value(approval).unwrap_or_default())
        .with("_untrusted", serde_json::json!(["/approval/shown"]))
        .hint(format!("run `{line}` at a terminal, then repeat the request")))
}

/// The command line that answers the request, quoted for a shell.
pub fn approve_line(home: &Home, id: &str) -> String {
    format!("cp-exec --home {} approve {id}", quoted(&home.root().display().to_string()))
}

/// Returns the pending requests, newest first. Requests without an answer for a week are removed.
pub fn waiting(home: &Home) -> Vec<Approval> {
    let directory = home.state(DIRECTORY);
    sweep(&directory, PENDING_LIFETIME);
    let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let read = files.filter_map(|entry| std::fs::read(entry.path()).ok());
    // The record of a grant is no request.
    let mut found: Vec<Approval> = read.filter_map(|bytes| serde_json::from_slice(&bytes).ok()).collect();
    found.sort_by(|a, b| b.asked_at.cmp(&a.asked_at));
    found
}

/// Returns the pending request with this id.
pub fn find(home: &Home, id: &str) -> Result<Approval> {
    let missing = || Error::not_found(format!("no approval with the id `{id}` is pending"));
    let found = waiting(home).into_iter().find(|approval| approval.id == id);
    found.ok_or_else(|| missing().hint("`cp-exec approve` lists the ids"))
}

/// Issues a confirm token for the request to its caller. Returns it with its expiry.
pub fn issue(home: &Home, approval: &Approval) -> Result<(String, String)> {
    grant::issue(home, &bound(approval, None)?)
}

/// Spends a confirm token of the caller for exactly this request. Returns the keyed hash of the token.
pub fn redeem(home: &Home, token: &str, approval: &Approval) -> Result<String> {
    grant::redeem(home, token, &bound(approval, None)?)
}

/// Stores a grant for the next start of exactly this request.
pub fn grant(home: &Home, approval: &Approval, grant: &Grant) -> Result<()> {
    let (token, _) = grant::issue(home, &bound(approval, Some(grant))?)?;
    write_whole(&file(home, &approval.id, "granted"), &encoded(&(token, grant))?)?;
    answered(home, &approval.id)
}

/// Removes an answered request.
pub fn answered(home: &Home, id: &str) -> Result<()> {
    remove(home, id, "json")
}

/// Spends the grant for exactly this request: of several callers, one gets it. A grant that has expired, belongs to
/// another request, or came by an insufficient channel is ignored.
pub fn take(home: &Home, approval: &Approval) -> Result<Option<Spent>> {
    let stored = std::fs::read(file(home, &approval.id, "granted")).ok();
    let stored = stored.and_then(|bytes| serde_json::from_slice::<(String, Grant)>(&bytes).ok());
    let Some((token, grant)) = stored.filter(|(_, grant)| approval.level.takes(grant.how)) else { return Ok(None) };
    match grant::redeem(home, &token, &bound(approval, Some(&grant))?) {
        Ok(confirmed) => {
            remove(home, &approval.id, "granted")?;
            answered(home, &approval.id)?;
            Ok(Some(Spent { approval: approval.clone(), grant, confirmed }))
        }
        Err(error) if error.code() == Code::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}

/// A grant by a person is bound to who granted it, so that a confirm token of the caller is none.
fn bound(approval: &Approval, by: Option<&Grant>) -> Result<Bound> {
    let request = ("approval", approval.action, &approval.binds.request);
    Bound::new(&request, &(approval.level, &approval.binds, approval.run_and_call(), by))
}

fn file(home: &Home, id: &str, kind: &str) -> PathBuf {
    home.state(DIRECTORY).join(format!("{id}.{kind}"))
}

fn remove(home: &Home, id: &str, kind: &str) -> Result<()> {
    let path = file(home, id, kind);
    std::fs::remove_file(&path).or_else(|e| match e.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(Error::io("removing an approval", e).in_file(&path)),
    })
}

/// The outcome of an approver: a program that answers by its exit status, or a person at the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Approved, with the scope.
    Granted(Scope),
    /// Denied, with the reason.
    Denied(String),
    /// The approver could not run, was killed or timed out, so nothing was decided.
    Undecided(String),
}

impl Verdict {
    /// Parses the typed answer of a person; `None` if it is not one of the choices.
    pub fn of(typed: &str, approval: &Approval) -> Option<Self> {
        match typed.trim().to_lowercase().as_str() {
            "y" | "yes" => Some(Self::Granted(Scope::Once)),
            "n" | "no" => Some(Self::Denied("a person denied it".to_owned())),
            "a" | "always" if approval.scopes.contains(&Scope::Run) => Some(Self::Granted(Scope::Run)),
            _ => None,
        }
    }
}

/// Exit statuses from this one on carry no verdict, because shells use them for a program that could not run or was
/// killed.
const NO_ANSWER: i32 = 126;

/// Runs an approver and waits until `until` for its answer: exit status 0 approves, otherwise its output is the reason.
/// A signal to this process is an error, not an answer.
pub fn ask(argv: &[String], approval: &Approval, until: Option<Instant>) -> Result<Verdict> {
    /// Maximum length of a reason, in characters.
    const LONGEST: usize = 1000;
    let undecided = |why: String| Ok(Verdict::Undecided(format!("the approver {why}")));
    let (program, arguments) = split(argv)?;
    let mut child = match Child::start(program, &cmd(program, arguments), ChildOptions::DEFAULT) {
        Ok(child) => child,
        Err(error) => return undecided(format!("cannot be used: {}", error.message())),
    };
    let mut record = encoded(approval)?;
    record.push(b'\n');
    // It may decide without reading its input.
    child.feed(&record)?;
    let Some((status, output)) = child.output(until, &mut |_| Ok(()))? else {
        return undecided("did not answer in time".to_owned());
    };
    match status.code() {
        Some(0) => Ok(Verdict::Granted(Scope::Once)),
        Some(code) if code < NO_ANSWER => {
            let reason: String = String::from_utf8_lossy(&output).trim().chars().take(LONGEST).collect();
            Ok(Verdict::Denied(if reason.is_empty() { "the approver denied it".to_owned() } else { reason }))
        }
        Some(code) => undecided(format!("exited with status {code}, which is not a decision")),
        None => undecided(format!("was killed before it answered ({status})")),
    }
}

/// Asks at the terminal and waits until `until`. `None` if there is no terminal or no decision.
pub fn at_terminal(approval: &Approval, until: Option<Instant>) -> Result<Option<Verdict>> {
    let question = format!("{}\n{}", description(approval), prompt(approval));
    terminal::ask(&question, until, |typed| Verdict::of(typed, approval))
}

/// Returns the question with the possible answers.
pub fn prompt(approval: &Approval) -> String {
    let always = if approval.scopes.contains(&Scope::Run) { ", a = always for this run" } else { "" };
    format!("Allow it? y = yes, n = no{always}: ")
}

/// Describes the request. Control characters are escaped, and no quoted text can forge a line.
pub fn description(approval: &Approval) -> String {
    let shown = &approval.shown;
    let mut text = format!("{}\n", printable_line(&approval.subject()));
    for line in shown.diff.iter().flat_map(|diff| diff.lines()) {
        let _ = writeln!(text, "    {}", printable(line));
    }
    for command in &shown.ran {
        let _ = writeln!(text, "  ran before: {}", printable_line(command));
    }
    if !shown.variables.is_empty() {
        let _ =
            writeln!(text, "  with {} set, to values that are not shown", printable_line(&shown.variables.join(", ")));
    }
    if let Some(cwd) = &shown.cwd {
        let _ = writeln!(text, "  in {}", printable_line(cwd));
    }
    let _ = writeln!(text, "  risk {}, {}: {}", shown.risk, printable_line(&shown.rule), printable_line(&shown.why));
    let asked_by = &approval.asked_by;
    let [program, agent] = [&asked_by.program, &asked_by.agent].map(|name| printable_line(name));
    let _ = write!(text, "  asked by {program} for the agent {agent} at {}", approval.asked_at);
    for (name, value) in [("run", &asked_by.run), ("call", &asked_by.call_id)] {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {}", printable_line(value));
        }
    }
    if approval.level == Level::Owner {
        text.push_str("\n  The policy leaves this to its owner.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::How;

    fn asked(level: Level) -> Approval {
        let binds = Binds { request: hash(b"push"), policy: Some(hash(b"policy")), ..Binds::default() };
        new(AskedBy::default(), Action::Run, level, &[Scope::Once], Shown::default(), binds).unwrap()
    }

    fn home() -> (tempfile::TempDir, Home) {
        let place = tempfile::tempdir().unwrap();
        let home = Home::find(Some(place.path())).unwrap();
        (place, home)
    }

    #[test]
    fn grant_is_valid_once_and_only_for_its_request() {
        let (_place, home) = &home();
        let (approval, yes) = (asked(Level::Agent), Grant::new(How::Resume, Scope::Once));
        let changed =
            Approval { binds: Binds { program: Some(hash(b"file")), ..approval.binds.clone() }, ..approval.clone() };
        assert!(take(home, &approval).unwrap().is_none());
        pause(home, &approval).unwrap();
        assert_eq!(waiting(home), std::slice::from_ref(&approval));
        grant(home, &approval, &yes).unwrap();
        assert!(waiting(home).is_empty());
        assert!(take(home, &changed).unwrap().is_none(), "the file changed since");
        let takers = [(); 8].map(|()| (home.to_owned(), approval.clone()));
        let threads =
            takers.map(|(home, approval)| std::thread::spawn(move || take(&home, &approval).unwrap().is_some()));
        assert_eq!(threads.map(|thread| thread.join().unwrap()).iter().filter(|got| **got).count(), 1);
    }

    #[test]
    fn grant_of_person_and_token_of_caller_do_not_replace_each_other() {
        let (_place, home) = &home();
        let (approval, yes) = (asked(Level::Agent), Grant::new(How::Resume, Scope::Once));
        let path = file(home, &approval.id, "granted");
        let stored = || serde_json::from_slice::<(String, Grant)>(&std::fs::read(&path).unwrap()).unwrap();
        grant(home, &approval, &yes).unwrap();
        assert_eq!(redeem(home, &stored().0, &approval).unwrap_err().details()["changed"], "target");
        for (token, by, counts) in [
            (issue(home, &approval).unwrap().0, yes.clone(), false),
            (stored().0, Grant { how: How::Terminal, ..yes.clone() }, false),
            (stored().0, yes, true),
        ] {
            std::fs::write(&path, encoded(&(token, &by)).unwrap()).unwrap();
            assert_eq!(take(home, &approval).unwrap().is_some(), counts, "{by:?}");
        }
    }

    #[test]
    fn owner_level_accepts_only_terminal() {
        let (_place, home) = &home();
        let approval = asked(Level::Owner);
        for (how, counts) in [(How::Resume, false), (How::Approver, false), (How::Terminal, true)] {
            grant(home, &approval, &Grant::new(how, Scope::Once)).unwrap();
            assert_eq!(take(home, &approval).unwrap().is_some(), counts, "{how:?}");
        }
    }

    #[test]
    fn expired_request_is_not_listed() {
        let (_place, home) = &home();
        let old = asked(Level::Agent);
        pause(home, &old).unwrap();
        assert_eq!(find(home, &old.id).unwrap(), old);
        let pending = std::fs::File::open(file(home, &old.id, "json")).unwrap();
        pending.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(waiting(home).is_empty());
        assert_eq!(find(home, &old.id).unwrap_err().code(), Code::NotFound);
        assert_eq!(find(home, "../../keys").unwrap_err().code(), Code::NotFound);
    }
}
