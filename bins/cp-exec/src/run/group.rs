//! A control group of version 2, which limits the processes and the memory of one run together. It is made only if the
//! policy requests it, because moving a process into a group can take the kernel tens of milliseconds.

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

/// A group, by its directory.
pub(super) struct Group(PathBuf);

impl Group {
    /// Creates a group with these limits below the group of this process; `None` if that group is not writable, or of
    /// version 1.
    pub(super) fn make(limits: &Limits) -> Option<Self> {
        Self::make_below(Path::new(ROOT), &fs::read_to_string("/proc/self/cgroup").ok()?, limits)
    }

    /// The same below a root. `own` lists the groups of this process.
    fn make_below(root: &Path, own: &str, limits: &Limits) -> Option<Self> {
        let place = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let parent = root.join(place.trim_start_matches('/'));
        let controllers = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        if !["pids", "memory"].iter().all(|needed| controllers.split_whitespace().any(|known| known == *needed)) {
            return None;
        }
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("cp-exec-{}-{number}", std::process::id()));
        fs::create_dir(&directory).ok()?;
        // If an error occurs, `Drop` removes the group.
        let group = Self(directory);
        // The helper and the init are also members.
        fs::write(group.0.join("pids.max"), (limits.processes + 2).to_string()).ok()?;
        fs::write(group.0.join("memory.max"), limits.memory_bytes.to_string()).ok()?;
        // A kernel without swap accounting has no such file.
        drop(fs::write(group.0.join("memory.swap.max"), "0"));
        Some(group)
    }

    /// The directory to which the processes of the run are added.
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    /// Kills all processes of the group. With a process namespace there are none left.
    pub(super) fn kill(&self) {
        let end = Instant::now() + KILL;
        while Instant::now() < end {
            let left = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            if left.is_empty() {
                return;
            }
            // This kills all processes at once, including those that fork in the meantime. Kernels before 5.14 have no
            // such file, so a process limit of 0 stops forks first.
            if fs::write(self.0.join("cgroup.kill"), "1").is_err() {
                drop(fs::write(self.0.join("pids.max"), "0"));
                for pid in left.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // All processes are dead, but the kernel may not have removed them yet.
        for _ in 0..50 {
            match fs::remove_dir(&self.0) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => std::thread::sleep(Duration::from_millis(1)),
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cpu_seconds: 1, processes: 40, memory_bytes: 3000, scratch_bytes: 1 };

    /// Directories and files cannot show that the kernel enforces the values.
    #[test]
    fn group_is_made_only_in_version_2_with_both_controllers() {
        for (own, controllers, is_made) in [
            ("0::/a/b\n", "cpu memory pids", true),
            ("3:pids:/a/b\n2:memory:/a/b\n0::/a/b\n", "pids memory", true),
            ("3:pids:/a/b\n2:memory:/a/b\n", "pids memory", false),
            ("0::/a/b\n", "cpu memory", false),
            ("0::/a/b\n", "pids.max memory", false),
            ("0::/a\n", "pids memory", false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let parent = root.path().join("a/b");
            fs::create_dir_all(&parent).unwrap();
            fs::write(parent.join("cgroup.subtree_control"), controllers).unwrap();
            let group = Group::make_below(root.path(), own, &LIMITS);
            assert_eq!(group.is_some(), is_made, "{own} {controllers}");
            let Some(group) = group else { continue };
            assert_eq!(group.directory().parent(), Some(&*parent));
            let read = |name: &str| fs::read_to_string(group.directory().join(name)).unwrap();
            let found = ["pids.max", "memory.max", "memory.swap.max"].map(read);
            assert_eq!(found, ["42", "3000", "0"]);
        }
    }
}
