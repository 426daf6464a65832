//! The policy: the settings of its file, the declarations of the modules of a root, and both resolved for one start
//! of the program.
//!
//! A [`Policy`] is the policy in force, with every pattern resolved against the base, the home and the session. It does
//! not change after it is read. Decisions and the sandbox query paths here.

mod file;
mod hidden;
mod modules;
mod patterns;
mod walk;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::context::given::directory;
use cp_common::context::options::Origin;
pub(crate) use cp_common::home::expand;
use cp_common::home::{Home, resolved};
use cp_common::wire::Level;
use cp_common::{Context, Error, Result};
use cp_egress::Network;
pub(crate) use cp_policy::{home_of, name_of, others_write};
use serde::{Deserialize, Serialize};

use self::file::Exec;
pub(crate) use self::file::{
    Degraded, Intent, LONGEST, Loaded, Rule, SYSTEM_PATH, Settings, Verdict, built_in, check_directory, load, parse,
};
pub(crate) use self::hidden::{allowable, node_of, readable, writable};
pub(crate) use self::modules::Module;
use self::modules::{Governed, modules};
pub(crate) use self::patterns::{Access, Pattern, escaped, normal};
use self::patterns::{Anchors, Bounds, patterns};
use crate::digest::sha256;
use crate::nofollow::{Link, first_link, follow};
use crate::refusal::refuse;

/// The input of every decision and every sandbox of this process. Only the current call changes.
#[derive(Clone)]
pub(crate) struct Policy {
    pub loaded: Loaded,
    /// The resolved paths of the policy.
    pub bounds: Bounds,
    pub pristine: Vec<Pattern>,
    /// One message for each path of the policy that is not granted.
    not_granted: Vec<String>,
    /// The value of `.`: the directory in which the outermost program was started.
    pub base: PathBuf,
    /// Directories of executable tools.
    pub tools: Vec<PathBuf>,
    /// The home of the cp programs.
    pub cp_home: Home,
    pub ledger: PathBuf,
    pub actor: Actor,
    /// The governed tree that was named as the root.
    pub governed: Option<Governed>,
    /// The modules of the root that declare capabilities.
    modules: Arc<[Module]>,
    /// Links on the paths of the home and of programs, which programs use as well.
    pub links: Vec<Link>,
    /// True for a server, whose command its owner chose: it may run for a day, and of the built-in rules only those
    /// about privileges hold.
    pub is_of_server: bool,
}

/// The actor, as entries of the ledger name it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Actor {
    pub agent: String,
    pub session: Option<String>,
    pub run: Option<String>,
    /// The tool call of a model that is being answered.
    pub call: Option<String>,
    /// The tool call of another agent, if a hook is the caller.
    pub host: Option<HostCall>,
    #[serde(skip)]
    pub origin: Origin,
}

/// A tool call of another agent that is being decided about or run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostCall {
    pub host: String,
    pub session: String,
    pub call: String,
}

impl HostCall {
    /// Parses HOST/SESSION/CALL.
    pub(crate) fn of(word: &str) -> Result<Self> {
        let mut parts = word.splitn(3, '/').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(host), Some(session), Some(call)) => Ok(Self { host, session, call }),
            _ => Err(Error::usage("--hosted takes HOST/SESSION/CALL").hint("only a hook writes it")),
        }
    }

    /// Formats HOST/SESSION/CALL.
    pub(crate) fn word(&self) -> String {
        format!("{}/{}/{}", self.host, self.session, self.call)
    }
}

impl Policy {
    /// Resolves the policy of the home, with the modules of `root`, or else of the home.
    pub(crate) fn resolve(context: &Context, tools: &[PathBuf]) -> Result<Self> {
        Self::of_loaded(load(&context.home.policy_file())?, context, tools)
    }

    /// Resolves a policy that was loaded.
    pub(crate) fn of_loaded(mut loaded: Loaded, context: &Context, tools: &[PathBuf]) -> Result<Self> {
        let session = context.session();
        let (home, mut links) = follow(&loaded.home);
        let (base, top) = (context.base()?, PathBuf::from("/"));
        let anchors = Anchors { base, home, session: session.clone(), top };
        loaded.settings.resolve_for(&anchors.base, &loaded.home.to_string_lossy());
        let tools =
            tools.iter().map(|tools| directory("--tools", tools).map_err(Error::fatal)).collect::<Result<Vec<_>>>()?;
        let cp_home = context.home.resolved();
        let named = context.root().map_err(Error::fatal)?;
        let root = named.as_deref().unwrap_or(cp_home.root());
        let programs = loaded.settings.exec.path.iter().chain(loaded.settings.exec.pin.values());
        links.extend(programs.flat_map(|path| follow(path).1));
        let paths = &loaded.settings.paths;
        let mut bounds = Bounds::of([&paths.read, &paths.write, &paths.execute], &paths.forbidden, &anchors);
        Ok(Self {
            not_granted: bounds.remove_linked(),
            bounds,
            pristine: patterns(&paths.pristine, &anchors),
            ledger: resolved(&std::path::absolute(cp_ledger::effect_path(context, "cp-exec.jsonl")?)?),
            actor: Actor {
                agent: context.agent(None),
                session,
                run: context.options.run.clone(),
                call: None,
                host: None,
                origin: context.origin(),
            },
            tools,
            governed: named.as_deref().map(Governed::of).transpose()?,
            modules: modules(root, &anchors).into(),
            cp_home: cp_home.clone(),
            links,
            base: anchors.base,
            is_of_server: false,
            loaded,
        })
    }

    /// Allows commands of this start to read a path, and to execute it if it is a program or a directory of programs.
    pub(crate) fn allow(&mut self, path: &Path, is_program: bool) {
        self.bounds.allow(Pattern::of_path(path), is_program);
    }

    /// Removes write access and the network.
    pub(crate) fn set_read_only(&mut self) {
        self.bounds.read_only = true;
        self.loaded.settings.exec.network = Network::default();
    }

    /// The directory that commands of the session, or else of the run, see as `/tmp`; `None` outside of both.
    pub(crate) fn session_tmp(&self) -> Option<PathBuf> {
        let Actor { session, run, .. } = &self.actor;
        let (kind, id) = session.as_ref().map(|id| ("session", id)).or(run.as_ref().map(|id| ("run", id)))?;
        let name = sha256(id.as_bytes()).replacen("sha256:", &format!("{kind}-"), 1);
        Some(self.cp_home.state("tmp").join(name))
    }

    pub(crate) fn exec(&self) -> &Exec {
        &self.loaded.settings.exec
    }

    /// The git of the machine, which reads repositories outside of the sandbox.
    pub(crate) fn git(&self) -> Option<PathBuf> {
        self.exec().path.iter().map(|directory| directory.join("git")).find(|git| git.is_file())
    }

    /// The hash of the policy's text, which tokens and entries are bound to.
    pub(crate) fn sha256(&self) -> &str {
        &self.loaded.sha256
    }

    /// The value of `~` as text.
    pub(crate) fn home_text(&self) -> Cow<'_, str> {
        self.loaded.home.to_string_lossy()
    }

    /// Expands a leading `~`.
    pub(crate) fn expand(&self, text: &str) -> String {
        expand(text, &self.home_text())
    }

    /// Expands the value of a variable that the policy sets: `~` is the home, and a leading `./` is the base.
    pub(crate) fn value(&self, text: &str) -> String {
        match text.strip_prefix("./") {
            Some(below) => self.base.join(below).display().to_string(),
            None => self.expand(text),
        }
    }

    /// The hint of a refusal that a setting would lift. It names who can change the setting, and does not ask the caller
    /// to change it. Without a policy, the hint is to create one.
    pub(crate) fn setting_hint(&self, setting: &str) -> String {
        match &self.loaded.file {
            None => "`cp-exec policy init` writes a policy that allows the programs of this machine; with --for DIR also what a project needs".to_owned(),
            Some(file) => {
                format!("only the owner of the policy can allow it ({setting}, in {})", file.display())
            }
        }
    }

    /// True if approvals are advisory, because the user who requests them can read the key that signs them.
    pub(crate) fn approvals_are_advisory(&self) -> bool {
        let owner = self.exec().confirm == Level::Owner || !self.loaded.settings.tools.approve.is_empty();
        owner && rustix::fs::access(self.cp_home.keys(), rustix::fs::Access::READ_OK).is_ok()
    }

    /// Refuses a base directory that would grant too much, unless the policy lists that directory by name. Also
    /// refuses hostile links.
    pub(crate) fn check_base(&self) -> Result<()> {
        // A forbidden or pristine path may not go through a link that a command could have created.
        let (written, mut kept) = (self.bounds.written(), self.bounds.forbidden.iter().chain(&self.pristine));
        kept.try_for_each(|pattern| pattern.check_links(&written))?;
        let base = &self.base;
        let paths = &self.loaded.settings.paths;
        let uses_base = paths.read.iter().chain(&paths.write).any(|text| text == "." || text == "./");
        let names_base =
            |pattern: &Pattern| pattern.text != "." && pattern.text != "./" && pattern.tree() == Some(base);
        if !uses_base || self.bounds.list(Access::Read).iter().any(names_base) {
            return Ok(());
        }
        check_project(base, &self.loaded.home, &self.cp_home).map_err(|error| {
            let setting = self.setting_hint("the directory by name in paths.read and paths.write");
            error.hint(format!("start in a project directory, or give --base DIR; {setting}"))
        })
    }

    /// True if a path lies in a directory of executable tools.
    pub(crate) fn is_tool(&self, path: &Path) -> bool {
        self.tools.iter().any(|tools| path.starts_with(tools))
    }

    /// True if a command could write a path that is not declared as executable.
    pub(crate) fn writable_only(&self, path: &Path) -> bool {
        self.bounds.is_written(path) && !self.bounds.lists(Access::Execute, path) && !self.is_tool(path)
    }

    /// Paths that are not granted because of a link, and patterns that the kernel does not enforce, as they are
    /// recorded.
    pub(crate) fn not_kernel_enforced(&self) -> Vec<String> {
        let missing = self.bounds.granting().filter_map(|pattern| {
            let Some(tree) = pattern.tree() else { return Some(format!("not_kernel_enforced: {}", pattern.text)) };
            let link = first_link(tree)?;
            Some(format!("not_granted: `{}` goes through the link {}", pattern.text, link.display()))
        });
        self.not_granted.iter().map(|why| format!("not_granted: {why}")).chain(missing).collect()
    }
}

/// Refuses a directory without links that is not a project.
pub(crate) fn check_project(directory: &Path, home: &Path, cp_home: &Home) -> Result<()> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if home.starts_with(directory) || cp_home.is_below(directory) {
        let message = format!("{} is not a project: it contains a home directory", directory.display());
        return Err(refuse("base", message).hint("change to the directory of a project, or give it"));
    }
    Ok(())
}
