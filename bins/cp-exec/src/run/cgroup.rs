//! A control group for one run, which limits its processes and memory together. It is created only if the policy
//! requests it, because moving a process into a group can take the kernel tens of milliseconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::sandbox::plan::Limits;

const ROOT: &str = "/sys/fs/cgroup";
/// The time after which killing gives up.
const KILL: Duration = Duration::from_millis(500);

/// Counts the groups of this process, to number them.
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// The directories of a group: one for cgroup v2, one for each controller for v1.
pub(crate) struct Group(Vec<PathBuf>);

impl Group {
    /// Creates a group with these limits below the group of this process; `None` if that group is not writable.
    pub(crate) fn make(limits: &Limits) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("cp-exec-{}-{}", std::process::id(), GROUPS.fetch_add(1, Ordering::Relaxed));
        // The helper and the init are also members.
        let (processes, memory) = ((limits.processes + 2).to_string(), limits.memory_bytes.to_string());
        Self::version_1(&own, &name, &processes, &memory).or_else(|| Self::version_2(&own, &name, &processes, &memory))
    }

    /// The directories to which the processes of the run are added.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.0
    }

    /// Kills all processes of the group. With a process namespace there are none left.
    pub(crate) fn kill(&self) {
        let Some(directory) = self.0.first() else { return };
        let end = Instant::now() + KILL;
        while Instant::now() < end {
            let left = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            if left.is_empty() {
                return;
            }
            // Version 2 kills all processes at once, including those that fork in the meantime. Version 1 has no such
            // file, so a process limit of 0 stops forks first.
            if fs::write(directory.join("cgroup.kill"), "1").is_err() {
                drop(fs::write(directory.join("pids.max"), "0"));
                for pid in left.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn version_1(own: &str, name: &str, processes: &str, memory: &str) -> Option<Self> {
        // If an error occurs, `Drop` removes the groups that were created.
        let mut group = Self(Vec::new());
        for (controller, file, limit) in [("pids", "pids.max", processes), ("memory", "memory.limit_in_bytes", memory)]
        {
            let place = own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let mounted = fields.next()?.split(',').any(|known| known == controller);
                mounted.then(|| fields.next()).flatten()
            })?;
            let directory = Path::new(ROOT).join(controller).join(place.trim_start_matches('/')).join(name);
            fs::create_dir(&directory).ok()?;
            group.0.push(directory.clone());
            fs::write(directory.join(file), limit).ok()?;
        }
        Some(group)
    }

    fn version_2(own: &str, name: &str, processes: &str, memory: &str) -> Option<Self> {
        let place = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let parent = Path::new(ROOT).join(place.trim_start_matches('/'));
        let controllers = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        if !["pids", "memory"].iter().all(|needed| controllers.split_whitespace().any(|known| known == *needed)) {
            return None;
        }
        let directory = parent.join(name);
        fs::create_dir(&directory).ok()?;
        let group = Self(vec![directory.clone()]);
        fs::write(directory.join("pids.max"), processes).ok()?;
        fs::write(directory.join("memory.max"), memory).ok()?;
        // A kernel without swap accounting has no such file.
        drop(fs::write(directory.join("memory.swap.max"), "0"));
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.0 {
            // All processes are dead, but the kernel may not have removed them yet.
            for _ in 0..50 {
                match fs::remove_dir(directory) {
                    Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}
