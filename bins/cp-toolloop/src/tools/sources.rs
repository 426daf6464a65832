//! The sources of tools, and how tools are resolved: found, described, and filtered by `--allow`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::{Context, Error, Result};
use cp_mcp_wire::{Offer, Offers};

use crate::tools::catalogue::Catalogue;
use crate::tools::tool::{Allowed, Candidate};
use crate::tools::{builtin, description, find};

/// The sources of tools on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Directories, executables and JSON catalogues.
    pub(crate) places: Vec<PathBuf>,
    pub(crate) allowed: Allowed,
}

impl Sources {
    /// Resolves all tools, with those that servers offer. A file without a sidecar runs once with `--describe`, in the
    /// tightest sandbox.
    pub(crate) fn resolve(&self, offers: Offers, context: &Context) -> Result<Catalogue> {
        let mut found = Catalogue { allowed: self.allowed.clone(), ..Catalogue::default() };
        let mut candidates = Vec::new();
        for place in &self.places {
            candidates.extend(find::candidates(place, &mut found)?);
        }
        refuse_same_files(&candidates)?;
        // If a name is in several directories, the first directory is used.
        for link in candidates.iter().filter_map(|candidate| candidate.link.as_ref()) {
            found.directories.insert(0, find::write_link_script(link, context)?);
        }
        for candidate in &candidates {
            if let Some(link) = &candidate.link {
                found.add_directory(link.parent().unwrap_or(link));
            }
            found.add_directory(candidate.path.parent().unwrap_or(&candidate.path));
        }
        add_executables(&mut found, candidates, context)?;
        add_offers(&mut found, offers);
        builtin::all(&self.allowed, context)?.into_iter().for_each(|tool| found.add(tool));
        Ok(found)
    }
}

/// Adds the candidates that have a valid description.
fn add_executables(found: &mut Catalogue, candidates: Vec<Candidate>, context: &Context) -> Result<()> {
    let asked: Vec<String> =
        candidates.iter().filter(|candidate| candidate.described.is_none()).map(Candidate::file_name).collect();
    let mut answers = find::describe_files(&asked, &found.directories, context)?.into_iter();
    for candidate in candidates {
        let described = match &candidate.described {
            Some(described) => Ok(described.clone()),
            None => answers.next().unwrap_or_else(|| Err("it was not asked for its description".to_owned())),
        };
        match described.and_then(|text| description::of_candidate(&text, &candidate)) {
            Ok(tool) => found.add(tool),
            Err(why) => found.leave_out(candidate.path.display().to_string(), why),
        }
    }
    Ok(())
}

/// Adds the tools that servers offer. If a name is taken, the name of the server becomes its prefix.
fn add_offers(found: &mut Catalogue, Offers { servers, tools }: Offers) {
    for mut server in servers {
        if !server.error.is_null() {
            let failure = Error::from_value(&server.error);
            found.leave_out(format!("server {}", server.name), failure.message());
            found.failure.get_or_insert(failure);
            continue;
        }
        for (name, why, approval) in std::mem::take(&mut server.left_out) {
            let approval = approval.map(|id| format!("; `cp-exec approve {id}` shows and approves it"));
            found.leave_out(format!("{}: {name}", server.name), format!("{why}{}", approval.unwrap_or_default()));
        }
        let before = found.tools.len();
        let its: Vec<&Offer> = tools.iter().filter(|tool| tool.server == server.name).collect();
        for offer in &its {
            add_offer(found, offer, &its);
        }
        let instructions = server.instructions.take().filter(|_| found.tools.len() > before);
        found.instructions.extend(instructions.map(|text| (server.name.clone(), text)));
        found.servers.push(server);
    }
}

fn add_offer(found: &mut Catalogue, offer: &Offer, others: &[&Offer]) {
    let (server, own) = (&offer.server, &offer.name);
    let name = description::offered_name(own, others);
    let is_taken = builtin::NAMES.contains(&name.as_str()) || found.has(&name);
    let prefixed = description::offered_name(&format!("{server}_{name}"), &[]);
    let is_allowed = found.allowed.allows(&name) || found.allowed.allows(own);
    // `--allow` with the prefix means this tool even if its own name is free.
    let is_meant = !is_allowed && found.allowed.allows(&prefixed);
    let name = if is_meant || is_taken { prefixed } else { name };
    if !is_meant && !(is_allowed && (!is_taken || found.allowed.allows(&name))) {
        return;
    }
    match description::of_offer(name.clone(), offer) {
        Ok((tool, unchecked)) => {
            found.add_allowed(tool);
            let notice =
                |pattern| format!("{server}: {name}: the pattern {pattern} has a lookaround and is not checked");
            found.notices.extend(unchecked.into_iter().map(notice));
        }
        Err(why) => found.leave_out(format!("{server}: {own}"), why),
    }
}

/// Refuses two files of one name, because cp-exec finds a tool by the name of its file.
fn refuse_same_files(candidates: &[Candidate]) -> Result<()> {
    let mut seen: BTreeMap<String, &Path> = BTreeMap::new();
    for candidate in candidates {
        if let Some(other) = seen.insert(candidate.file_name(), &candidate.path).filter(|path| *path != candidate.path)
        {
            let name = candidate.file_name();
            return Err(Error::validation(format!("two tools are called {name}"))
                .with("files", vec![other.display().to_string(), candidate.path.display().to_string()])
                .hint("give --tools only one of the files, or rename one"));
        }
    }
    Ok(())
}
