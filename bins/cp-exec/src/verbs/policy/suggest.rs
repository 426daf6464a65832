//! `cp-exec policy suggest`: the smallest additions to the policy that refused requests need, from the ledgers.

use std::collections::BTreeMap;
use std::path::Path;

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change, Gate, Write};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Context, Error, Result, clock};
use cp_hosts::difference;
use cp_ledger::Entry;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::additions::Addition;
use super::history::{Asked, History, Refused, RuleCount};
use super::needs::{Need, Trials};
use super::write_policy;
use crate::decision::line_of;
use crate::digest::sha256;
use crate::policy::load;
use crate::request::Form;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "policy suggest",
    class: Class::Write,
    output: "policy_suggested",
    also: &["preview"],
    examples: &["{} policy suggest --since 7d"],
    events: &["policy.suggest"],
    ..VerbDoc::EMPTY
};

/// The most suggestions.
const MOST: usize = 10;
/// The most requests that a suggestion names.
const NAMED: usize = 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Not before this time: RFC 3339, a date, today, yesterday, or a span ago, such as 30m, 2h, 7d, 1w
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    #[command(flatten)]
    write: WriteOptions,
}

/// Suggested additions to a policy.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "policy_suggested", extend("x-untrusted" = ["suggestions", "also_pass"])))]
pub(crate) struct Suggested {
    /// The file of the policy.
    file: String,
    /// True if the additions were written now.
    written: bool,
    /// The hash of the policy with the additions.
    sha256: String,
    /// The additions, those for the most refusals first.
    suggestions: Vec<Suggestion>,
    /// The decisions of each rule, the most frequent first.
    rules: Vec<RuleCount>,
    /// Other refused requests that pass with the additions; the sandbox hides or protects what they name.
    also_pass: Vec<String>,
    /// Refused requests that pass by now.
    passing: u64,
    /// Refused requests for which nothing is suggested.
    unsuggested: u64,
    /// The change of the policy as a unified difference.
    difference: String,
    /// JSON Pointers to untrusted values.
    #[serde(rename = "_untrusted")]
    untrusted: Vec<String>,
}

/// Additions that belong together, with their evidence.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Suggestion {
    /// The additions.
    additions: Vec<Addition>,
    /// `low`, or `medium` if it allows code of the repository, writes or connections.
    risk: String,
    /// The effect of the additions.
    effect: String,
    /// The refusals that these additions, with the others, would have prevented.
    refusals: u64,
    /// The distinct requests among them.
    requests: u64,
    /// The rules that refused them.
    rules: Vec<String>,
    /// The time of the last refusal.
    last: String,
    /// The newest refusals, as LEDGER#SEQ.
    entries: Vec<String>,
    /// The requests, up to 20.
    lets_pass: Vec<String>,
}

impl Reply for Suggested {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        for Suggestion { additions, risk, effect, refusals, rules, entries, lets_pass, .. } in &self.suggestions {
            let added: Vec<String> = additions.iter().map(|one| format!("{}: {}", one.key, one.text())).collect();
            let times = if *refusals == 1 { "time" } else { "times" };
            lines.push(added.join("; "));
            let newest = entries.first().map_or("", |entry| entry.rsplit('/').next().unwrap_or(entry));
            lines.push(format!("  refused {refusals} {times} by {}, last in {newest}", rules.join(", ")));
            lines.extend(lets_pass.first().map(|request| format!("  for example: {request}")));
            lines.push(format!("  risk {risk}: {effect}"));
        }
        lines.extend((!self.difference.is_empty()).then(|| self.difference.trim_end().to_owned()));
        lines.push(match (self.suggestions.is_empty(), self.written) {
            (true, _) if self.unsuggested == 0 => "nothing was refused that the policy still refuses".to_owned(),
            (true, _) => format!("no addition is suggested for {} refused requests", self.unsuggested),
            (false, true) => format!("wrote {}", self.file),
            (false, false) => "cp-exec policy suggest --dry-run issues the token that applies them".to_owned(),
        });
        lines.join("\n")
    }
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    args.since.as_deref().map(clock::time_of).transpose()?;
    let file = context.home.policy_file();
    let asked = Write { verb: "policy suggest", arguments: &(&file, &args.since), dangerous: false };
    confirm::write(&asked, &args.write, context, |gate, context| suggest(args, &file, gate, context))
}

fn suggest<A: Serialize>(
    args: &Args,
    file: &Path,
    gate: Gate<'_, A>,
    context: &mut Context,
) -> Result<Option<Suggested>> {
    let loaded = load(file)?;
    let before = match &loaded.file {
        None => String::new(),
        Some(file) => std::fs::read_to_string(file).map_err(|e| Error::io("the policy", e).in_file(file))?,
    };
    let history = History::read(args.since.as_deref(), context)?;
    if loaded.file.is_none() && !history.refused.is_empty() {
        return Err(Error::not_found("there is no policy to add to").in_file(file).hint("write one with policy init"));
    }
    let mut trials = Trials::new(loaded, before.clone(), &history.refused, context);
    let mut candidates = Candidates::default();
    for refused in &history.refused {
        match trials.needs(refused)? {
            None => candidates.unsuggested.push(refused),
            Some(needs) if needs.is_empty() => candidates.passing += 1,
            Some(needs) => candidates.add(needs, refused),
        }
    }
    let (groups, also_pass) = candidates.choose(&mut trials)?;
    let after = trials.with(&groups.concat())?;
    let name = file.display().to_string();
    let difference =
        if groups.is_empty() { String::new() } else { difference([&name; 2], before.as_bytes(), after.as_bytes()) };
    let suggestions: Vec<Suggestion> = groups.iter().map(|group| candidates.suggestion(group)).collect();
    let suggested = Suggested {
        file: name,
        written: false,
        sha256: sha256(after.as_bytes()),
        unsuggested: candidates.unsuggested.len() as u64,
        also_pass,
        passing: candidates.passing,
        rules: history.rules(),
        untrusted: if suggestions.is_empty() {
            Vec::new()
        } else {
            ["/suggestions", "/also_pass"].map(str::to_owned).to_vec()
        },
        suggestions,
        difference,
    };
    let writes = args.write.dry_run || args.write.confirm.is_some();
    if suggested.suggestions.is_empty() || !writes {
        if writes {
            gate.nothing_to_do()?;
        }
        return Ok(Some(suggested));
    }
    let changes = vec![Change {
        action: "extend".to_owned(),
        resource: "policy".to_owned(),
        id: suggested.file.clone(),
        before: json!({ "sha256": sha256(before.as_bytes()) }),
        after: json!({ "sha256": suggested.sha256, "difference": suggested.difference }),
    }];
    if !gate.pass(changes, context)? {
        return Ok(None);
    }
    let additions: Vec<&Addition> = suggested.suggestions.iter().flat_map(|one| &one.additions).collect();
    write_policy(file, &after, Entry::new("policy.suggest").with("additions", &additions), context)?;
    Ok(Some(Suggested { written: true, ..suggested }))
}

/// Requests with their needs.
#[derive(Default)]
struct Candidates<'a> {
    /// Requests, each with the keys of its needs.
    requests: Vec<(Vec<String>, &'a Refused)>,
    /// Needs with the refusals of their requests, by their keys.
    needs: BTreeMap<String, (u64, Need)>,
    passing: u64,
    /// Requests for which nothing is suggested.
    unsuggested: Vec<&'a Refused>,
}

impl<'a> Candidates<'a> {
    fn add(&mut self, needs: Vec<Need>, refused: &'a Refused) {
        self.requests.push((needs.iter().map(Need::key).collect(), refused));
        for need in needs {
            self.needs.entry(need.key()).or_insert((0, need)).0 += refused.count;
        }
    }

    /// Chooses the needs of the most refusals. A need that would let a request pass that destroys or publishes is never
    /// chosen. Returns them with the other requests that pass.
    fn choose(&mut self, trials: &mut Trials<'_>) -> Result<(Vec<Vec<Need>>, Vec<String>)> {
        loop {
            let groups = self.most_frequent();
            let chosen = groups.concat();
            let (mut unwanted, mut also_pass) = (Vec::new(), Vec::new());
            for refused in &self.unsuggested {
                match trials.destroys(&chosen, refused)? {
                    None => {}
                    Some(false) => also_pass.push(text_of(&refused.asked)),
                    Some(true) => {
                        let mut alone = |need: &&Need| {
                            trials.destroys(std::slice::from_ref(*need), refused).is_ok_and(|it| it == Some(true))
                        };
                        // Several needs together can let it pass.
                        unwanted.extend(chosen.iter().find(|need| alone(need)).or(chosen.last()).map(Need::key));
                    }
                }
            }
            if unwanted.is_empty() {
                let is_left_out = |(keys, _): &(Vec<String>, _)| !is_within(keys, &chosen);
                self.unsuggested.extend(self.requests.extract_if(.., |request| is_left_out(request)).map(|(_, it)| it));
                return Ok((groups, also_pass));
            }
            self.needs.retain(|key, _| !unwanted.contains(key));
        }
    }

    /// The needs of the most refusals. More than fit are joined if their effects are the same. A need is left out if no
    /// request passes with the others.
    fn most_frequent(&self) -> Vec<Vec<Need>> {
        let mut needs: Vec<&(u64, Need)> = self.needs.values().collect();
        needs.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let mut groups: Vec<(u64, Vec<Need>)> = Vec::new();
        for (count, need) in &needs {
            let is_same = |(_, group): &&mut (u64, Vec<Need>)| needs.len() > MOST && group[0].is_like(need);
            match groups.iter_mut().find(is_same) {
                Some((sum, group)) => {
                    *sum += count;
                    group.push(need.clone());
                }
                None => groups.push((*count, vec![need.clone()])),
            }
        }
        groups.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        groups.truncate(MOST);
        let mut groups: Vec<Vec<Need>> = groups.into_iter().map(|(_, group)| group).collect();
        let chosen = groups.concat();
        let passing: Vec<&Vec<String>> =
            self.requests.iter().map(|(keys, _)| keys).filter(|keys| is_within(keys, &chosen)).collect();
        for group in &mut groups {
            group.retain(|need| passing.iter().any(|keys| keys.contains(&need.key())));
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// A suggestion, with the requests that pass with all chosen needs.
    fn suggestion(&self, group: &[Need]) -> Suggestion {
        let is_about = |keys: &[String]| group.iter().any(|need| keys.contains(&need.key()));
        let requests: Vec<&Refused> =
            self.requests.iter().filter(|(keys, _)| is_about(keys)).map(|(_, refused)| *refused).collect();
        let mut rules: Vec<String> = requests.iter().map(|refused| refused.rule.clone()).collect();
        rules.sort();
        rules.dedup();
        Suggestion {
            additions: group.iter().flat_map(|need| need.additions.clone()).collect(),
            risk: group[0].risk.name().to_owned(),
            effect: group[0].effect.clone(),
            refusals: requests.iter().map(|refused| refused.count).sum(),
            requests: requests.len() as u64,
            rules,
            last: requests.iter().map(|refused| refused.last.clone()).max().unwrap_or_default(),
            entries: requests.iter().flat_map(|refused| refused.entries.iter().rev()).take(3).cloned().collect(),
            lets_pass: requests.iter().take(NAMED).map(|refused| text_of(&refused.asked)).collect(),
        }
    }
}

/// True if some needs have all of these keys.
fn is_within(keys: &[String], needs: &[Need]) -> bool {
    keys.iter().all(|key| needs.iter().any(|need| need.key() == *key))
}

/// A request as one line.
fn text_of(asked: &Asked) -> String {
    let words = |argv: &[String]| argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    match asked {
        Asked::Command { form: Form::Words(argv), .. } => words(argv),
        Asked::Command { form: Form::Pipeline(stages), .. } => line_of(stages),
        Asked::Command { form: Form::Line(line) | Form::Strict(line), .. } => line.clone(),
        Asked::File(operation, path) => format!("{operation} {path}"),
        Asked::Tool(name) => name.clone(),
        Asked::Connection(name, None) => format!("connect to {name}"),
        Asked::Connection(name, Some(argv)) => format!("connect to {name}: {}", words(argv)),
    }
}
