//! The additions that refused requests need. A request is decided about again under the policy with its additions,
//! until it passes or needs what is never suggested.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cp_common::context::options::Origin;
use cp_common::{Context, Error, Result, words};
use cp_egress::{Destination, Network};

use super::additions::{Addition, extend};
use super::history::{Asked, Refused};
use super::toolchains;
use crate::decision::{self, HashCache};
use crate::policy::{Access, ArgumentRules, Loaded, Policy, Verdict, escaped, parse};
use crate::request::{Command, Form};
use crate::rules::{Arguments, Risk, Scope, has_rules, is_final_command, is_shell, is_wrapper, judge, runs_code};
use crate::tools::{executable, filesystem};

/// The most additions in turn that one request may need.
const TURNS: usize = 5;
/// A directory with so many refused files is added instead of the files.
const FILES: usize = 3;
/// Directories below which no path is suggested, because they are of the system or commands have their own.
const PRIVATE: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/etc"];
/// Directories of the system, below which no path is suggested for writing.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/var", "/opt"];
/// Words in the name of a tool that sends, destroys or governs, beside the commands that rules know.
const TOOL_WORDS: [&str; 10] =
    ["send", "post", "drop", "wipe", "erase", "merge", "transfer", "pay", "approve", "grant"];
/// Parts of the names of variables that contain secrets.
const SECRET_WORDS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH"];

/// Additions that belong together, such as a program and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub additions: Vec<Addition>,
    pub risk: Risk,
    /// The effect of the additions.
    pub effect: String,
}

impl Need {
    fn new(additions: Vec<Addition>, risk: Risk, effect: impl Into<String>) -> Self {
        Self { additions, risk, effect: effect.into() }
    }

    /// True if another need has the same effect on the same key.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.additions[0].key == other.additions[0].key && self.effect == other.effect
    }

    /// The additions as text, which identify the need.
    pub(super) fn key(&self) -> String {
        let text = |addition: &Addition| format!("{} {}", addition.key, addition.text());
        self.additions.iter().map(text).collect::<Vec<_>>().join("\n")
    }
}

/// Decides about requests under policies with additions.
pub(super) struct Trials<'a> {
    context: &'a Context,
    loaded: Loaded,
    /// The text of the policy in force.
    text: String,
    /// The policies, by their texts.
    policies: BTreeMap<String, Policy>,
    hashes: HashCache,
    /// The refused files of each directory.
    files: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
}

impl<'a> Trials<'a> {
    pub(super) fn new(loaded: Loaded, text: String, refused: &[Refused], context: &'a Context) -> Self {
        let mut files: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        for asked in refused.iter().map(|refused| &refused.asked) {
            if let Asked::File(_, path) = asked
                && let Some(directory) = Path::new(path).parent()
            {
                files.entry(directory.to_owned()).or_default().insert(path.into());
            }
        }
        let hashes = HashCache::of_home(&context.home);
        Self { context, loaded, text, policies: BTreeMap::new(), hashes, files }
    }

    /// The text of the policy with some needs.
    pub(super) fn with(&self, needs: &[Need]) -> Result<String> {
        let additions = needs.iter().flat_map(|need| need.additions.clone()).collect();
        Ok(extend(&self.text, additions)?.text)
    }

    /// Finds the needs of a request: none if the policy allows it by now, and `None` if nothing is suggested for it.
    pub(super) fn needs(&mut self, refused: &Refused) -> Result<Option<Vec<Need>>> {
        let mut needs: Vec<Need> = Vec::new();
        for _ in 0..=TURNS {
            let (trial, hashes) = self.trial(&needs, refused)?;
            let need = match trial.allows(hashes, &refused.asked) {
                Ok(true) if trial.is_harmless(&refused.asked) => return Ok(Some(needs)),
                Ok(_) => None,
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => trial.need(&refused.asked, &error),
            };
            match need.filter(|need| !needs.contains(need)) {
                Some(need) => needs.push(need),
                None => break,
            }
        }
        Ok(None)
    }

    /// For a request that passes with some needs, true if a program of it destroys or publishes. `None` if the request
    /// does not pass.
    pub(super) fn destroys(&mut self, needs: &[Need], refused: &Refused) -> Result<Option<bool>> {
        let (trial, hashes) = self.trial(needs, refused)?;
        let passes = trial.allows(hashes, &refused.asked).unwrap_or(false);
        Ok(passes.then(|| !Trial { checks_paths: false, ..trial }.is_harmless(&refused.asked)))
    }

    fn trial<'t>(&'t mut self, needs: &[Need], refused: &'t Refused) -> Result<(Trial<'t>, &'t mut HashCache)> {
        let text = self.with(needs)?;
        let policy = match self.policies.entry(text) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let loaded = Loaded { settings: parse(new.key())?, ..self.loaded.clone() };
                new.insert(Policy::of_loaded(loaded, self.context, &[])?)
            }
        };
        Ok((Trial { policy, files: &self.files, rule: &refused.rule, checks_paths: true }, &mut self.hashes))
    }
}

/// A decision about one request under one policy.
struct Trial<'a> {
    policy: &'a Policy,
    files: &'a BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// The rule that refused the request.
    rule: &'a str,
    /// True if a harmless request may not name what is hidden or guarded.
    checks_paths: bool,
}

impl Trial<'_> {
    /// Returns true if the request passes, false if it needs confirmation, and otherwise the refusal.
    fn allows(&self, hashes: &mut HashCache, asked: &Asked) -> Result<bool> {
        let policy = self.policy;
        match asked {
            Asked::Command { form, cwd, env, exempt } => {
                let mut policy = policy.clone();
                if *exempt {
                    policy.actor.origin = Origin::Person;
                }
                let cwd = self.cwd(cwd.as_deref());
                let command = Command {
                    form: form.clone(),
                    cwd: Some(cwd.display().to_string()),
                    env: env.iter().map(|name| (name.clone(), "x".to_owned())).collect(),
                    ..Command::default()
                };
                command.check()?;
                let command = decision::read_string(&policy, command)?;
                let assessment = decision::assess(&policy, hashes, &command)?;
                Ok(!assessment.needs_confirmation())
            }
            Asked::File(operation, path) => {
                let access = if operation == "write" { Access::Write } else { Access::Read };
                filesystem::check(policy, access, path).map(|()| true)
            }
            Asked::Tool(name) => executable::permitted(policy, name, false).map(|()| true),
            Asked::Connection(name, argv) => {
                let network =
                    argv.as_ref().map_or_else(|| policy.exec().network.clone(), |argv| policy.exec().network_of(argv));
                let listed =
                    network == Network::Host || network.destinations().iter().any(|one| one.to_string() == *name);
                if listed { Ok(true) } else { Err(Error::validation("").with("rule", self.rule)) }
            }
        }
    }

    /// The directory of a command. A command of another project is decided about as one of this project.
    fn cwd(&self, asked: Option<&str>) -> PathBuf {
        let base = &self.policy.base;
        let asked = asked.map(|asked| base.join(self.policy.expand(asked)));
        let is_usable =
            |cwd: &PathBuf| cwd.is_dir() && (self.rule == "cwd" || self.policy.bounds.lists(Access::Read, cwd));
        asked.filter(is_usable).unwrap_or_else(|| base.clone())
    }

    /// True if no program of a request destroys, publishes, reaches secrets or governs.
    fn is_harmless(&self, asked: &Asked) -> bool {
        match asked {
            Asked::Command { form, cwd, .. } => {
                let cwd = self.cwd(cwd.as_deref());
                match form {
                    Form::Words(argv) => self.is_harmless_program(argv, &cwd),
                    Form::Pipeline(stages) => stages.iter().all(|argv| self.is_harmless_program(argv, &cwd)),
                    Form::Strict(line) | Form::Line(line) => self.is_harmless_line(line, &cwd),
                }
            }
            Asked::Connection(_, Some(argv)) => self.is_harmless_program(argv, &self.policy.base),
            Asked::Connection(_, None) | Asked::File(..) | Asked::Tool(_) => true,
        }
    }

    /// The same for a line. A part that is not plain words is not harmless.
    fn is_harmless_line(&self, line: &str, cwd: &Path) -> bool {
        let parts = line.split([';', '|', '&', '\n', '(', ')', '`']).map(str::trim).filter(|part| !part.is_empty());
        parts.into_iter().all(|part| words::split(part).is_ok_and(|words| self.is_harmless_program(&words.argv, cwd)))
    }

    fn is_harmless_program(&self, argv: &[String], cwd: &Path) -> bool {
        let arguments = Arguments::read(argv);
        let name = arguments.name();
        let mut policy = self.policy.clone();
        policy.loaded.settings.exec.argument_rules = ArgumentRules::Default;
        let hidden = policy.hidden();
        let is_governed = |word: &str| {
            let path = cp_common::home::resolved(&cwd.join(policy.expand(word)));
            hidden.hides(&path) || policy.is_guarded(&path) || policy.cp_home.contains(&path)
        };
        let starts_others = is_wrapper(name) || is_shell(name);
        let is_harmless = |argv: &[String]| {
            let finding = judge(&policy, argv, cwd, Scope::Single);
            finding.verdict == Verdict::Allow && finding.risk != Risk::High || finding.rule == "interpreter.script"
        };
        let is_off = self.policy.exec().argument_rules == ArgumentRules::Off;
        let governs = name.starts_with("cp-") || self.checks_paths && arguments.possible_paths().any(is_governed);
        let is_unchecked = is_off && has_rules(name);
        !governs
            && !is_unchecked
            && is_harmless(argv)
            && (!starts_others || (1..argv.len()).all(|at| is_harmless(&argv[at..])))
            && argv.iter().skip(1).filter(|_| is_shell(name)).all(|word| self.is_harmless_line(word, cwd))
    }

    /// The addition that lifts a refusal, if one is suggested.
    fn need(&self, asked: &Asked, error: &Error) -> Option<Need> {
        let details = error.details();
        let rule = details.get("rule").and_then(|rule| rule.as_str()).unwrap_or_default();
        match (rule, asked) {
            ("not_allowed" | "not_found", Asked::Command { form: Form::Words(argv), .. }) => {
                self.program(argv, rule == "not_allowed")
            }
            ("cwd", Asked::Command { cwd: Some(cwd), .. }) => self.path("paths.read", Path::new(cwd)),
            ("interpreter.script", Asked::Command { .. }) => {
                let (_, path) = error.message().split_once(" on ")?;
                self.path("paths.execute", Path::new(path))
            }
            ("env_not_allowed", Asked::Command { env, .. }) => {
                let name = env.iter().find(|name| error.message().starts_with(&format!("`{name}`")))?;
                let is_secret = SECRET_WORDS.iter().any(|word| name.to_ascii_uppercase().contains(word));
                let added = Addition::listed("exec.env_allow", name, "requests set it");
                (!is_secret).then(|| Need::new(vec![added], Risk::Low, "requests may set this variable"))
            }
            ("paths.read" | "paths.write", Asked::File(operation, path)) => {
                let path = Path::new(path);
                let directory = path.parent()?;
                let is_one = self.files.get(directory).is_none_or(|files| files.len() < FILES);
                let path = if is_one { path } else { directory };
                let mut need = self.path(&format!("paths.{operation}"), path)?;
                if rule != format!("paths.{operation}") {
                    need.additions.splice(..0, self.path(rule, path)?.additions);
                }
                Some(need)
            }
            ("tools.allow", Asked::Tool(name)) => {
                let words = words_of(name);
                let is_final = |word: &String| is_final_command(word) || TOOL_WORDS.contains(&word.as_str());
                let added = Addition::listed("tools.allow", name, "agents call it");
                let effect = "the tool runs outside of the sandbox";
                (!words.iter().any(is_final) && !name.contains('*'))
                    .then(|| Need::new(vec![added], Risk::Medium, effect))
            }
            ("network", Asked::Connection(name, argv)) => self.connection(name, argv.as_deref()),
            _ => None,
        }
    }

    fn program(&self, argv: &[String], is_unlisted: bool) -> Option<Need> {
        let arguments = Arguments::read(argv);
        let name = arguments.name();
        let home = &self.policy.loaded.home;
        let program = toolchains::find(name, home)?;
        let mut added = Vec::new();
        if is_unlisted {
            added.push(Addition::listed("exec.allowed_commands", name, "commands use it"));
        }
        added.extend(program.additions(name));
        let (risk, effect) = if runs_code(name) {
            (Risk::Medium, "the sandbox contains code that its arguments or files name")
        } else {
            (Risk::Low, "it reads what the sandbox shows and writes to the write paths")
        };
        (!added.is_empty()).then(|| Need::new(added, risk, effect))
    }

    /// A path, unless it is too large to grant, or of the system.
    fn path(&self, key: &str, path: &Path) -> Option<Need> {
        let policy = self.policy;
        let home = &policy.loaded.home;
        let is_above =
            [home, &policy.base].iter().any(|below| below.starts_with(path)) || policy.cp_home.is_below(path);
        let is_within = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
        let is_system = key == "paths.write" && is_within(&SYSTEM) && !path.starts_with(home);
        // A command has a `/tmp` of its own.
        let is_temporary = ["/tmp", "/var/tmp"].iter().any(|place| path.parent() == Some(Path::new(place)));
        if is_above || is_system || is_temporary || is_within(&PRIVATE) || policy.cp_home.contains(path) {
            return None;
        }
        let added = Addition::listed(key, &escaped(&toolchains::below_home(path, home)?), "requests name it");
        let effect = match key {
            "paths.write" => "commands and tools can change what is there",
            "paths.execute" => "commands can run what is there, in the sandbox",
            _ => "commands and tools can read what is there",
        };
        Some(Need::new(vec![added], if key == "paths.read" { Risk::Low } else { Risk::Medium }, effect))
    }

    fn connection(&self, name: &str, argv: Option<&[String]>) -> Option<Need> {
        let destination = Destination::parse(name).ok().filter(|destination| destination.address().is_none())?;
        let why = "commands connect to it";
        let addition = match argv {
            Some(argv) => {
                let arguments = Arguments::read(argv);
                let subcommand = arguments.operands().next().map(|operand| operand.word);
                let is_word = |word: &&str| word.bytes().all(|c| c.is_ascii_lowercase() || c == b'-');
                let about = subcommand.filter(is_word).map(|word| format!("{} {word}", arguments.name()));
                Addition::named(
                    "exec.rule",
                    about.as_deref().unwrap_or(arguments.name()),
                    &destination.to_string(),
                    why,
                )
            }
            None if matches!(self.policy.exec().network, Network::Names(_)) => {
                Addition::listed("exec.network", &destination.to_string(), why)
            }
            None => return None,
        };
        let whose = if argv.is_some() { "the command" } else { "every command" };
        let effect = format!("{whose} can send what it reads to this name");
        Some(Need::new(vec![addition], Risk::Medium, effect))
    }
}

/// The words of a name such as `mcp__server__deleteFile`, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let spaced: String = name.chars().flat_map(|c| c.is_uppercase().then_some(' ').into_iter().chain([c])).collect();
    let names = [name.to_lowercase(), spaced.to_lowercase()];
    names.iter().flat_map(|name| name.split(|c: char| !c.is_alphanumeric())).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_name_are_found_in_every_spelling() {
        for name in ["mcp__notes__deleteNote", "DELETE_NOTE", "notes-delete", "Delete", "x.delete.y"] {
            assert!(words_of(name).contains(&"delete".to_owned()), "{name}");
        }
        assert!(!words_of("undeleted_notes").contains(&"delete".to_owned()));
    }
}
