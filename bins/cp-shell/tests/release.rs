//! Fixtures for updates: releases of small trees with scripts as programs, signed by a test key, and an installation
//! that can update itself.

use std::ops::Deref;
use std::path::PathBuf;

use cp_ledger::proof::note::Signer;
use cp_testkit::server::reply;
use cp_testkit::{Directory, Place, Program, Server, program};

/// The version of the programs that are tested.
pub(crate) const OLD: &str = env!("CARGO_PKG_VERSION");
/// The version of the release.
pub(crate) const NEW: &str = "9.9.9";

/// An installation, and a directory of releases.
pub(crate) struct Installed {
    place: Place,
    /// `lib/cp-tools`.
    pub(crate) root: Directory,
    pub(crate) prefix: Directory,
    pub(crate) releases: Directory,
    /// The installed skill of an agent.
    pub(crate) skill: Directory,
}

impl Deref for Installed {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Installed {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let prefix = place.root.directory("prefix");
        let root = prefix.directory("lib/cp-tools");
        let made = Self {
            releases: place.root.directory("releases"),
            skill: place.user.at(".claude/skills/cp-tools"),
            place,
            root,
            prefix,
        };
        made.skill.write("SKILL.md", "---\nname: cp-tools\n---\nolder\n");
        let setup = made.place.shell("sh", include_str!("data/installed.sh")).current_dir(&made.root);
        setup
            .env("VERSION", OLD)
            .env("SHELL_PROGRAM", program("cp-shell"))
            .env("INSTALLER", installer())
            .run()
            .success();
        made
    }

    /// The verifier key of these releases.
    pub(crate) fn key() -> String {
        signer().verifier().to_text()
    }

    /// The program of the first installed version.
    pub(crate) fn shell(&self) -> Program {
        self.program(self.root.join(OLD).join("bin/cp-shell"))
    }

    /// An update from this directory with the test key.
    pub(crate) fn update(&self) -> Program {
        self.shell().args(["update", "--trust", &Self::key(), "--from"]).arg(&self.releases)
    }

    /// An update from a server.
    pub(crate) fn update_from(&self, server: &Server) -> Program {
        self.shell().args(["update", "--trust", &Self::key(), "--from", &server.url()])
    }

    /// Creates a release and marks it as the newest. `change` modifies its tree before it is listed, `tamper` after it,
    /// and `pack` are extra arguments of tar.
    pub(crate) fn release_of(&self, version: &str, grade: &str, change: &str, tamper: &str, pack: &str) {
        let setup = self.place.shell("sh", include_str!("data/release.sh")).current_dir(&self.releases);
        let setup = setup.env("VERSION", version).env("ARCHIVE", archive(version)).env("INSTALLER", installer());
        setup.env("CHANGE", change).env("TAMPER", tamper).env("PACK", pack).run().success();
        self.sign(version, grade);
    }

    pub(crate) fn release(&self, version: &str) {
        self.release_of(version, "info", "", "", "");
    }

    /// Signs the current list of a release.
    pub(crate) fn sign(&self, version: &str, grade: &str) {
        let list = self.releases.read(format!("v{version}/SHA256SUMS"));
        let note = signer().sign(&format!("cp-tools/release\n{version}\n{grade}\n{list}"));
        self.releases.write(format!("v{version}/SHA256SUMS.note"), note.to_string());
    }

    /// A server of the releases.
    pub(crate) fn server(&self) -> Server {
        let releases = self.releases.to_path_buf();
        Server::replying(move |request| serve(&releases, request.line()))
    }

    /// The active version according to its link.
    pub(crate) fn in_force(&self) -> String {
        self.root.join("current").read_link().unwrap().to_str().unwrap().to_owned()
    }

    /// Asserts that only complete versions and links exist.
    #[track_caller]
    pub(crate) fn is_tidy(&self) {
        let names = self.root.names();
        assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
    }
}

/// The file that a request asks for.
pub(crate) fn serve(releases: &std::path::Path, line: &str) -> cp_testkit::server::Reply {
    let file = releases.join(line.trim_start_matches("GET /"));
    std::fs::read(file).map_or_else(|_| reply(404, "text/plain", "", b""), |bytes| reply(200, "text/plain", "", &bytes))
}

pub(crate) fn archive(version: &str) -> String {
    let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!("cp-tools-{version}-{}-unknown-linux-{library}.tar.gz", std::env::consts::ARCH)
}

/// The archive of a release, below the releases.
pub(crate) fn archive_file(version: &str) -> PathBuf {
    PathBuf::from(format!("v{version}")).join(archive(version))
}

/// The installer that is in each release.
fn installer() -> PathBuf {
    cp_testkit::repository().join("scripts/install")
}

fn signer() -> Signer {
    Signer::new("test-release", &[7; 32])
}
