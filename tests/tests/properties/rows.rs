//! A row for each verb: a command line that succeeds in the world of these tests, and one that waits until it is ended.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use cp_testkit::{Outcome, Place, Program};
use serde_json::Value;

/// A verb, as it is tried.
#[derive(Clone)]
pub(super) struct Row {
    pub verb: String,
    /// What must be made each time, because the verb can do it once only.
    pub before: &'static str,
    /// What follows the options that a test adds.
    pub words: &'static str,
    /// Words with which it waits for somebody else; empty for a verb that only waits for files that it opens itself.
    pub waits: &'static str,
}

/// Verb, what must be made each time, its words, and words with which it waits. `f` is a pipe that nobody writes to,
/// `locked` a ledger that somebody else holds, `$OPENAI_BASE_URL` a server that never answers; standard input stays
/// open.
const ROWS: [[&str; 4]; 58] = [
    ["cp-log append", "", "-f L -- m", "-f locked -- m"],
    ["cp-log create", "", "new$N", ""],
    ["cp-log tee", "", "tee$N <lines", ""],
    ["cp-log query", "", "L", "f"],
    ["cp-log follow", "", "--last 1 --limit 1 L", "L"],
    ["cp-log stats", "", "L", "f"],
    ["cp-log blob", "", "-f L $BLOB", ""],
    ["cp-log tip", "", "L", ""],
    ["cp-log audit", "", "L", ""],
    ["cp-log bundle", "", "-o bundle$N L", ""],
    ["cp-log page", "", "-o page$N L", ""],
    ["cp-log verify", "", "L", "f"],
    ["cp-log repair", "", "--dry-run torn", ""],
    ["cp-log rotate", "cp R r$N.jsonl", "r$N.jsonl", "locked.jsonl"],
    ["cp-log keygen", "", "key$N", ""],
    ["cp-log checkpoint", "", "-f L --sign-with K", "-f locked --sign-with K"],
    ["cp-log prove", "", "-f L 1", ""],
    ["cp-log check-proof", "", "--trust K.pub proof <line", "--trust K.pub proof"],
    ["cp-llm", "", "--backend stub -- text", "--backend openai --model m -- text"],
    ["cp-llm models", "", "--backend stub", "--backend openai"],
    ["cp-llm batch submit", "", "--backend stub -- text", "--backend openai --model m -- text"],
    ["cp-llm batch status", "", "$BATCH", ""],
    ["cp-llm batch result", "", "$BATCH", ""],
    ["cp-llm batch cancel", "", "$BATCH", ""],
    ["cp-exec", "", "-- true", "-- sleep 30"],
    ["cp-exec check", "", "-- true", "--input rows"],
    ["cp-exec policy show", "", "", ""],
    ["cp-exec policy init", "", "--home $PWD/fresh$N", ""],
    ["cp-exec allow", "", "--dry-run env MINE", ""],
    ["cp-exec approve", "", "", ""],
    ["cp-exec undo", "cp-exec -- touch u$N >/dev/null", "--dry-run last", ""],
    ["cp-exec hook install", "", "--project . --dry-run claude", ""],
    ["cp-exec hook remove", "", "--project . claude", ""],
    ["cp-exec hook doctor", "", "", ""],
    ["cp-exec hook shell", "export CLAUDE_CODE_SESSION_ID=s CLAUDE_CODE_CHILD_SESSION=1", "claude true", ""],
    ["cp-compose", "", "-s brief -- text", "-s @f -- text"],
    ["cp-session start", "", "", ""],
    ["cp-session append", "", "--session $S -- m", "--session $S --input text"],
    ["cp-session tee", "", "$S <message", ""],
    ["cp-session load", "", "$S", ""],
    ["cp-session count", "", "$S", ""],
    ["cp-session list", "", "", ""],
    ["cp-session clear", "O=$(cp-session start --format text)", "$O", ""],
    ["cp-session export", "", "$S", ""],
    ["cp-session fork", "", "$S", ""],
    ["cp-session delete", "", "--dangerous --dry-run $S", ""],
    [
        "cp-session compact",
        "O=$(cp-session fork $S --format text)",
        "--backend stub --keep 2 $O",
        "--backend openai --model m --keep 2 $S",
    ],
    ["cp-session search", "", "a", ""],
    ["cp-session remember", "", "--kind note -- m", "--kind note"],
    ["cp-session recall", "", "--kind note m", ""],
    ["cp-session show", "", "$S", ""],
    ["cp-session end", "O=$(cp-session start --format text)", "$O", ""],
    ["cp-session reopen", "O=$(cp-session start --format text); cp-session end $O >/dev/null", "$O", ""],
    ["cp-session rename", "", "$S talk", ""],
    ["cp-toolloop", "", "--backend stub -- task", "--backend openai --model m -- task"],
    ["cp-toolloop resume", PAUSED, "--max-iterations 9 $O", ""],
    ["cp-toolloop tools", "", "", ""],
    ["cp-toolloop runs", "", "", ""],
];

/// The rest, in another table: arrays of this length are easier to keep right.
const MORE: [[&str; 4]; 16] = [
    ["cp-exec agent", "", "--format json -- true", "--format json -- sleep 30"],
    ["cp-exec hook", "", "--format json claude <question", "--format json claude"],
    ["cp-toolloop show", "", "$RUN", ""],
    [
        "cp-toolloop undo",
        r#"printf '{"tool_calls":[{"name":"filesystem","input":{"operation":"write_file","path":"made%s","content":"x"}}]}\n{"content":"Done."}\n' $N >made; O=$(cp-toolloop --backend stub --stub-script made -- go | tail -n 1 | jq -r .data.run_id)"#,
        "$O",
        "",
    ],
    ["cp-toolloop cancel", PAUSED, "$O", ""],
    ["cp-shell", "", "<ask", ""],
    ["cp-shell init", "", "--home $PWD/plane$N", ""],
    ["cp-shell config", "", "", ""],
    ["cp-shell config get", "", "tier", ""],
    ["cp-shell config agent", "", "default soul", ""],
    ["cp-shell register", "echo $N >$PWD/p$N.md", "--yes $PWD/p$N.md", ""],
    [
        "cp-shell update",
        "cp-shell --version | cut -d' ' -f2 >latest",
        "--check --from $PWD",
        "--check --from $OPENAI_BASE_URL",
    ],
    ["cp-mcp serve", "", "--format json <called", "--format json"],
    [
        "cp-mcp call",
        "",
        "--format json --list --mcp 'cp=cp-mcp serve' </dev/null",
        "--format json --list --mcp 'cp=cp-mcp serve'",
    ],
    ["cp-mcp proxy", "", "--format json --server cat -- /bin/cat </dev/null", "--format json --server cat -- /bin/cat"],
    ["cp-mcp connect", "", "--format json http://127.0.0.1:1/ </dev/null", "--format json http://127.0.0.1:1/"],
];

/// Makes a run that waits for a higher limit.
const PAUSED: &str = "cp-toolloop --backend stub --stub-script script --max-iterations 1 -- task >paused; O=$(tail -n 1 paused | jq -r .error.details.run_id)";

/// The verbs that every program has, with their words.
const STANDARD: [[&str; 2]; 5] =
    [["reference", ""], ["context", ""], ["doctor", ""], ["changelog", ""], ["completions", "bash"]];

/// The options of every program, which one parser reads: one verb in ten shows it.
pub(super) const SHARED: [&str; 8] =
    ["--format", "--home", "--ledger", "--session", "--run", "--base", "--origin", "--fields"];

/// A verb with its row.
pub(super) struct Verb {
    pub row: Row,
    pub verb: cp_tests::Verb,
}

impl std::ops::Deref for Verb {
    type Target = cp_tests::Verb;

    fn deref(&self) -> &cp_tests::Verb {
        &self.verb
    }
}

impl Verb {
    /// The command line of its row, with this value for an option or an operand.
    pub(super) fn with(&self, param: &Value, value: &str) -> String {
        let name = param["name"].as_str().unwrap();
        let words: Vec<&str> = self.row.words.split('<').next().unwrap().split_whitespace().collect();
        let dashes = words.iter().position(|word| *word == "--");
        if !name.starts_with('-') {
            // What it replaces stands after the dashes, else at the end.
            let kept = &words[..dashes.unwrap_or(words.len().saturating_sub(1))];
            return format!("{} {} -- {value}", self.row.verb, kept.join(" "));
        }
        let names = [name, param["short"].as_str().unwrap_or(name)];
        let options = &words[..dashes.unwrap_or(words.len())];
        let given = options.iter().position(|word| names.contains(word));
        // A value in quotes may be several words.
        let is_whole = |words: &[&str]| words.concat().matches('\'').count() % 2 == 0;
        let ends = |given: &usize| (given + 1..words.len()).find(|at| is_whole(&words[given + 1..=*at]));
        let end = given.as_ref().and_then(ends);
        let kept = words.iter().enumerate().filter(|(at, _)| given.is_none_or(|given| *at < given) || Some(*at) > end);
        let kept: Vec<&str> = kept.map(|(_, word)| *word).collect();
        let input = self.row.words.split_once('<').map_or(String::new(), |(_, file)| format!("<{file}"));
        format!("{} {name} {value} {} {input}", self.row.verb, kept.join(" "))
    }

    /// Whether it prints something other than lines of its own: what it was given.
    pub(super) fn passes_lines(&self) -> bool {
        self.row.verb.ends_with(" tee")
    }
}

/// Every verb that is listed, with its row. One without a row fails, and so does a row without a verb.
pub(super) fn verbs() -> Vec<Verb> {
    let rows: Vec<Row> = ROWS
        .iter()
        .chain(&MORE)
        .map(|&[verb, before, words, waits]| Row { verb: verb.to_owned(), before, words, waits })
        .collect();
    let (mut verbs, mut used) = (Vec::new(), BTreeSet::new());
    for verb in cp_tests::verbs() {
        let name = verb.words();
        let standard = STANDARD.iter().find(|[path, _]| *path == verb.path());
        let standard = standard.map(|&[_, words]| Row { verb: name.clone(), before: "", words, waits: "" });
        let row = standard.or_else(|| rows.iter().find(|row| row.verb == name).cloned());
        let row = row.unwrap_or_else(|| panic!("{name} has no row"));
        used.insert(name);
        verbs.push(Verb { row, verb });
    }
    let unused: Vec<_> = rows.iter().filter(|row| !used.contains(&row.verb)).map(|row| &row.verb).collect();
    assert!(unused.is_empty(), "rows of verbs that no program has: {unused:?}");
    verbs
}

/// What all verbs find: ledgers, keys, proofs, sessions, runs, a policy.
const SETUP: &str = r#"set -e
cp-shell init
(umask 077; printf '[exec]\nallowed_commands = ["true", "sleep", "touch"]\n' >"$CP_HOME/config/policy.toml")
for m in one two; do cp-log append -f L $m; done
head -c 2000000 /dev/zero | tr '\0' x | cp-log append -f L
cp-log keygen K
cp-log checkpoint -f L --sign-with K
cp-log prove 1 -f L --format raw >proof; sed -n 2p L >line
cp-log bundle L >bundle
for f in torn R; do cp-log append -f $f m; done; printf 'torn\nmore' >>torn
printf 'a\nb\n' >lines; mkfifo f
git init -q repository; (cd repository && cp-exec -- true)
echo '{"hook_event_name":"PreToolUse","session_id":"s","tool_use_id":"c","tool_name":"Read","tool_input":{"file_path":"a"}}' >question
echo '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cp_check","arguments":{"command":"true"}}}' >called
S=$(cp-session start --format text)
for m in a b c; do cp-session append --session $S -- $m; cp-session append --session $S --role assistant -- $m; done
cp-llm --backend stub -- text >message
printf '{"tool_calls":[{"name":"nope"}]}\n{"content":"done"}\n' >script
echo '{"operation":"governed_roots"}' >ask
cp-toolloop --backend stub -- hello
cp-log append -f locked m; cp-log append -f locked.jsonl m
cat >names <<END
S=$S
BATCH=$(cp-llm batch submit --backend stub -- kept | jq -r .data.job_id)
BLOB=$(sed -n 4p L | jq -r .message.blob)
RUN=$(cp-toolloop runs --limit 1 | jq -r '.data.items[0].id')
END
"#;

/// A place where every verb finds what it is about.
pub(super) struct World {
    pub place: Place,
    number: AtomicU64,
}

impl World {
    /// A world, made under this file mode creation mask.
    pub(super) fn new(mask: &str) -> Self {
        let place = Place::new();
        let made = place.sh(&format!("umask {mask}\n{SETUP}"));
        assert_eq!(made.status, 0, "{}\n{}", made.stdout, made.stderr);
        Self { place, number: AtomicU64::new(0) }
    }

    /// The command line of a verb, with `options` before its words and `streams` after them.
    pub(super) fn command(&self, row: &Row, options: &str, streams: &str) -> Program {
        self.script(row, &format!("{{ {} {options} {}; }} {streams}", row.verb, row.words))
    }

    /// A script that finds the names of this world, and has a number that no other has had.
    pub(super) fn script(&self, row: &Row, script: &str) -> Program {
        let program = self.unbounded(row, script);
        // It goes on as long as nobody ends it, so it is ended.
        if row.verb == "cp-log follow" {
            program.under("timeout", ["--preserve-status", "-s", "INT", "1"])
        } else {
            program
        }
    }

    /// The same, however long it goes on.
    pub(super) fn unbounded(&self, row: &Row, script: &str) -> Program {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let before = if row.before.is_empty() { ":" } else { row.before };
        let script = format!(". ./names\n{before}\n{script}");
        self.place.shell("sh", &script).env("N", number.to_string())
    }

    pub(super) fn run(&self, row: &Row, options: &str, streams: &str) -> Outcome {
        self.command(row, options, streams).run()
    }
}
