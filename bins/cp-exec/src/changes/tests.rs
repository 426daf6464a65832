use std::fs;
use std::path::{Path, PathBuf};

use crate::exec_result::{ChangeKind, FileChange};
use cp_common::home::Home;
use cp_ledger::format::line::Hash;

use super::{Baseline, Changes, Store};

const WALK: u64 = 100_000;

fn remove(manifests: Vec<PathBuf>) {
    for manifest in manifests {
        fs::remove_file(manifest).unwrap();
    }
}

struct Project {
    root: PathBuf,
    store: Store,
    place: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap().join("work");
        fs::create_dir(&root).unwrap();
        Self { root, store: Store::of_home(&Home::find(Some(&place.path().join("home"))).unwrap()), place }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The changes of a simulated run. After a kill, its manifest gives the same, whatever other runs captured since.
    fn run(&self, run: impl FnOnce()) -> Changes {
        let capture = || Baseline::capture(std::slice::from_ref(&self.root), Vec::new(), &self.store, WALK);
        let before = capture();
        run();
        let (stored, manifests) = (serde_json::to_string(&before).unwrap(), before.manifests());
        let after_kill = || self.compare_stored(&stored);
        let changes = format!("{:?}", after_kill().unwrap());
        remove(manifests);
        assert!(after_kill().is_none(), "the manifest is gone");
        let after_run = before.compare();
        assert_eq!(format!("{after_run:?}"), changes);
        after_run
    }

    /// The changes of a killed run.
    fn compare_stored(&self, before: &str) -> Option<Changes> {
        serde_json::from_str::<Baseline<'_>>(before).unwrap().compare_until(i64::MAX, &self.store)
    }

    /// The number of objects and of packs.
    fn kept(&self) -> [usize; 2] {
        let part = |name: &str| fs::read_dir(self.place.path().join("home/state/kept").join(name)).unwrap().count();
        ["objects.blobs", "packs"].map(part)
    }
}

fn listed(changes: &Changes) -> Vec<(String, ChangeKind)> {
    let name = |change: &FileChange| Path::new(&change.path).file_name().unwrap().to_string_lossy().into_owned();
    changes.files.files.iter().map(|change| (name(change), change.change)).collect()
}

#[test]
fn compare_same_size_and_times_finds_change() {
    let project = Project::new();
    let path = project.write("a", "one");
    let modified = path.metadata().unwrap().modified().unwrap();
    let changes = project.run(|| {
        fs::write(&path, "two").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    });
    assert_eq!(listed(&changes), [("a".to_owned(), ChangeKind::Changed)]);
    // The control: a file whose times changed but not its content is not listed.
    let touched = project.run(|| fs::write(&path, "two").unwrap());
    assert!(touched.is_empty(), "{touched:?}");
}

#[test]
fn compare_unkept_contents_are_named() {
    let project = Project::new();
    for (name, size) in [("limit", 16 << 20), ("large", (16 << 20) + 1)] {
        fs::File::create(project.root.join(name)).unwrap().set_len(size).unwrap();
    }
    fs::create_dir(project.root.join(".git")).unwrap();
    project.write(".gitignore", "*.log\n/out/\n!kept.log\n");
    project.write("a.log", "x");
    project.write("kept.log", "x");
    project.write("out/b", "x");
    project.write("sub/out/b", "x");
    let changes = project.run(|| {
        for entry in fs::read_dir(&project.root).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.file_name().unwrap() != ".git" {
                fs::remove_dir_all(&entry).or_else(|_| fs::remove_file(&entry)).unwrap();
            }
        }
    });
    assert_eq!((changes.files.removed, changes.files.files.len()), (9, 9), "{changes:?}");
    let missing = changes.missing().unwrap();
    let names = |name: &str| missing.contains(&format!("/{name} ("));
    assert!(names("large") && names("a.log") && names("out"), "{missing}");
    assert!(!names("limit") && !names("kept.log") && !names("sub/out") && !names("sub/out/b"), "{missing}");
}

/// A file system such as ext4 gives the inode of a removed file to the next new one.
#[test]
fn compare_new_entry_with_the_inode_of_one_that_is_not_kept_is_new() {
    for unkept in ["x.log", "logs", "large"] {
        let project = Project::new();
        project.write(".gitignore", "*.log\nlogs\n");
        fs::create_dir(project.root.join(".git")).unwrap();
        fs::File::create(project.root.join("large")).unwrap().set_len(17 << 20).unwrap();
        project.write("x.log", "x");
        project.write("logs/one", "x");
        let created = |changes: Changes| -> Vec<String> {
            let created = listed(&changes).into_iter().filter(|(_, change)| *change == ChangeKind::Created);
            created.map(|(name, _)| name).collect()
        };
        let path = project.root.join(unkept);
        let changes = project.run(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
            project.write("d/b", "new");
            project.write("n", "new");
        });
        assert_eq!(created(changes), ["d", "b", "n"], "{unkept}");
        // What was only moved is not new, and `undo` must not remove it.
        for name in ["x.log", "logs", "large"].into_iter().filter(|name| *name != unkept) {
            let changes = project.run(|| fs::rename(project.root.join(name), project.root.join("moved")).unwrap());
            assert_eq!(created(changes), [""; 0], "{name}");
            fs::rename(project.root.join("moved"), project.root.join(name)).unwrap();
        }
    }
}

#[test]
fn compare_ignore_patterns_of_the_run_hide_no_existing_file() {
    let project = Project::new();
    fs::create_dir(project.root.join(".git")).unwrap();
    project.write("src/a", "x");
    let changes = project.run(|| {
        project.write(".gitignore", "*\n");
        project.write("src/a", "y");
    });
    assert_eq!(
        listed(&changes),
        [(".gitignore".to_owned(), ChangeKind::Created), ("a".to_owned(), ChangeKind::Changed)]
    );
}

#[test]
fn compare_unreadable_directory_lists_no_created_files() {
    let project = Project::new();
    fs::create_dir(project.root.join(".git")).unwrap();
    project.write(".gitignore", "out\n");
    project.write("out/precious", "x");
    let changes = project.run(|| fs::rename(project.root.join("out"), project.root.join("moved")).unwrap());
    assert_eq!(listed(&changes), [("out".to_owned(), ChangeKind::Removed)]);
    assert!(changes.missing().unwrap().contains("moved"), "{changes:?}");
}

#[test]
fn compare_excluded_paths_and_repositories_are_skipped() {
    let project = Project::new();
    project.write(".git/objects/x", "x");
    let secret = project.write("secret/key", "s");
    project.write("a", "x");
    let hidden = vec![secret.parent().unwrap().to_owned()];
    let before = Baseline::capture(std::slice::from_ref(&project.root), hidden, &project.store, WALK);
    for name in [".git/objects/x", "secret/key", "a"] {
        project.write(name, "other");
    }
    assert_eq!(listed(&before.compare()), [("a".to_owned(), ChangeKind::Changed)]);
    assert_eq!(project.kept(), [1, 1]);
}

#[test]
fn capture_reads_only_changed_files() {
    let project = Project::new();
    let path = project.write("a", "one");
    project.write("b", "two");
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(project.run(|| ()).is_empty());
    assert_eq!(project.kept(), [0, 1]);
    assert!(project.run(|| ()).is_empty());
    assert_eq!(project.kept(), [0, 1], "it was read again");
    fs::write(&path, "one").unwrap();
    assert!(project.run(|| ()).is_empty());
    assert_eq!(project.kept(), [0, 2], "it was not read");
}

#[test]
fn compare_lost_or_damaged_contents_are_named() {
    for damage in [|pack: &Path| fs::write(pack, "onX").unwrap(), |pack: &Path| fs::remove_file(pack).unwrap()] {
        let project = Project::new();
        let path = project.write("a", "one");
        let packs = project.place.path().join("home/state/kept/packs");
        let changes = project.run(|| {
            fs::write(&path, "two").unwrap();
            damage(&fs::read_dir(packs).unwrap().next().unwrap().unwrap().path());
        });
        assert_eq!(changes.files.files[0].before.as_ref().unwrap().sha256, None);
        assert!(changes.missing().unwrap().contains("/a ("), "{changes:?}");
        assert!(project.run(|| fs::write(&path, "three").unwrap()).missing().is_none(), "the control");
    }
}

#[test]
fn compare_many_directories_finds_each_change_once() {
    let project = Project::new();
    let name = |directory: usize, file: usize| format!("{:03}/{}/{directory}-{file}", directory % 40, directory);
    for directory in 0..200 {
        (0..3).for_each(|file| drop(project.write(&name(directory, file), format!("{directory} {file}"))));
    }
    assert!(project.run(|| ()).is_empty(), "the control");
    let changes = project.run(|| {
        for directory in (0..200).step_by(7) {
            project.write(&name(directory, 0), "other");
            fs::remove_file(project.root.join(name(directory, 1))).unwrap();
            project.write(&name(directory, 9), "new");
        }
        fs::remove_dir_all(project.root.join("001/41")).unwrap();
    });
    let mut expected: Vec<(String, ChangeKind)> = (0..200)
        .step_by(7)
        .flat_map(|at| [(at, 0, ChangeKind::Changed), (at, 1, ChangeKind::Removed), (at, 9, ChangeKind::Created)])
        .map(|(directory, file, change)| (format!("{directory}-{file}"), change))
        .collect();
    expected.extend(["41", "41-0", "41-1", "41-2"].map(|gone| (gone.to_owned(), ChangeKind::Removed)));
    let mut found = listed(&changes);
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, expected);
    assert!(changes.missing().is_none(), "{changes:?}");
}

#[test]
fn sweep_removes_unneeded_and_oldest_objects() {
    let project = Project::new();
    let path = project.write("a", "one");
    let now = || i64::try_from(cp_common::clock::unix_seconds()).unwrap() * 1_000_000_000;
    let other = project.place.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("o"), "other tree").unwrap();
    drop(Baseline::capture(std::slice::from_ref(&other), Vec::new(), &project.store, WALK).compare());
    std::thread::sleep(std::time::Duration::from_millis(20));
    project.run(|| fs::write(&path, "two").unwrap());
    project.run(|| fs::write(&path, "three").unwrap());
    assert_eq!(project.kept(), [2, 3]);
    assert_eq!(project.store.sweep(now(), 1000, true).unwrap(), 19);
    assert_eq!(project.kept(), [2, 2], "everything else is recent");
    assert_eq!(project.store.sweep(now(), 8, false).unwrap(), 19, "a session is open");
    assert_eq!(project.store.sweep(now(), 8, true).unwrap(), 6);
    assert_eq!(project.kept(), [1, 1], "the tree that was used least recently is gone");
    assert!(project.store.load(&Hash::of(b"two")).is_ok());
    for run in 0..60 {
        project.run(|| fs::write(&path, format!("run {run}")).unwrap());
    }
    project.store.sweep(now() + 8 * 24 * 3600 * 1_000_000_000, 1 << 20, true).unwrap();
    assert!(project.store.load(&Hash::of(b"two")).is_err(), "51 manifests and a week ago");
    assert!(project.store.load(&Hash::of(b"run 58")).is_ok());
}

#[test]
fn open_run_keeps_what_it_needs_from_captures_and_sweeps() {
    let project = Project::new();
    let path = project.write("a", "one");
    let capture = || Baseline::capture(std::slice::from_ref(&project.root), Vec::new(), &project.store, WALK);
    let run = capture();
    fs::write(&path, "two").unwrap();
    drop(capture().compare());
    // A sweep is due, and the manifest of the tree no longer lists what the first run found.
    let sweep = || {
        fs::remove_file(project.place.path().join("home/state/kept/swept")).unwrap();
        drop(project.store.session().unwrap());
    };
    sweep();
    let mut manifests = run.manifests();
    assert_eq!(listed(&run.compare()), [("a".to_owned(), ChangeKind::Changed)]);
    assert!(project.store.load(&Hash::of(b"one")).is_ok());
    // A killed run holds nothing, and its manifest keeps the contents.
    fs::write(&path, "five").unwrap();
    let killed = capture();
    let stored = serde_json::to_string(&killed).unwrap();
    manifests.extend(killed.manifests());
    drop(killed);
    fs::write(&path, "six").unwrap();
    drop(capture().compare());
    sweep();
    assert_eq!(listed(&project.compare_stored(&stored).unwrap()), [("a".to_owned(), ChangeKind::Changed)]);
    assert!(project.store.load(&Hash::of(b"five")).is_ok());
    remove(manifests);
    // The control: what no manifest lists is removed when nobody holds the store.
    let captured = |text: &str| {
        fs::write(&path, text).unwrap();
        remove(capture().manifests());
    };
    captured("three");
    captured("four");
    sweep();
    assert!(project.store.load(&Hash::of(b"three")).is_err());
}
