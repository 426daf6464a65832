//! The input of a call in the forms in which a host may give it to its hook.

use std::path::Path;

use serde_json::Value;

use crate::transcript::{Call, Members, hash_of};

/// The most members of an input whose orders are tried.
const MEMBERS: usize = 6;

/// The members with a path that a host makes absolute.
const PATHS: [&str; 3] = ["file_path", "notebook_path", "path"];

/// True if a hash is over the input of a call as its host normalizes it: with members in another order, without members of a default value,
/// or with absolute paths.
pub(super) fn is_same_input(call: &Call, hash: &str) -> bool {
    let members: Vec<(&String, Value)> =
        call.input.iter().map(|(name, value)| (name, absolute(name, value, call.cwd.as_deref()))).collect();
    members.len() <= MEMBERS && any_order(&members, &mut Members::new(), hash)
}

fn absolute(name: &str, value: &Value, cwd: Option<&Path>) -> Value {
    match (value.as_str(), cwd) {
        (Some(path), Some(cwd)) if PATHS.contains(&name) => cwd.join(path).display().to_string().into(),
        _ => value.clone(),
    }
}

/// Tries each order of the members that are left, after those that were chosen.
fn any_order(left: &[(&String, Value)], chosen: &mut Members, hash: &str) -> bool {
    let is_default = |value: &Value| value.is_null() || *value == Value::Bool(false);
    if left.iter().all(|(_, value)| is_default(value)) && hash_of(&Value::Object(chosen.clone())) == hash {
        return true;
    }
    (0..left.len()).any(|index| {
        let (name, value) = left[index].clone();
        let rest: Vec<_> =
            left.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, each)| each.clone()).collect();
        chosen.insert(name.clone(), value);
        let found = any_order(&rest, chosen, hash);
        chosen.shift_remove(name);
        found
    })
}
