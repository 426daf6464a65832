//! The structure of the workspace: crates point one way, and no modules of a crate use each other in a loop.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The dependencies between our crates that are allowed, the lowest first. Programs may use every library and no
/// program.
const LAYERS: [&[&str]; 9] = [
    &["cp-json", "cp-schema", "cp-mcp-wire", "cp-egress"],
    &["cp-redact"],
    &["cp-common"],
    &["cp-http", "cp-table"],
    &["cp-policy"],
    &["cp-ledger"],
    &["cp-servers"],
    &[/* programs */],
    &["cp-testkit"],
];

/// The layer of the programs.
const PROGRAMS: usize = 7;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The folders of the crates below `common` and `bins`.
fn crates() -> Vec<PathBuf> {
    let folders = ["common", "bins"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let mut found: Vec<PathBuf> = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Who starts programs besides `cp_common::coprocess`: the harness of the tests, and the sandbox of cp-exec with what it
/// asks before a command may run.
const STARTERS: [&str; 4] = [
    "common/contract/src/coprocess/",
    "common/testkit/src/",
    "bins/cp-exec/src/run/helper.rs",
    "bins/cp-exec/src/git_dir/",
];

type Module = Vec<String>;

/// The modules of a crate by their path, with the file of each.
fn modules(source: &Path, below: &Module, into: &mut BTreeMap<Module, PathBuf>) {
    for entry in std::fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            modules(&path, &[below.as_slice(), &[name]].concat(), into);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let module = if matches!(name.as_str(), "lib" | "main" | "mod") {
                below.clone()
            } else {
                [below.as_slice(), &[name]].concat()
            };
            into.insert(module, path);
        }
    }
}

/// The modules that a file names, by `use` items and by paths.
struct Named<'a> {
    module: &'a Module,
    paths: BTreeSet<Module>,
}

impl Named<'_> {
    fn path(&mut self, words: &[String]) {
        let (up, rest): (usize, &[String]) = match words {
            [first, rest @ ..] if first == "crate" => (self.module.len(), rest),
            [first, rest @ ..] if first == "self" => (0, rest),
            _ => {
                let up = words.iter().take_while(|word| *word == "super").count();
                if up == 0 {
                    return;
                }
                (up, &words[up..])
            }
        };
        let base = &self.module[..self.module.len().saturating_sub(up)];
        self.paths.insert([base, rest].concat());
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Name(name) => self.path(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            syn::UseTree::Rename(name) => self.path(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            syn::UseTree::Glob(_) => self.path(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before)),
        }
    }
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = item.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
        });
        if !is_test {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, &mut Vec::new());
    }

    /// `pub(super)` names a module, and uses nothing of it.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&words);
        visit::visit_path(self, path);
    }
}

/// What each module uses. A use by a submodule counts as a use by each module that contains it, and a module may name
/// its own submodules.
fn arrows(modules: &BTreeMap<Module, PathBuf>) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let mut arrows: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for (module, file) in modules {
        let parsed = syn::parse_file(&std::fs::read_to_string(file).unwrap()).unwrap();
        let mut named = Named { module, paths: BTreeSet::new() };
        named.visit_file(&parsed);
        for path in &named.paths {
            let used = (1..=path.len()).rev().find_map(|length| modules.get_key_value(&path[..length]));
            let Some((used, _)) = used else { continue };
            for (user, _) in (1..=module.len()).filter_map(|length| modules.get_key_value(&module[..length])) {
                let is_related = used.starts_with(user) || user != module && user.starts_with(used);
                if !is_related {
                    arrows.entry(user).or_default().insert(used);
                }
            }
        }
    }
    arrows
}

/// Every module that can be reached from one.
fn reached<'a>(from: &'a Module, arrows: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> BTreeSet<&'a Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in arrows.get(module).into_iter().flatten() {
            if found.insert(*next) {
                open.push(next);
            }
        }
    }
    found
}

#[test]
fn no_modules_use_each_other_in_a_loop() {
    let mut loops = Vec::new();
    for folder in crates() {
        let mut modules_of = BTreeMap::new();
        modules(&folder.join("src"), &Vec::new(), &mut modules_of);
        let arrows = arrows(&modules_of);
        for module in arrows.keys() {
            if reached(module, &arrows).contains(module) {
                loops.push(format!("{}: {} uses {:?}", folder.display(), module.join("::"), arrows[module]));
            }
        }
    }
    assert!(loops.is_empty(), "modules in a loop:\n{}", loops.join("\n"));
}

#[test]
fn crates_point_one_way() {
    for folder in crates() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).unwrap();
        let is_program = folder.parent().unwrap().ends_with("bins");
        let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name)).unwrap_or(PROGRAMS);
        let used = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let used = used.split("\n[").next().unwrap_or_default();
        let ours = used.lines().filter_map(|line| line.split(['.', ' ']).next()).filter(|name| name.starts_with("cp-"));
        for used in ours {
            assert!(layer(used) < layer(name), "{name} must not use {used}");
            assert!(
                !is_program || layer(used) < PROGRAMS,
                "{name} is a program and links {used}: programs run each other"
            );
        }
    }
}

/// Each file and folder that ARCHITECTURE.md names is there, below the sources that its paragraph names, if it names some.
#[test]
fn architecture_names_files_that_exist() {
    let listed = std::process::Command::new("git").args(["ls-files"]).current_dir(root()).output().unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    let is_below = |folder: &str, name: &str| {
        let name = format!("/{name}");
        files.lines().filter(|file| file.starts_with(folder)).any(|file| {
            let file = format!("/{file}");
            if name.ends_with('/') { file.contains(&name) } else { file.ends_with(&name) }
        })
    };
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut count = 0;
    for paragraph in text.split("\n\n") {
        let names: Vec<&str> = paragraph.split('`').skip(1).step_by(2).collect();
        let folder = |name: &&str| match name.find("/src") {
            Some(at) => Some(name[..at + "/src".len()].to_owned()),
            None => name.starts_with("scripts/").then(|| (*name).to_owned()),
        };
        let folders: Vec<String> = names.iter().filter_map(folder).collect();
        let is_named = |name: &&str| [".rs", ".json", "toml", ".ex", "/"].iter().any(|end| name.ends_with(end));
        for name in names.iter().copied().filter(is_named).filter(|name| !name.contains('*')) {
            let is_there = folders.iter().any(|folder| is_below(folder, name)) || root().join(name).exists();
            // A paragraph may go on with the sources of the one before.
            assert!(is_there || folders.is_empty() && is_below("", name), "{name}: {paragraph}");
            count += 1;
        }
    }
    assert!(count > 80, "{count}");
}

#[test]
fn only_coprocess_starts_programs() {
    let mut files = BTreeMap::new();
    for folder in crates() {
        let name = vec![folder.display().to_string()];
        modules(&folder.join("src"), &name, &mut files);
    }
    let is_test = |file: &Path| file.ends_with("tests.rs");
    let mut found = BTreeSet::new();
    for file in files.into_values().filter(|file| !is_test(file)) {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let starts = |line: &str| {
            line.contains("duct::") || line.contains("process::") && line.contains("Command") && !line.contains("Ext")
        };
        if code.lines().any(starts) {
            let path = file.strip_prefix(root()).unwrap().display().to_string();
            let starter = STARTERS.iter().find(|starter| path.starts_with(**starter));
            found.insert(*starter.unwrap_or_else(|| panic!("{path} must use cp_common::coprocess to start programs")));
        }
    }
    assert_eq!(found.len(), STARTERS.len(), "all others start none: {found:?}");
}
