//! A command that attacks: probes in a language of their own run inside a sandbox and, as the control, outside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cp_testkit::{Background, Program, until};
use serde_json::{Value, json};

use crate::exec::{Exec, SCRIPT, Who, details, policy_with};

const PRELUDE: &str = include_str!("../data/hostile/prelude.py");
const VICTIM: &str = include_str!("../data/hostile/victim.py");
/// Every probe, by what it attacks.
const PROBES: [(&str, &str); 5] = [
    ("reading", include_str!("../data/hostile/reading.py")),
    ("writing", include_str!("../data/hostile/writing.py")),
    ("leaving", include_str!("../data/hostile/leaving.py")),
    ("escaping", include_str!("../data/hostile/escaping.py")),
    ("network", include_str!("../data/hostile/network.py")),
];
/// Those that need limits of their own.
const RESOURCES: &str = include_str!("../data/hostile/resources.py");

/// One attempt, as it was made.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// The kind of attack, as the manual lists it.
    pub(super) group: String,
    pub(super) name: String,
    /// Any one of these layers is enough to refuse it; `a+b` are two that it takes together.
    pub(super) layers: Vec<String>,
    /// An ordinary user is refused outside, too.
    pub(super) needs_root: bool,
    /// `done`, `refused N`, `killed N`, `hung` or `broken`.
    pub(super) what: String,
}

impl Probe {
    pub(super) fn is_done(&self) -> bool {
        self.what == "done"
    }

    /// True if the attempt was refused or killed, and did not fail for another reason.
    pub(super) fn is_refused(&self) -> bool {
        self.what.starts_with("refused") || self.what.starts_with("killed")
    }

    /// True if these layers are sufficient to refuse it.
    pub(super) fn is_contained_by(&self, held: &BTreeSet<String>) -> bool {
        self.layers.iter().any(|layer| layer.split('+').all(|part| held.contains(part)))
    }

    /// This kernel does not have what it attacks: no such call, no such kind of socket.
    pub(super) fn is_absent(&self) -> bool {
        ["refused 38", "refused 97"].contains(&self.what.as_str())
    }
}

/// Probes by name.
pub(super) type Probes = BTreeMap<String, Probe>;

/// The limits that the probes of resources go beyond.
pub(super) const PROCESSES: u64 = 400;
pub(super) const SCRATCH: u64 = 32_000_000;

/// A policy with what the probes need to be hidden.
pub(super) fn policy(more: &str) -> String {
    let exec = policy_with(more);
    format!("{exec}\n[paths]\nread = [\".\"]\nwrite = [\".\"]\nforbidden = [\"private/**\"]\n")
}

/// A project, things outside it, and a process outside that could be attacked.
pub(super) struct Bench {
    pub(super) exec: Exec,
    facts: Value,
    victim: Background,
}

impl Bench {
    pub(super) fn new(who: Who, policy: &str) -> Self {
        let exec = Exec::with_policy(who, policy);
        for name in [".env", "sub/.env", "private/key", "private/deeper/key"] {
            exec.write(name, "hidden");
        }
        let outside = exec.root.directory("outside");
        outside.write("secret", "the secret");
        outside.write("file", "the contents");
        outside.write("spare", "");
        outside.directory("empty");
        symlink("secret", outside.join("link")).unwrap();
        for (path, mode) in [(outside.join("secret"), 0o666), (outside.join("file"), 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        // So that there are keys and a ledger.
        let (answer, status) = exec.ask(&["--", "true"]);
        assert_eq!(status, 0, "{who:?}: {answer}");
        let tag = format!("hostile-{}", exec.root.file_name().unwrap().to_str().unwrap().trim_start_matches('.'));
        let program = exec.program("python3").args(["-c", VICTIM, outside.to_str().unwrap(), &tag]);
        let mut victim = exec.as_user(program).start();
        let mut facts = victim.record();
        facts["home"] = json!(exec.user.to_str().unwrap());
        facts["cp_home"] = json!(exec.home.to_str().unwrap());
        facts["cgroup"] = json!(cgroup());
        for (name, value) in [("processes", PROCESSES), ("scratch", SCRATCH)] {
            facts[name] = json!(value);
        }
        facts["cpu"] = json!(61);
        Self { exec, facts, victim }
    }

    /// The process outside that probes look for.
    pub(super) fn victim_is_alive(&mut self) -> bool {
        !self.victim.has_ended()
    }

    fn script(&self, probes: &str) -> String {
        format!("import json\nV = json.loads({:?})\n{PRELUDE}\n{probes}", self.facts.to_string())
    }

    /// Runs probes in the sandbox, on a machine that lacks what `lacking` says.
    #[track_caller]
    pub(super) fn inside(&self, probes: &str, lacking: impl FnOnce(Program) -> Program) -> (Probes, Value) {
        self.exec.write("probe.py", &self.script(probes));
        let command = self.exec.command(&["--timeout", "60", "--", "python3", "-c", SCRIPT, "probe.py"]);
        let ran = lacking(command).run();
        let answer = ran.records().pop().unwrap_or_else(|| panic!("no answer: {ran:?}"));
        let result = details(&answer);
        assert_eq!(result["return_code"], 0, "it did not finish: {answer}");
        let probes = read(result["stdout"].as_str().unwrap());
        let broken: Vec<&Probe> = probes.values().filter(|probe| probe.what == "broken").collect();
        assert!(broken.is_empty(), "{broken:?}: {}", result["stderr"]);
        (probes, result.clone())
    }

    /// The list of probes, without running any of them.
    #[track_caller]
    pub(super) fn listed(&self, probes: &str) -> Probes {
        let attempt = "    pid = os.fork()\n    if pid == 0:\n        signal.alarm";
        assert!(PRELUDE.contains(attempt));
        let script = self
            .script(probes)
            .replace(attempt, "    f = lambda: None\n    pid = os.fork()\n    if pid == 0:\n        signal.alarm");
        let ran = self.exec.program("python3").args(["-c", &script]).run();
        read(&ran.success().stdout)
    }

    /// Runs probes outside, as the same user in the same directory. Root gets a mount namespace, so that its mounts
    /// stay there.
    #[track_caller]
    pub(super) fn outside(&self, probes: &str) -> Probes {
        self.exec.write("probe.py", &self.script(probes));
        let python = self.exec.as_user(self.exec.program("python3").arg("probe.py"));
        let is_root = self.exec.who == Who::Me && rustix::process::geteuid().is_root();
        let ran = if is_root { python.under("unshare", ["-m"]).run() } else { python.run() };
        read(&ran.success().stdout)
    }
}

impl Drop for Bench {
    /// The process outside takes what it shared by key or name along, which would else outlive it.
    fn drop(&mut self) {
        self.victim.close_stdin();
        until("the end of the victim", || self.victim.has_ended());
    }
}

/// All probes but those of resources, as one script.
pub(super) fn all() -> String {
    PROBES.iter().map(|(_, text)| *text).collect::<Vec<_>>().join("\n")
}

/// Those of one file.
pub(super) fn of(name: &str) -> &'static str {
    PROBES.iter().find(|(file, _)| *file == name).map_or(RESOURCES, |(_, text)| text)
}

/// A control group that root can make another one in.
fn cgroup() -> String {
    let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/pids"];
    let is_group = |place: &&&str| Path::new(place).join("cgroup.procs").exists();
    places.iter().find(is_group).map_or(String::new(), |place| (*place).to_owned())
}

fn read(output: &str) -> Probes {
    let lines = output.lines().filter_map(|line| line.strip_prefix("probe\t"));
    let probes = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [group, name, layers, needs, what] = fields[..] else { panic!("not a probe: {line}") };
        Probe {
            group: group.to_owned(),
            name: name.to_owned(),
            layers: layers.split(' ').map(str::to_owned).collect(),
            needs_root: needs == "root",
            what: what.to_owned(),
        }
    });
    let list: Vec<Probe> = probes.collect();
    let count = list.len();
    let by_name: Probes = list.into_iter().map(|probe| (probe.name.clone(), probe)).collect();
    assert_eq!(by_name.len(), count, "two probes have one name");
    by_name
}

/// Everything below a directory, with its contents: what a canary is compared by.
pub(super) fn seen(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut next = vec![at.to_owned()];
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let mode = format!("{:o}", meta.permissions().mode());
            let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            found.insert(format!("{mode} {}", path.display()), bytes);
            if meta.is_dir() {
                next.push(path);
            }
        }
    }
    found
}
