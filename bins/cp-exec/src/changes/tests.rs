use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cp_common::home::Home;
use cp_common::wire::{ChangeKind, FileChange, FileKind};
use cp_ledger::format::line::Hash;
use proptest::prelude::*;

use super::{Baseline, Changes, Store};

const WALK: u64 = 100_000;

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

    /// The changes of a simulated run.
    fn run(&self, run: impl FnOnce()) -> Changes {
        let before = Baseline::capture(std::slice::from_ref(&self.root), &|_| false, &self.store, WALK);
        run();
        before.compare()
    }

    fn objects(&self) -> usize {
        fs::read_dir(self.place.path().join("home/state/kept/objects.blobs")).unwrap().count()
    }
}

fn listed(changes: &Changes) -> Vec<(String, ChangeKind)> {
    let name = |change: &FileChange| Path::new(&change.path).file_name().unwrap().to_string_lossy().into_owned();
    changes.files.files.iter().map(|change| (name(change), change.change)).collect()
}

fn hash(state: Option<&cp_common::wire::FileState>) -> Option<Hash> {
    Hash::parse(state?.sha256.as_deref()?)
}

/// Kind, permissions and content of each path.
type Contents = BTreeMap<PathBuf, (FileKind, u32, Vec<u8>)>;

fn contents(directory: &Path, into: &mut Contents) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let (kind, bytes) = match (meta.is_dir(), meta.is_symlink()) {
            (true, _) => (FileKind::Directory, Vec::new()),
            (_, true) => (FileKind::Link, fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()),
            _ => (FileKind::File, fs::read(&path).unwrap()),
        };
        into.insert(path.clone(), (kind, meta.mode() & 0o7777, bytes));
        if meta.is_dir() {
            contents(&path, into);
        }
    }
}

/// One edit of a simulated run. There are few names, so that edits affect the same paths.
#[derive(Clone, Debug)]
enum Edit {
    Write(u8, Vec<u8>),
    Truncate(u8),
    Remove(u8),
    Rename(u8, u8),
    Permissions(u8, u32),
    Directory(u8),
    Link(u8, u8),
}

fn edits(most: usize) -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        4 => (0..12_u8, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(at, bytes)| Edit::Write(at, bytes)),
        1 => (0..12_u8).prop_map(Edit::Truncate),
        2 => (0..12_u8).prop_map(Edit::Remove),
        2 => (0..12_u8, 0..12_u8).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => (0..12_u8, prop::sample::select(vec![0o600, 0o644, 0o755, 0o700])).prop_map(|(at, mode)| Edit::Permissions(at, mode)),
        1 => (0..12_u8).prop_map(Edit::Directory),
        1 => (0..12_u8, 0..12_u8).prop_map(|(at, to)| Edit::Link(at, to)),
    ];
    prop::collection::vec(edit, 0..most)
}

fn apply(root: &Path, edits: &[Edit]) {
    let path = |at: u8| match at % 3 {
        0 => root.join(at.to_string()),
        1 => root.join("d").join(at.to_string()),
        _ => root.join("d/e").join(at.to_string()),
    };
    // An edit that is not possible changes nothing.
    for edit in edits {
        drop(match edit {
            Edit::Write(at, bytes) => fs::create_dir_all(path(*at).parent().unwrap())
                .and_then(|()| if path(*at).is_symlink() { Ok(()) } else { fs::write(path(*at), bytes) }),
            Edit::Truncate(at) if !path(*at).is_symlink() => {
                fs::File::options().write(true).open(path(*at)).and_then(|file| file.set_len(1))
            }
            Edit::Truncate(at) | Edit::Remove(at) => {
                fs::remove_dir_all(path(*at)).or_else(|_| fs::remove_file(path(*at)))
            }
            Edit::Rename(from, to) => fs::rename(path(*from), path(*to)),
            Edit::Permissions(at, mode) if !path(*at).is_symlink() => {
                fs::set_permissions(path(*at), fs::Permissions::from_mode(*mode))
            }
            Edit::Permissions(..) => Ok(()),
            Edit::Directory(at) => fs::create_dir_all(path(*at)),
            Edit::Link(at, to) => symlink(to.to_string(), path(*at)),
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn compare_random_edits_lists_all_changes_and_keeps_old_contents(first in edits(30), run in edits(12)) {
        let project = Project::new();
        apply(&project.root, &first);
        let (mut before, mut after) = (Contents::new(), Contents::new());
        contents(&project.root, &mut before);
        let changes = project.run(|| apply(&project.root, &run));
        contents(&project.root, &mut after);
        let paths: std::collections::BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
        let mut expected: Vec<&PathBuf> = paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).collect();
        expected.sort_by_key(|path| path.display().to_string());
        let found: Vec<PathBuf> = changes.files.files.iter().map(|change| change.path.clone().into()).collect();
        prop_assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        for change in &changes.files.files {
            let path = Path::new(&change.path);
            for (state, contents) in [(&change.before, &before), (&change.after, &after)] {
                let found = state.as_ref().map(|state| (state.kind, u32::from_str_radix(&state.permissions, 8).unwrap()));
                prop_assert_eq!(found, contents.get(path).map(|(kind, mode, _)| (*kind, *mode)));
            }
            if let Some((FileKind::File, _, bytes)) = before.get(path) {
                prop_assert_eq!(&project.store.load(&hash(change.before.as_ref()).unwrap()).unwrap(), bytes);
            }
            if let Some((FileKind::File, _, bytes)) = after.get(path) {
                prop_assert_eq!(hash(change.after.as_ref()), Some(Hash::of(bytes)));
            }
        }
        prop_assert!(changes.missing().is_none());
    }
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
    let exclude = |path: &Path| path == secret.parent().unwrap();
    let before = Baseline::capture(std::slice::from_ref(&project.root), &exclude, &project.store, WALK);
    for name in [".git/objects/x", "secret/key", "a"] {
        project.write(name, "other");
    }
    assert_eq!(listed(&before.compare()), [("a".to_owned(), ChangeKind::Changed)]);
    assert_eq!(project.objects(), 1);
}

#[test]
fn capture_reads_only_changed_files() {
    let project = Project::new();
    let path = project.write("a", "one");
    project.write("b", "two");
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(project.run(|| ()).is_empty());
    let object = project.place.path().join("home/state/kept/objects.blobs").join(Hash::of(b"one").hex());
    fs::remove_file(&object).unwrap();
    assert!(project.run(|| ()).is_empty());
    assert!(!object.exists(), "it was read again");
    fs::write(&path, "one").unwrap();
    assert!(project.run(|| ()).is_empty());
    assert!(object.exists(), "it was not read");
}

#[test]
fn concurrent_runs_each_keep_their_old_contents() {
    let project = Project::new();
    for file in 0..40 {
        project.write(&format!("f{file}"), format!("content {file}"));
    }
    std::thread::scope(|scope| {
        for actor in 0..4 {
            let project = &project;
            scope.spawn(move || {
                for round in 0..10 {
                    let own = format!("f{actor}");
                    let was = fs::read(project.root.join(&own)).unwrap();
                    let changes = project.run(|| drop(project.write(&own, format!("{actor} in round {round}"))));
                    let change = changes.files.files.iter().find(|change| change.path.ends_with(&own)).unwrap();
                    assert_eq!(project.store.load(&hash(change.before.as_ref()).unwrap()).unwrap(), was);
                }
            });
        }
    });
}

#[test]
fn sweep_removes_unneeded_and_oldest_objects() {
    let project = Project::new();
    let path = project.write("a", "one");
    let now = || i64::try_from(cp_common::clock::unix_seconds()).unwrap();
    let other = project.place.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("o"), "other tree").unwrap();
    drop(Baseline::capture(std::slice::from_ref(&other), &|_| false, &project.store, WALK).compare());
    std::thread::sleep(std::time::Duration::from_millis(1100));
    project.run(|| fs::write(&path, "two").unwrap());
    project.run(|| fs::write(&path, "three").unwrap());
    assert_eq!(project.objects(), 3);
    project.store.sweep(now(), 1000).unwrap();
    assert_eq!(project.objects(), 3, "everything is recent");
    project.store.sweep(now(), 8).unwrap();
    assert!(project.store.load(&Hash::of(b"other tree")).is_err(), "the tree that was used least recently is gone");
    assert!(project.store.load(&Hash::of(b"two")).is_ok());
    for run in 0..60 {
        project.run(|| fs::write(&path, format!("run {run}")).unwrap());
    }
    project.store.sweep(now() + 8 * 24 * 3600, 1 << 20).unwrap();
    assert!(project.store.load(&Hash::of(b"two")).is_err(), "51 runs and a week ago");
    assert!(project.store.load(&Hash::of(b"run 58")).is_ok());
}
