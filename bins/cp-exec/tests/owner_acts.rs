//! What the owner of a repository does in it beside a run stays, and the run goes on: each act, beside a line, beside
//! an agent, and beside a run that is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::exec::{Exec, Who, everyone, rows, soon};
use crate::guard::undone;

/// An act: its name, its commands, and a command with the output that it must have afterwards.
type Act = [&'static str; 4];

const ACTS: &str = include_str!("data/git/owner-acts.tsv");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Line,
    Agent,
    Killed,
    /// An agent that is killed.
    KilledAgent,
}

/// Runs a line as the user of the project, outside of the sandbox.
fn act(exec: &Exec, at: &Path, line: &str) -> String {
    let line = format!("cd {} && {{ {line}\n}}", at.display());
    let ran = exec.outside(&line).run();
    let failed = if ran.status == 0 { String::new() } else { format!(" (status {}: {})", ran.status, ran.stderr) };
    format!("{}{failed}", ran.stdout.trim_end())
}

fn project(who: Who) -> Exec {
    let exec = Exec::new(who);
    let setup = "git init -q -b main . && git config user.name me && git config user.email me@x && mkdir .vscode && \
                 echo {} >.vscode/settings.json && echo .vscode >.gitignore && echo a >f && git add f .gitignore && \
                 git commit -qm a && git init -q --bare ../r.git && git remote add origin ../r.git && \
                 git push -q origin main main:x 2>&1 && git fetch -q";
    assert_eq!(act(&exec, &exec.work, setup), "");
    exec
}

/// The parts of a repository that only a run of cp-exec makes, and what is in quarantine.
fn left(exec: &Exec, at: &Path) -> Vec<PathBuf> {
    let parts = ["commondir", "config.worktree", "objects/info/alternates", "index.lock", "config.lock"];
    let mut left: Vec<PathBuf> = parts.iter().map(|name| at.join(".git").join(name)).collect();
    left.retain(|path| path.symlink_metadata().is_ok());
    let of_ours = |path: &PathBuf| path.to_string_lossy().contains("cp-exec") || path.ends_with(".new");
    let within = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    left.extend(within(at.join(".git")).chain(within(at.join(".git/cp-keep"))).filter(of_ours));
    left.extend(within(exec.home.join("state/quarantine")));
    left
}

fn beside(who: Who, run: Run, [name, line, check, expected]: Act) -> Result<(), String> {
    let expected = expected.replace("\\n", "\n");
    let exec = project(who);
    let renamed = exec.root.join("renamed");
    let script = "touch began; i=0; while [ ! -e go ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done; sleep 0.2; touch ended";
    let started = match run {
        Run::Line | Run::Killed => exec.command(&["--timeout", "30", "--", "sh", "-c", script]),
        Run::Agent | Run::KilledAgent => exec.command(&["agent", "--", "sh", "-c", script]),
    };
    let started = started.start();
    let began = soon(|| exec.work.join("began").exists());
    let acted = act(&exec, &exec.work, line);
    let at: &Path = if name == "rename" { &renamed } else { &exec.work };
    let is_killed = matches!(run, Run::Killed | Run::KilledAgent);
    let said = if is_killed {
        thread::sleep(Duration::from_millis(100));
        started.kill();
        String::new()
    } else {
        fs::write(at.join("go"), "").unwrap();
        let finished = started.finish();
        format!("{} {} {}", finished.status, finished.stdout, finished.stderr)
    };
    let ended = at.join("ended").exists();
    if name == "rename" {
        fs::rename(&renamed, &exec.work).unwrap();
    }
    let mut wrong = Vec::new();
    if is_killed {
        let (answer, status) = exec.ask(&["--", "true"]);
        if status != 0 || !undone(&answer).is_empty() {
            wrong.push(format!("the next start: {answer}"));
        }
    }
    let told = act(&exec, &exec.work, check);
    let left = left(&exec, &exec.work);
    wrong.extend((!acted.is_empty()).then(|| format!("the act: {acted}")));
    wrong.extend((!began).then(|| "the run did not begin".to_owned()));
    wrong.extend((!(is_killed || said.starts_with("0 ") && ended)).then(|| format!("the run: {said}")));
    wrong.extend((told != expected).then(|| format!("{check}: {told:?}")));
    wrong.extend((!left.is_empty()).then(|| format!("left: {left:?}")));
    if wrong.is_empty() { Ok(()) } else { Err(format!("{who:?} {run:?} {name}: {}", wrong.join("; "))) }
}

#[test]
fn owner_acts_beside_run_stay_and_run_goes_on() {
    let runs = [Run::Line, Run::Agent, Run::Killed, Run::KilledAgent];
    let all = everyone()
        .into_iter()
        .flat_map(|who| runs.into_iter().flat_map(move |run| rows(ACTS).map(move |act| (who, run, act))));
    // The number of acts is no multiple of three, so each kind of run meets other acts.
    let rounds: Vec<(Who, Run, Act)> =
        all.enumerate().filter(|(at, _)| cp_testkit::is_sampled(*at, 0, 3)).map(|(_, round)| round).collect();
    let share = rounds.len().div_ceil(8);
    let wrong: Vec<String> = thread::scope(|scope| {
        let shares = rounds.chunks(share).map(|share| {
            scope
                .spawn(|| share.iter().filter_map(|(who, run, act)| beside(*who, *run, *act).err()).collect::<Vec<_>>())
        });
        shares.collect::<Vec<_>>().into_iter().flat_map(|share| share.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rounds.len(), wrong.join("\n"));
}
