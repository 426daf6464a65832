//! Whatever is accepted does what bash does with it: the same words, variables, files and statuses, in the same directories.
//!
//! One bash process carries out thousands of lines. Commands are functions that write down what they were given, so nothing is started;
//! redirections, `cd`, patterns and lists are its own. Our side runs the steps through [`super::super::flow`] in the same directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use super::super::flow::{Flow, Next};
use super::super::glob::{Tree, expand};
use super::super::steps::{Part, Redirect, Step, Target};
use super::super::{Environment, lower};
use super::lines::{self, COMMANDS, Dice};

const HOME: &str = "/the/home";

/// Writes down what a command was given: words, directory, variables, and where its streams go.
const RECORDER: &str = r#"
exec 9>>"$RECORDS" 8<"$LINES"
PATH=/nowhere
stream() {
    local f
    for f in "$L.out" "$L.err" /dev/null; do
        [[ /dev/fd/$1 -ef $f ]] && { REPLY=${f#"$L"}; return; }
    done
    for f in f1 f2 f3 d1/f1 d1/f2 d1/f3 d2/f1 d2/f2 d2/f3; do
        [[ /dev/fd/$1 -ef $W/$f ]] && { REPLY=$f; [[ -s $W/$f ]] && REPLY=$f+; return; }
    done
    REPLY=pipe
}
record() {
    local made=() text=
    [[ ${A@a} == *x* ]] && made+=("A=$A")
    [[ ${B@a} == *x* ]] && made+=("B=$B")
    stream 0
    if [[ $REPLY == pipe ]]; then IFS= read -r -d '' text; REPLY="text $text"; fi
    made+=("$REPLY")
    stream 1; made+=("$REPLY")
    stream 2; made+=("$REPLY")
    builtin printf '%s\0' "${@//$'\n'/$'\5'}" $'\1' "$PWD" "${made[@]//$'\n'/$'\5'}" $'\2' >&9
}
n=0
for name in "$@"; do
    eval "$name() { record $name \"\$@\"; return $n; }"
    n=$((n + 1))
done
pwd() { record pwd "$@"; }
cat() {
    if (($#)); then return 127; fi
    local text
    IFS= read -r -d '' text
    builtin printf %s "$text"
}
command_not_found_handle() { return 127; }
while IFS= read -r -d '' line <&8; do
    for f in {,d1/,d2/}f{1,2,3}; do [[ -s $W/$f ]] || builtin printf x >"$W/$f"; done
    cd "$W"
    unset A B
    HOME=/the/home USER=ann PATH=/nowhere
    if [[ $line == S* ]]; then (true; eval "${line:1}"); else true; eval "${line:1}"; fi
    builtin printf '%s\0' $'\3' "$?" $'\4' >&9
done 0</dev/null 1>"$L.out" 2>"$L.err"
"#;

/// The files over which lines run.
struct Place {
    keeps: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let keeps = tempfile::tempdir().unwrap();
        // Deep enough for every `cd ..` of a line.
        let root = keeps.path().canonicalize().unwrap().join("1/2/3/4/5/6/7/8/w");
        for directory in ["d1", "d2/deep"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let files = "f1 f2 f3 d1/f1 d1/f2 d1/f3 d2/f1 d2/f2 d2/f3 a.txt b.txt ab.md .hid é.txt d1/x.py d1/y.py d1/.z d2/deep/x.py d2/xx";
        files
            .split(' ')
            .chain(["sp ace.txt", "a[i]b", "a*c", "-n", "a\\b", "A=1"])
            .for_each(|name| fs::write(root.join(name), "x").unwrap());
        symlink("d1", root.join("lnk")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        Self { keeps, root }
    }
}

/// The files as they are, below a directory.
struct Below<'a>(&'a Path);

impl Tree for Below<'_> {
    fn names(&mut self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(directory)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn exists(&mut self, path: &str) -> bool {
        self.0.join(path).symlink_metadata().is_ok()
    }

    fn is_directory(&mut self, path: &str) -> bool {
        self.0.join(path).is_dir()
    }
}

/// The commands of each pipeline that ran, and the status of all.
type Did = (Vec<(usize, Vec<Vec<String>>)>, u8);

/// The steps of a line on their way, without bash.
struct Simulated<'a> {
    root: &'a Path,
    /// Files that were emptied.
    emptied: BTreeSet<PathBuf>,
}

impl Simulated<'_> {
    /// What the steps do; none if they leave what is modelled here.
    fn run(&mut self, steps: &[Step]) -> Option<Did> {
        let mut flow = Flow::new(steps, self.root.to_owned(), false);
        let mut groups = Vec::new();
        while let Some(next) = flow.next() {
            let (status, directory) = (flow.status(), flow.directory().to_owned());
            match next {
                Next::Pipeline { parts, .. } => {
                    let mut statuses = Vec::new();
                    let mut records = Vec::new();
                    for (at, part) in parts.iter().enumerate() {
                        let (code, record) = self.part(part, status, &directory, at > 0, at + 1 < parts.len())?;
                        statuses.push(code);
                        records.extend(record);
                    }
                    groups.push((parts.len(), records));
                    flow.ended(&statuses);
                }
                Next::Cd(to) => {
                    let entered = directory_after(&directory, &to.with_status(status));
                    flow.entered(entered.is_dir().then_some(entered));
                }
            }
        }
        Some((groups, flow.status()))
    }

    fn part(
        &mut self,
        part: &Part,
        status: u8,
        directory: &Path,
        reads: bool,
        writes: bool,
    ) -> Option<(u8, Option<Vec<String>>)> {
        let mut argv: Vec<String> =
            part.argv.iter().flat_map(|word| expand(word, status, &mut Below(directory))).collect();
        let piped = |piped: bool, otherwise: &str| if piped { "pipe".to_owned() } else { otherwise.to_owned() };
        let mut streams =
            [if reads { "text ".to_owned() } else { "/dev/null".to_owned() }, piped(writes, ".out"), ".err".to_owned()];
        for Redirect { fd, target } in &part.redirects {
            let place = match target {
                Target::Read { path } | Target::Write { path } | Target::Append { path } => {
                    if path.with_status(status).ends_with('/') {
                        return None;
                    }
                    let path = directory_after(directory, &path.with_status(status));
                    if path == Path::new("/dev/null") {
                        "/dev/null".to_owned()
                    } else {
                        let name = path.strip_prefix(self.root).ok()?.to_str()?.to_owned();
                        let is_known = matches!(
                            name.strip_prefix("d1/").or(name.strip_prefix("d2/")).unwrap_or(&name),
                            "f1" | "f2" | "f3"
                        );
                        if !is_known {
                            return None;
                        }
                        if matches!(target, Target::Write { .. }) {
                            self.emptied.insert(path);
                        }
                        name
                    }
                }
                Target::Dup { to } => streams[usize::from(*to)].clone(),
                // bash opens this file where a text is empty.
                Target::Text { text } if text.text() == Some("") => "/dev/null".to_owned(),
                Target::Text { text } => format!("text {}", text.with_status(status)),
            };
            streams[usize::from(*fd)] = place;
        }
        let Some(name) = argv.first() else { return Some((0, None)) };
        // Programs by a path, and what is not one of the commands that answer though bash has it.
        if name.contains('/')
            || name.starts_with('-')
            || argv == ["cat"]
            || matches!(name.as_str(), "[" | "false" | "kill" | "which")
        {
            return None;
        }
        let code = match COMMANDS.iter().position(|command| command == name) {
            Some(code) => u8::try_from(code).unwrap(),
            None if name == "true" => return Some((0, None)),
            None if name == "pwd" => 0,
            None => return Some((127, None)),
        };
        if argv == ["pwd", "-L"] {
            argv.pop();
        }
        argv.extend(["\u{1}".to_owned(), directory.to_str()?.to_owned()]);
        for name in ["A", "B"] {
            argv.extend(part.env.get(name).map(|value| format!("{name}={}", value.with_status(status))));
        }
        let filled = |name: String| {
            let is_file = !name.starts_with(['.', '/']) && !name.starts_with("text ") && name != "pipe";
            if is_file && !self.emptied.contains(&self.root.join(&name)) { name + "+" } else { name }
        };
        argv.extend(streams.map(filled));
        Some((code, Some(argv)))
    }
}

/// Whether two records agree; in a pipeline it is not certain which file is emptied first.
fn agree(ours: &[String], theirs: &[String], piped: bool) -> bool {
    let marker = ours.iter().position(|word| word == "\u{1}").unwrap_or(0);
    let same = |(at, (a, b)): (usize, (&String, &String))| {
        a == b || (piped && at > marker && a.trim_end_matches('+') == b.trim_end_matches('+'))
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).enumerate().all(same)
}

/// Runs lines in both, and says how many were accepted and which differ.
fn differences(seeds: std::ops::Range<u64>, make: &dyn Fn(u64) -> String) -> (usize, Vec<String>) {
    let place = Place::new();
    let directory = place.root.to_str().unwrap().to_owned();
    let variables = BTreeMap::from([("USER".to_owned(), "ann".to_owned()), ("HOME".to_owned(), HOME.to_owned())]);
    let environment = Environment { home: HOME, directory: &directory, variables: &variables };
    let mut simulated = Vec::new();
    let mut input = Vec::new();
    for seed in seeds {
        let line = make(seed);
        let Ok(lowered) = lower(&line, &environment) else { continue };
        super::super::check(&lowered.steps).unwrap_or_else(|reason| panic!("{line:?}: {reason}"));
        let mut run = Simulated { root: &place.root, emptied: BTreeSet::new() };
        let Some(done) = run.run(&lowered.steps) else { continue };
        input.extend_from_slice(if format!("{:?}", lowered.steps).contains("Exit(") { b"S" } else { b"D" });
        input.extend_from_slice(line.as_bytes());
        input.push(0);
        simulated.push((line, done));
    }
    let paths = ["lines", "records", "recorder"].map(|name| place.keeps.path().join(name));
    File::create(&paths[0]).unwrap().write_all(&input).unwrap();
    fs::write(&paths[2], RECORDER).unwrap();
    let output = Command::new("bash")
        .args(["--norc", "--noprofile"])
        .arg(&paths[2])
        .args(COMMANDS)
        .env_clear()
        .envs([("HOME", HOME), ("LC_ALL", "C.UTF-8"), ("USER", "ann"), ("PATH", "/usr/bin:/bin")])
        .envs([
            ("LINES", &paths[0]),
            ("RECORDS", &paths[1]),
            ("W", &place.root),
            ("L", &place.keeps.path().join("log")),
        ])
        .current_dir(&place.root)
        .output()
        .unwrap();
    // A line feed would have bash write a record in pieces, which another command of the pipeline could come between.
    let records = fs::read_to_string(&paths[1]).unwrap_or_default().replace('\u{5}', "\n");
    let theirs: Vec<&str> = records.split_terminator("\u{3}\0").collect();
    let mut different = Vec::new();
    // The status stands behind the mark, so that each text after the first begins with that of the line before.
    let status = |at: usize| theirs.get(at + 1).and_then(|next| next.split_once("\0\u{4}\0"));
    for (at, (line, (groups, ours))) in simulated.iter().enumerate() {
        let Some((code, _)) = status(at) else {
            different.push(format!("{line:?} ended the shell: {}", String::from_utf8_lossy(&output.stderr)));
            break;
        };
        let text = if at == 0 { theirs[0] } else { theirs[at].split_once("\0\u{4}\0").unwrap().1 };
        let mut commands: Vec<Vec<String>> = text
            .split_terminator("\u{2}\0")
            .map(|record| record.split_terminator('\0').map(str::to_owned).collect())
            .collect();
        commands.reverse();
        let mut same = code == ours.to_string();
        for (parts, expected) in groups {
            let mut got: Vec<Vec<String>> = (0..expected.len()).filter_map(|_| commands.pop()).collect();
            let mut expected = expected.clone();
            got.sort();
            expected.sort();
            same &= got.len() == expected.len() && expected.iter().zip(&got).all(|(a, b)| agree(a, b, *parts > 1));
        }
        same &= commands.is_empty();
        if !same {
            different.push(format!("{line:?}\n  ours {ours} {groups:?}\n  bash {code} {text:?}"));
        }
    }
    (simulated.len(), different)
}

/// Runs so many lines on two threads, and fails if one differs.
pub(super) fn compare(count: u64, accepted_of_100: u64, make: impl Fn(u64) -> String + Sync) {
    let begun = std::time::Instant::now();
    let batches: Vec<u64> = (0..count).step_by(5000).collect();
    let half = |which: usize| {
        let (mut accepted, mut different) = (0, Vec::new());
        for from in batches.iter().skip(which).step_by(2) {
            let (more, unlike) = differences(*from..(from + 5000).min(count), &make);
            accepted += more;
            different.extend(unlike);
            if different.len() > 20 {
                break;
            }
        }
        (accepted, different)
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        (half(0), other.join().unwrap())
    });
    let accepted = first.0 + second.0;
    println!("{count} lines in {:?}, {accepted} of them accepted", begun.elapsed());
    let different = [first.1, second.1].concat();
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different[..different.len().min(12)].join("\n"));
    assert!(accepted as u64 > count * accepted_of_100 / 100, "few lines reach bash: {accepted}");
}

fn sample() -> u64 {
    if std::env::var_os("CP_LONG").is_some() { 1_000_000 } else { 20_000 }
}

#[test]
fn lines_of_the_grammar_do_what_bash_does() {
    compare(sample(), 25, |seed| lines::line(&mut Dice::new(seed + 1)));
}

/// Where `cd` leads from a directory, as bash keeps it: by name, links included.
fn directory_after(from: &Path, to: &str) -> PathBuf {
    let mut directory = PathBuf::new();
    for component in from.join(to).components() {
        match component {
            Component::ParentDir => {
                directory.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => directory.push(component),
        }
    }
    directory
}
