//! The policy of one server: the policy of the home, with its command, and the network and variables of its table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::home::{Home, resolved};
use serde::de::DeserializeOwned;

use crate::policy::{Policy, Spec};

/// The policy for this server: the same paths, programs and limits, its own network and variables. The programs that it
/// starts run in its sandbox.
pub(crate) fn narrowed(policy: &Policy, spec: &Spec, home: &Home) -> String {
    let Spec { argv, table, .. } = spec;
    let program = argv.first().cloned().unwrap_or_default();
    let Policy { mut exec, mut paths, project: mut projects, .. } = policy.clone();
    exec.remove("env_allow");
    let mut env: BTreeMap<String, String> = taken(&mut exec, "env_set").unwrap_or_default();
    env.extend(table.env.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))));
    let env: toml::Table = env.into_iter().map(|(name, value)| (name, policy.expanded(&value).into())).collect();
    let mut allowed: Vec<String> = taken(&mut exec, "allowed_commands").unwrap_or_default();
    allowed.push(program.clone());
    let network = toml::Value::try_from(&table.network).unwrap_or_else(|_| toml::Value::Array(Vec::new()));
    let intent = toml::Value::from("off");
    let own = [("network", network), ("intent", intent), ("allowed_commands", allowed.into()), ("env_set", env.into())];
    exec.extend(own.map(|(key, value)| (key.to_owned(), value)));

    let its_own = argv.iter().filter_map(|word| program_files(word, home));
    let read = table.read.iter().chain(&table.write).cloned().chain(its_own).collect();
    let forbidden = home.private().map(|part| format!("{}/**", part.display())).collect();
    for (key, absent, more) in [
        ("read", Some("."), read),
        ("write", Some("."), table.write.clone()),
        ("execute", None, vec![program]),
        ("forbidden", None, forbidden),
    ] {
        let listed: Option<Vec<String>> = taken(&mut paths, key);
        let mut all = listed.unwrap_or_else(|| absent.map(str::to_owned).into_iter().collect());
        all.extend(more);
        let all: Vec<toml::Value> = all.into_iter().map(|path| policy.expanded(&path).into()).collect();
        paths.insert(key.to_owned(), all.into());
    }
    // A server has a network of its own.
    for (_, project) in &mut projects {
        project.as_table_mut().and_then(|project| project.remove("network"));
    }
    let whole = [("exec", exec), ("paths", paths), ("project", projects)];
    toml::to_string(&BTreeMap::from(whole)).unwrap_or_default()
}

fn taken<T: DeserializeOwned>(table: &mut toml::Table, key: &str) -> Option<T> {
    table.remove(key)?.try_into().ok()
}

/// The directory of the file that a word of a command names, which the server may read.
fn program_files(word: &str, home: &Home) -> Option<String> {
    let path = Path::new(word);
    if !path.is_absolute() || !path.is_file() {
        return None;
    }
    let modules = path.ancestors().filter(|place| place.file_name().is_some_and(|name| name == "node_modules")).last();
    let beside = path.parent()?;
    let above = beside.parent().filter(|_| beside.file_name().is_some_and(|name| name == "bin"));
    let root = modules.or(above).unwrap_or(beside);
    // A user's home directory, and the parent of our keys, are not readable.
    let person = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let is_too_much = root.parent().is_none() || root == person || home.resolved().is_below(&resolved(root));
    Some(if is_too_much { path } else { root }.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowed_policy_has_programs_and_paths_of_policy_and_network_of_table() {
        let policy: Policy = toml::from_str(
            "[exec]\nallowed_commands = [\"git\", \"rm\"]\nrestricted_commands = [\"dd\"]\ntimeout = 5\nnetwork = \"host\"\n\
             [[exec.rule]]\ncommand = \"x\"\ndecision = \"deny\"\nmatch = [\"x a\"]\n\
             [paths]\nread = [\".\", \"~/a \\\"b\\\"\"]\nforbidden = [\"**/.env\"]\n\
             [mcp.s]\nnetwork = \"loopback\"\nwrite = [\"/data\"]\n",
        )
        .unwrap();
        let argv = vec!["/opt/x/server".to_owned(), "--all".to_owned()];
        let spec = Spec { argv, table: policy.table("s"), ..Spec::default() };
        let text = narrowed(&policy, &spec, &Home::find(Some(Path::new("/home/me/cp"))).unwrap());
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        let list = |section: &str, key: &str| -> Vec<String> { parsed[section][key].clone().try_into().unwrap() };
        assert_eq!(list("exec", "allowed_commands"), ["git", "rm", "/opt/x/server"]);
        assert_eq!(list("exec", "restricted_commands"), ["dd"]);
        assert_eq!(parsed["exec"]["network"].as_str(), Some("loopback"));
        assert_eq!(parsed["exec"]["rule"][0]["match"][0].as_str(), Some("x a"));
        assert_eq!(list("paths", "read"), [".", "~/a \"b\"", "/data"]);
        assert_eq!(list("paths", "write"), [".", "/data"]);
        assert_eq!(list("paths", "execute"), ["/opt/x/server"]);
        let forbidden = list("paths", "forbidden");
        assert!(forbidden.contains(&"**/.env".to_owned()) && forbidden.contains(&"/home/me/cp/keys/**".to_owned()));
        assert!(parsed.get("mcp").is_none());
    }

    #[test]
    fn tilde_of_other_owner_is_expanded() {
        let mut policy: Policy = toml::from_str("[paths]\nread = [\"~/a\", \"~b\"]\n").unwrap();
        policy.tilde = Some("/root".to_owned());
        let text = narrowed(&policy, &Spec::default(), &Home::find(Some(Path::new("/home/me/cp"))).unwrap());
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        let read: Vec<String> = parsed["paths"]["read"].clone().try_into().unwrap();
        assert_eq!(read[..2], ["/root/a", "~b"]);
    }

    #[test]
    fn command_file_makes_its_package_readable_but_not_our_home() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let directory = root.join("data/cp");
        let home = Home::find(Some(&directory)).unwrap();
        let named = |below: &str| {
            let file = root.join(below);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            program_files(file.to_str().unwrap(), &home)
        };
        let at = |below: &str| Some(root.join(below).display().to_string());
        assert_eq!(named("p/node_modules/@a/b/node_modules/c/i.js"), at("p/node_modules"));
        assert_eq!(named("venv/bin/server"), at("venv"));
        assert_eq!(named("s/server.py"), at("s"));
        std::fs::create_dir_all(&directory).unwrap();
        assert_eq!(named("data/server.py"), at("data/server.py"));
        assert_eq!(named("bin/server"), at("bin/server"), "what is above holds the home");
        assert_eq!((program_files("server.py", &home), program_files("/nowhere/x", &home)), (None, None));
    }
}
