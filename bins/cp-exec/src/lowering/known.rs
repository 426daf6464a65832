//! The variables whose values are certain at a place in the line, whatever the commands before it answer.

use std::collections::BTreeMap;
use std::rc::Rc;

/// What a line may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Environment<'a> {
    /// What `~` and `$HOME` stand for.
    pub home: &'a str,
    /// What `$PWD` stands for until the first `cd`.
    pub directory: &'a str,
    /// The variables that every command is given.
    pub variables: &'a BTreeMap<String, String>,
}

/// The variables that a line may use without giving them a value first.
const GIVEN: [&str; 6] = ["HOME", "LOGNAME", "PATH", "PWD", "TMPDIR", "USER"];

#[derive(Clone, PartialEq)]
struct Value {
    /// None if it depends on how a command ended.
    text: Option<String>,
    exported: bool,
}

/// The variables that the line itself has set.
type Names = Rc<BTreeMap<String, Value>>;

/// What is known at a place; none if nothing ever comes there.
#[derive(Clone, Default)]
pub(super) struct Known(Option<Names>);

/// What is found of a variable.
pub(super) enum Found<'a> {
    Certain(&'a str),
    /// It depends on how a command ended.
    Uncertain,
    /// A line may not use it.
    Unknown,
}

/// What words may refer to at a place.
#[derive(Clone, Copy)]
pub(super) struct Variables<'a> {
    pub known: &'a Known,
    pub environment: &'a Environment<'a>,
}

/// What is known after a step, if its status was zero and if it was not.
#[derive(Clone)]
pub(super) struct Outcome {
    pub zero: Known,
    pub other: Known,
}

impl Known {
    pub(super) fn at_start() -> Self {
        Self(Some(Names::default()))
    }

    /// The state after a step that ended in either way.
    pub(super) fn either(&self) -> Outcome {
        Outcome { zero: self.clone(), other: self.clone() }
    }

    pub(super) fn merged(&self, other: &Self) -> Self {
        let (Some(a), Some(b)) = (&self.0, &other.0) else {
            return if self.0.is_some() { self.clone() } else { other.clone() };
        };
        if a == b {
            return self.clone();
        }
        let names = a.keys().chain(b.keys()).map(|name| {
            let (left, right) = (a.get(name), b.get(name));
            let value = match (left, right) {
                (Some(value), Some(same)) if value == same => value.clone(),
                _ => Value { text: None, exported: [left, right].into_iter().flatten().any(|value| value.exported) },
            };
            (name.clone(), value)
        });
        Self(Some(Rc::new(names.collect())))
    }

    /// Gives a variable a value, or none where that is not certain.
    pub(super) fn set(&mut self, name: &str, text: Option<String>, exported: bool) {
        let Some(names) = &mut self.0 else { return };
        let names = Rc::make_mut(names);
        let exported = exported || names.get(name).is_some_and(|value| value.exported);
        names.insert(name.to_owned(), Value { text, exported });
    }

    /// A variable that commands are given with a value that is not certain.
    pub(super) fn uncertain(&self) -> Option<&str> {
        let names = self.0.as_ref()?;
        names.iter().find(|(_, value)| value.exported && value.text.is_none()).map(|(name, _)| name.as_str())
    }

    /// The variables that the line has set for the commands that follow.
    pub(super) fn exported(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.0.iter().flat_map(|names| names.iter());
        names
            .filter(|(_, value)| value.exported)
            .filter_map(|(name, value)| Some((name.as_str(), value.text.as_deref()?)))
    }
}

impl<'a> Variables<'a> {
    /// The value of a variable.
    pub(super) fn value(self, name: &str) -> Found<'a> {
        let Some(names) = &self.known.0 else { return Found::Uncertain };
        if let Some(value) = names.get(name) {
            return value.text.as_deref().map_or(Found::Uncertain, Found::Certain);
        }
        match name {
            "HOME" => Found::Certain(self.environment.home),
            "PWD" => Found::Certain(self.environment.directory),
            _ => {
                let given = self.environment.variables.get(name).filter(|_| GIVEN.contains(&name));
                given.map_or(Found::Unknown, |value| Found::Certain(value))
            }
        }
    }

    /// What `~` stands for, where that is certain.
    pub(super) fn home(self) -> Option<&'a str> {
        match self.value("HOME") {
            Found::Certain(home) => Some(home),
            Found::Uncertain | Found::Unknown => None,
        }
    }
}
