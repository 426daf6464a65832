//! `--fields a,b.c`: only the members that were asked for, in their own order.

use serde_json::{Map, Value};

use crate::spelling::nearest;
use crate::wire::{Error, Result};

/// Checks the names against the members that a closed object has. Below an open one every name is possible.
pub fn check(fields: &[String], known: &[&str]) -> Result<()> {
    for field in fields {
        let first = field.split('.').next().unwrap_or_default();
        if !known.contains(&first) {
            let error = Error::usage(format!("no field `{first}`")).with("known", known.to_vec());
            return Err(match nearest(first, known.iter().copied()) {
                Some(near) => error.hint(format!("did you mean `{near}`? there are {}", known.join(", "))),
                None => error.hint(format!("there are {}", known.join(", "))),
            });
        }
    }
    Ok(())
}

/// Keeps the members that the dotted names lead to. No names: everything.
pub fn project(value: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return value;
    }
    let mut kept = Value::Object(Map::new());
    for field in fields {
        let path: Vec<&str> = field.split('.').collect();
        if let Some(found) = lookup(&value, &path) {
            insert(&mut kept, &path, found.clone());
        }
    }
    kept
}

fn lookup<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |here, name| here.get(name))
}

fn insert(into: &mut Value, path: &[&str], found: Value) {
    let (Value::Object(members), [name, rest @ ..]) = (into, path) else { return };
    if rest.is_empty() {
        members.insert((*name).to_owned(), found);
    } else {
        insert(members.entry(*name).or_insert_with(|| Value::Object(Map::new())), rest, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(fields: &[&str]) -> Vec<String> {
        fields.iter().map(|f| (*f).to_owned()).collect()
    }

    #[test]
    fn dotted_names_keep_the_nesting() {
        let value = json!({"a":1,"b":{"c":2,"d":3},"e":4});
        assert_eq!(project(value, &names(&["b.c", "a", "b.d", "b.zzz"])), json!({"b":{"c":2,"d":3},"a":1}));
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_known_ones() {
        let e = check(&names(&["sec"]), &["seq", "ts"]).unwrap_err();
        assert!(e.hint_text().unwrap().contains("`seq`"));
        assert!(check(&names(&["data.x"]), &["data"]).is_ok());
    }
}
