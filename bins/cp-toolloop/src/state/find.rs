//! Which run is meant: by its id, a unique beginning of one, its name, or the path of its ledger.

use std::path::PathBuf;

use cp_common::{Code, Context, Error, Result};

use crate::state::files::RunFiles;
use crate::state::summary::begin;

impl RunFiles {
    /// The run that is meant. Of several that had one name it is the one that is not over, else the newest.
    pub(crate) fn find(named: &str, context: &Context) -> Result<Self> {
        let missing =
            || Error::not_found(format!("no run `{named}`")).with("run", named).hint("`cp-toolloop runs` lists them");
        if named.contains('/') {
            let ledger = PathBuf::from(named);
            let run = ledger.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let files = Self { run, ledger };
            return if files.ledger.is_file() || files.state().is_file() { Ok(files) } else { Err(missing()) };
        }
        let all = Self::all(context);
        if let Some(exact) = all.iter().find(|files| files.run == named) {
            return Ok(exact.clone());
        }
        let mut found: Vec<&Self> = all.iter().filter(|files| files.run.starts_with(named)).collect();
        match found.len() {
            0 => Self::of_name(named, all).ok_or_else(missing),
            1 if !named.is_empty() => Ok(found.remove(0).clone()),
            1 => Err(missing()),
            many => Err(Error::usage(format!("`{named}` matches {many} runs")).hint("give more of the id")),
        }
    }

    /// Refuses a name that a run has that is not over: it could not be said which one is meant.
    pub(crate) fn check_free(name: &str, context: &Context) -> Result<()> {
        match Self::of_name(name, Self::all(context)).filter(|files| files.state().exists()) {
            None => Ok(()),
            Some(files) => Err(Error::new(Code::Conflict, format!("the run `{name}` is not over"))
                .with("run_id", files.run.as_str())
                .hint(format!("`cp-toolloop resume {name}` goes on with it, `cp-toolloop cancel {name}` ends it"))),
        }
    }

    fn of_name(name: &str, all: Vec<Self>) -> Option<Self> {
        let begun = all.into_iter().filter_map(|files| Some((begin(&files).ok()?, files)));
        let named = begun.filter(|(begin, _)| begin.name.as_deref() == Some(name));
        named.max_by_key(|(begin, files)| (files.state().exists(), begin.at.clone())).map(|(_, files)| files)
    }
}
