//! The rules of a host over commands, in the files where its user and a project write them.

use std::fs;
use std::path::Path;

use cp_hosts::Host;
use serde_json::Value;

/// Returns one line for each rule that denies commands or asks about them.
pub(crate) fn rules_of(host: Host, project: &Path, home: &Path) -> Vec<String> {
    let directories = [host.directory(None, home), host.directory(Some(project), home)];
    let mut rules = Vec::new();
    for directory in directories {
        let mut of_json = |name: &str, parse: fn(&Value) -> Vec<String>| {
            // The directory itself need not exist.
            let beside = name.strip_prefix("../").map(|name| directory.with_file_name(name));
            let file = beside.unwrap_or_else(|| directory.join(name));
            let text = fs::read_to_string(&file).unwrap_or_default();
            let value = serde_json::from_str(text.trim_start_matches(super::BYTE_ORDER_MARK)).unwrap_or_default();
            rules.extend(parse(&value).into_iter().map(|rule| format!("{rule} ({})", file.display())));
        };
        match host {
            Host::Claude => {
                of_json("settings.json", of_claude);
                of_json("settings.local.json", of_claude);
            }
            Host::Gemini => of_json("settings.json", of_gemini),
            Host::Opencode => {
                of_json("opencode.json", of_opencode);
                of_json("../opencode.json", of_opencode);
            }
            Host::Codex => rules.extend(of_codex(&directory.join("rules"))),
            // Its rules are options of the command line.
            Host::Copilot => {}
        }
    }
    rules
}

fn of_claude(settings: &Value) -> Vec<String> {
    let rules = ["deny", "ask"].map(|list| tools(&settings["permissions"][list], list, "Bash"));
    rules.concat()
}

fn of_gemini(settings: &Value) -> Vec<String> {
    tools(&settings["tools"]["exclude"], "exclude", "run_shell_command")
}

/// The entries `TOOL` and `TOOL(PATTERN)` of a list.
fn tools(list: &Value, name: &str, tool: &str) -> Vec<String> {
    let entries = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    let about = entries.filter(|entry| entry.split('(').next() == Some(tool));
    about.map(|entry| format!("{name} `{entry}`")).collect()
}

/// `permission` is a decision, or a table; its member `bash` is a decision or a table of patterns.
fn of_opencode(settings: &Value) -> Vec<String> {
    let bash = settings["permission"].get("bash").unwrap_or(&settings["permission"]);
    let decided = |pattern: &str, decision: &Value| {
        let decision = decision.as_str().filter(|decision| *decision != "allow")?;
        Some(format!("{decision} `{pattern}`"))
    };
    match bash {
        Value::Object(patterns) => {
            patterns.iter().filter_map(|(pattern, decision)| decided(pattern, decision)).collect()
        }
        decision => decided("*", decision).into_iter().collect(),
    }
}

/// The calls of `prefix_rule` that do not allow.
fn of_codex(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut rules = Vec::new();
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "rules")) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
        let calls = lines.join(" ");
        let calls = calls.split("prefix_rule(").skip(1);
        let denying = calls.filter(|call| call.contains("\"forbidden\"") || call.contains("\"prompt\""));
        rules.extend(denying.map(|call| format!("`prefix_rule({}` ({})", call.trim(), file.display())));
    }
    rules
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_deny_or_ask_are_listed_for_each_host() {
        let home = tempfile::tempdir().unwrap();
        let (home, project) = (home.path(), home.path().join("p"));
        let write = |name: &str, text: &str| {
            fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
            fs::write(home.join(name), text).unwrap();
        };
        let lists =
            json!({"permissions": {"deny": ["Bash(git status:*)", "Read(x)"], "ask": ["Bash"], "allow": ["Bash(ls)"]}});
        write(".claude/settings.json", &format!("\u{feff}{lists}"));
        write(
            ".gemini/settings.json",
            &json!({"tools": {"exclude": ["run_shell_command(rm)", "web_fetch"]}}).to_string(),
        );
        write(
            "p/.codex/rules/a.rules",
            "# prefix_rule(\"forbidden\")\nprefix_rule(\n  pattern = [\"rm\"],\n  decision = \"forbidden\",\n)\nprefix_rule(pattern=[\"ls\"])\n",
        );
        write("p/opencode.json", &json!({"permission": {"bash": {"*": "allow", "git push *": "deny"}}}).to_string());
        write(".config/opencode/opencode.json", &json!({"permission": "ask"}).to_string());
        let rules = |host| {
            let rules = rules_of(host, &project, home);
            rules.iter().map(|rule| rule.rsplit_once(" (").unwrap().0.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(rules(Host::Claude), ["deny `Bash(git status:*)`", "ask `Bash`"]);
        assert_eq!(rules(Host::Gemini), ["exclude `run_shell_command(rm)`"]);
        assert_eq!(rules(Host::Codex), ["`prefix_rule(pattern = [\"rm\"], decision = \"forbidden\", )`"]);
        assert_eq!(rules(Host::Opencode), ["ask `*`", "deny `git push *`"]);
        assert_eq!(rules(Host::Copilot), Vec::<String>::new());
    }
}
