//! Argument rules: what the arguments of an allowed command make of it. The strictest verdict wins.
//!
//! A wrapper (`env`, `nice`, `xargs` …) is stripped and what it runs is judged as if it had been asked for; an
//! interpreter runs scripts of the execute paths and no code from its arguments; the rest are rules in a table.

mod builtin;
mod options;
mod sed;

use std::path::Path;

use builtin::{BuiltIn, RULES, SYNTAX, Test};
use cp_common::{Error, Result, words};
use options::{Item, Name, PLAIN, Syntax};

use crate::capabilities::Access;
use crate::decide::{Risk, allowed_name};
use crate::governor::Governor;
use crate::names::refuse;
use crate::patterns::{Pattern, name_matches};
use crate::policy::{ArgumentRules, Rule, Verdict};

pub(crate) use builtin::RULES as BUILT_IN;

/// How deep wrappers may be nested.
const DEPTH: u8 = 3;

/// What the rules say of a command.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The strictest verdict.
    pub verdict: Verdict,
    /// The rule that gave it.
    pub rule: String,
    /// Why.
    pub reason: String,
    /// How much harm it can do.
    pub risk: Risk,
}

impl Finding {
    fn allowed() -> Self {
        let reason = "allowed_commands has it, and no rule objects".to_owned();
        Self { verdict: Verdict::Allow, rule: "allowed_commands".to_owned(), reason, risk: Risk::Low }
    }

    /// The stricter of two.
    fn or(self, other: Self) -> Self {
        let risk = self.risk.max(other.risk);
        let stricter = if other.verdict > self.verdict { other } else { self };
        Self { risk, ..stricter }
    }
}

/// Programs that run what follows them: their syntax, and how many operands come before it.
const WRAPPERS: [(&str, Syntax, usize); 13] = [
    (
        "env",
        Syntax { takes: "uCS", takes_long: &["--unset", "--chdir", "--split-string"], stops: true, long_dash: false },
        0,
    ),
    ("nice", Syntax { takes: "n", takes_long: &["--adjustment"], stops: true, long_dash: false }, 0),
    ("ionice", Syntax { takes: "cnpPu", takes_long: &["--class", "--classdata"], stops: true, long_dash: false }, 0),
    ("nohup", Syntax { stops: true, ..PLAIN }, 0),
    ("setsid", Syntax { stops: true, ..PLAIN }, 0),
    ("time", Syntax { takes: "fo", takes_long: &["--format", "--output"], stops: true, long_dash: false }, 0),
    (
        "stdbuf",
        Syntax { takes: "ioe", takes_long: &["--input", "--output", "--error"], stops: true, long_dash: false },
        0,
    ),
    ("timeout", Syntax { takes: "ks", takes_long: &["--kill-after", "--signal"], stops: true, long_dash: false }, 1),
    ("taskset", Syntax { takes: "", stops: true, ..PLAIN }, 1),
    (
        "flock",
        Syntax {
            takes: "wEc",
            takes_long: &["--timeout", "--conflict-exit-code", "--command"],
            stops: true,
            long_dash: false,
        },
        1,
    ),
    (
        "xargs",
        Syntax {
            takes: "IadEeLlnPs",
            takes_long: &["--arg-file", "--delimiter", "--max-args", "--max-procs", "--replace"],
            stops: true,
            long_dash: false,
        },
        0,
    ),
    ("busybox", Syntax { stops: true, ..PLAIN }, 0),
    ("toybox", Syntax { stops: true, ..PLAIN }, 0),
];

/// Options by which a wrapper takes its command as one string, or runs it in another place than the one looked at.
const WRAPPED_STRINGS: [(&str, &[&str]); 2] =
    [("env", &["-S", "--split-string", "-C", "--chdir"]), ("flock", &["-c", "--command"])];

/// Programs whose first operand is a script.
const INTERPRETERS: [&str; 26] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "ash",
    "mksh",
    "python",
    "python2",
    "python3",
    "python3.*",
    "pypy",
    "pypy3",
    "perl",
    "perl5*",
    "ruby",
    "node",
    "nodejs",
    "php",
    "lua",
    "lua5*",
    "luajit",
    "tclsh",
    "Rscript",
    "expect",
];

/// What an interpreter is asked about itself.
const ABOUT: [&str; 6] = ["--version", "-V", "-v", "--help", "-h", "-VV"];

/// Programs that run code of the repository by design.
const BUILDERS: [&str; 16] = [
    "cargo", "npm", "pnpm", "yarn", "make", "gmake", "cmake", "ninja", "meson", "gradle", "mvn", "go", "pip", "tox",
    "pytest", "bazel",
];

/// Judges the arguments of a command whose name is allowed.
pub(crate) fn judge(governor: &Governor, argv: &[String], cwd: &Path) -> Result<Finding> {
    let built_in = governor.loaded.policy.exec.argument_rules == ArgumentRules::Default;
    judge_at(governor, argv, cwd, built_in, DEPTH)
}

fn judge_at(governor: &Governor, argv: &[String], cwd: &Path, built_in: bool, depth: u8) -> Result<Finding> {
    let name = base(&argv[0]);
    let mut finding = Finding::allowed();
    for rule in &governor.loaded.policy.exec.rule {
        if is_about(rule, argv) {
            finding = finding.or(of_policy(rule));
        }
    }
    if built_in {
        finding = finding.or(of_table(argv));
        if name == "sed"
            && let Some(reason) = sed::objection(argv)
        {
            finding = finding.or(denied("sed.run", reason));
        }
        if INTERPRETERS.iter().any(|known| name_matches(known, name)) {
            finding = finding.or(script(governor, argv, cwd));
        }
        if BUILDERS.contains(&name) {
            finding.risk = finding.risk.max(Risk::Medium);
        }
    }
    if finding.verdict == Verdict::Deny {
        let cure = match finding.rule.as_str() {
            SCRIPT => "put the script where paths.execute of the policy has it, or add its place there",
            _ => "run what it would run as a request of its own, or without this argument",
        };
        return Err(refuse(&finding.rule, finding.reason).hint(cure));
    }
    let Some(inner) = wrapped(argv)? else { return Ok(finding) };
    if depth == 0 {
        return Err(refuse("wrapper.depth", "wrappers inside wrappers inside wrappers").hint("run the command itself"));
    }
    if inner.is_empty() {
        return Ok(finding);
    }
    // What a wrapper runs must be allowed like anything else, and `/usr/bin/rm` is `rm`.
    allowed_name(governor, inner)?;
    if inner[0].contains('/') {
        return Err(refuse("wrapper.path", format!("`{name}` would run {} by its path", inner[0]))
            .hint("write the name; it is looked up on the policy's path"));
    }
    if built_in && name == "xargs" && has_rules(base(&inner[0])) {
        return Err(refuse("wrapper.input", format!("`{}` would get arguments that nobody looked at", inner[0]))
            .hint("ask for it with its arguments"));
    }
    Ok(finding.or(judge_at(governor, inner, cwd, built_in, depth - 1)?))
}

/// Checks that each rule of a policy is about its examples and not about its counterexamples.
pub(crate) fn check_policy(rules: &[Rule]) -> Result<()> {
    for (at, rule) in rules.iter().enumerate() {
        let wrong = |line: &String, is: &str| {
            Error::config(format!("exec.rule {}, about `{}`: `{line}` {is}", at + 1, rule.command))
                .with("key", "exec.rule")
                .with("example", line.as_str())
        };
        let about = |line: &String| -> Result<bool> {
            let words = words::split(line).map_err(|refusal| wrong(line, &format!("is no command: {refusal}")))?;
            Ok(is_about(rule, &words.argv))
        };
        for line in &rule.examples {
            if !about(line)? {
                return Err(wrong(line, "should match and does not"));
            }
        }
        for line in &rule.counterexamples {
            if about(line)? {
                return Err(wrong(line, "should not match and does"));
            }
        }
    }
    Ok(())
}

/// Checks the same of a built-in rule; the line that is wrong, if one is.
pub(crate) fn wrong_example(rule: &BuiltIn) -> Option<&'static str> {
    let about =
        |line: &str| words::split(line).is_ok_and(|words| is_about_built_in(rule, &items_of(&words.argv), &words.argv));
    let missed = rule.examples.iter().find(|line| !about(line));
    missed.or_else(|| rule.counterexamples.iter().find(|line| about(line))).copied()
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn syntax_of(name: &str) -> &'static Syntax {
    SYNTAX.iter().find(|(names, _)| names.contains(&name)).map_or(&PLAIN, |(_, syntax)| syntax)
}

fn denied(rule: &str, reason: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Deny, rule: rule.to_owned(), reason: reason.into(), risk: Risk::High }
}

fn of_policy(rule: &Rule) -> Finding {
    let risk = if rule.decision == Verdict::Confirm { Risk::High } else { Risk::Low };
    let reason = rule.reason.clone().unwrap_or_else(|| format!("a rule of the policy about `{}`", rule.command));
    Finding { verdict: rule.decision, rule: format!("policy.{}", rule.command), reason, risk }
}

fn of_table(argv: &[String]) -> Finding {
    let items = items_of(argv);
    let hits = RULES.iter().filter(|rule| is_about_built_in(rule, &items, argv)).map(|rule| Finding {
        verdict: rule.verdict,
        rule: rule.id.to_owned(),
        reason: format!("`{}`: {}", base(&argv[0]), rule.reason),
        risk: Risk::High,
    });
    hits.fold(Finding::allowed(), Finding::or)
}

/// Whether a policy's rule is about a command line.
fn is_about(rule: &Rule, argv: &[String]) -> bool {
    let name = base(&argv[0]);
    if !name_matches(&rule.command, name) {
        return false;
    }
    let items = options::read(argv, syntax_of(name));
    let first = operands(&items).next();
    let sub = rule.subcommands.is_empty() || first.is_some_and(|first| rule.subcommands.iter().any(|sub| sub == first));
    let options: Vec<&str> = rule.options.iter().map(String::as_str).collect();
    sub && (options.is_empty() || has_option(&items, &options))
}

/// The arguments of a command, read as it reads them.
fn items_of(argv: &[String]) -> Vec<Item<'_>> {
    options::read(argv, syntax_of(base(&argv[0])))
}

fn is_about_built_in(rule: &BuiltIn, items: &[Item<'_>], argv: &[String]) -> bool {
    let name = base(&argv[0]);
    if !rule.commands.iter().any(|command| name_matches(command, name)) {
        return false;
    }
    let mut words = operands(items);
    match rule.test {
        Test::Command => true,
        Test::Options(options) => has_option(items, options),
        Test::Before(options) => {
            let before: Vec<Item<'_>> =
                items.iter().copied().take_while(|item| matches!(item, Item::Option(..))).collect();
            has_option(&before, options)
        }
        Test::First(subs) => words.next().is_some_and(|first| subs.contains(&first)),
        Test::FirstWith(subs, options) => {
            words.next().is_some_and(|first| subs.contains(&first)) && has_option(items, options)
        }
        Test::Two(sub, second) => words.next() == Some(sub) && words.next().is_some_and(|word| second.contains(&word)),
        Test::Unknown(known) => words.next().is_some_and(|first| !known.contains(&first)),
        Test::Words(forms) => {
            let values = items.iter().filter_map(|item| match item {
                Item::Option(_, value) => *value,
                Item::Operand(word, _) => Some(*word),
            });
            let all: Vec<&str> = values.collect();
            all.iter().any(|word| forms.iter().any(|form| name_matches(form, word)))
        }
    }
}

fn operands<'a>(items: &'a [Item<'a>]) -> impl Iterator<Item = &'a str> {
    items.iter().filter_map(|item| match item {
        Item::Operand(word, _) => Some(*word),
        Item::Option(..) => None,
    })
}

fn has_option(items: &[Item<'_>], options: &[&str]) -> bool {
    items.iter().any(|item| match item {
        Item::Option(name, _) => options.iter().any(|option| name.is(option)),
        Item::Operand(..) => false,
    })
}

/// What a wrapper runs; none where the command is no wrapper.
fn wrapped(argv: &[String]) -> Result<Option<&[String]>> {
    let name = base(&argv[0]);
    let Some((_, syntax, before)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) else { return Ok(None) };
    let items = options::read(argv, syntax);
    let strings = WRAPPED_STRINGS.iter().find(|(wrapper, _)| *wrapper == name);
    if strings.is_some_and(|(_, options)| has_option(&items, options)) {
        return Err(refuse(
            "wrapper.string",
            format!("`{name}` would make the command, or its place, by rules of its own"),
        )
        .hint("write the words, and ask for the place with `cwd`"));
    }
    let mut places = items.iter().filter_map(|item| match item {
        Item::Operand(word, at) => Some((*word, *at)),
        Item::Option(..) => None,
    });
    let first = places.clone().next();
    if name == "env" && first.is_some_and(|(word, _)| word.contains('=')) {
        return Err(refuse("wrapper.env", "`env` would set variables that nobody checked").hint("send them in `env`"));
    }
    Ok(Some(places.nth(*before).map_or(&[], |(_, at)| &argv[at..])))
}

/// Whether the arguments of a command matter to any rule.
fn has_rules(name: &str) -> bool {
    let known = |commands: &[&str]| commands.iter().any(|command| name_matches(command, name));
    name == "sed" || known(&INTERPRETERS) || RULES.iter().any(|rule| known(rule.commands))
}

/// A script must lie in an execute path; code from standard input is code from nowhere.
fn script(governor: &Governor, argv: &[String], cwd: &Path) -> Finding {
    let name = base(&argv[0]);
    let takes = match name {
        name if name.starts_with("py") => "mWXQc",
        "node" | "nodejs" => "CrepI",
        "perl" => "IeEMmCDix",
        "ruby" => "CEFIKrTWxe",
        _ => "oO",
    };
    let syntax = Syntax { takes, takes_long: &["--check", "--conditions", "--title"], stops: true, long_dash: false };
    let items = options::read(argv, &syntax);
    // A module of Python is looked up among what is installed, or in the working directory like a test runner's tests.
    let module = |item: &Item<'_>| matches!(item, Item::Option(Name::Letter('m'), Some(_)));
    if name.starts_with("py") && items.iter().any(module) {
        return Finding { risk: Risk::Medium, ..Finding::allowed() };
    }
    let Some(path) = operands(&items).next() else {
        if argv.len() > 1 && argv[1..].iter().all(|word| ABOUT.contains(&word.as_str())) {
            return Finding::allowed();
        }
        return denied("interpreter.stdin", format!("`{name}` without a script runs what it reads"));
    };
    if path == "-" || path.starts_with("/dev/") || path.starts_with("/proc/") {
        return denied("interpreter.stdin", format!("`{name} {path}` runs what it reads"));
    }
    let full = cp_common::home::resolved(&cwd.join(path));
    let undeclared =
        governor.modules_at(&[cwd]).into_iter().find_map(|module| module.check(Access::Execute, &full).err());
    if let Some(error) = undeclared {
        return denied("capabilities", error.message());
    }
    if runs(&governor.execute, &full) || governor.tools.iter().any(|tools| full.starts_with(tools)) {
        return Finding { risk: Risk::Medium, ..Finding::allowed() };
    }
    denied(SCRIPT, format!("Capability denied: execute on {}", full.display()))
}

/// The rule about the file that an interpreter is to run.
const SCRIPT: &str = "interpreter.script";

fn runs(execute: &[Pattern], path: &Path) -> bool {
    execute.iter().any(|pattern| pattern.matches(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_rule_is_about_its_examples_and_nothing_else() {
        for rule in &RULES {
            assert_eq!(wrong_example(rule), None, "{}", rule.id);
            assert!(!rule.examples.is_empty() && !rule.counterexamples.is_empty(), "{}", rule.id);
        }
    }

    #[test]
    fn the_names_of_the_rules_are_unique() {
        let mut ids: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), RULES.len());
    }

    #[test]
    fn the_manual_has_every_built_in_rule_with_its_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/cp-policy.5");
        let page = std::fs::read_to_string(page).unwrap().replace("\\-", "-").replace("\\e", "\\").replace("\\&", "");
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for rule in &RULES {
            let entry = words.split(".It Li ").find(|entry| entry.split(' ').next() == Some(rule.id));
            let entry = entry.unwrap_or_else(|| panic!("{} is not in the manual", rule.id));
            let verdict = if rule.verdict == Verdict::Deny { "refused; " } else { "to be confirmed; " };
            assert!(entry.contains(&format!("{verdict}{}.", rule.reason)), "{}: {entry}", rule.id);
        }
    }

    #[test]
    fn a_policys_rule_with_a_wrong_example_is_an_error_that_names_it() {
        let e = crate::policy::parse(
            "[[exec.rule]]\ncommand = \"git\"\nsubcommands = [\"push\"]\ndecision = \"confirm\"\nmatch = [\"git pull\"]\n",
        )
        .unwrap_err();
        assert_eq!(e.message(), "exec.rule 1, about `git`: `git pull` should match and does not");
    }

    #[test]
    fn wrappers_are_stripped_to_what_they_run() {
        let inner = |text: &str| {
            let argv = words::split(text).unwrap().argv;
            wrapped(&argv).map(|inner| inner.map(<[String]>::join_words))
        };
        assert_eq!(inner("env -i git status").unwrap().unwrap(), "git status");
        assert_eq!(inner("nice -n 5 timeout 3 git log").unwrap().unwrap(), "timeout 3 git log");
        assert_eq!(inner("timeout -k 1 3 git log").unwrap().unwrap(), "git log");
        assert_eq!(inner("xargs -n1 -I {} git show {}").unwrap().unwrap(), "git show {}");
        assert_eq!(inner("busybox rm x").unwrap().unwrap(), "rm x");
        assert_eq!(inner("flock x git log").unwrap().unwrap(), "git log");
        assert_eq!(inner("git log").unwrap(), None);
        for refused in ["env -S 'git log'", "env A=b git log", "flock x -c id", "env --split-str='git log'"] {
            assert!(inner(refused).is_err() || refused.starts_with("flock"), "{refused}");
        }
    }

    trait JoinWords {
        fn join_words(&self) -> String;
    }

    impl JoinWords for [String] {
        fn join_words(&self) -> String {
            self.join(" ")
        }
    }
}
