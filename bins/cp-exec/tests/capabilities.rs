//! The capabilities of a module narrow the policy and never widen it.

use std::fs;

use serde_json::{Value, json};

use crate::exec::{Exec, POLICY, Who, everyone};

/// A home with a module, and a policy that lets commands work in all of its modules.
fn house(who: Who, capabilities: &Value) -> Exec {
    let exec = Exec::new(who);
    let modules = exec.home.join("modules");
    for directory in ["m/src", "m/out", "m/secret", "m/scripts", "shared", "plain"] {
        fs::create_dir_all(modules.join(directory)).unwrap();
    }
    for (name, text) in [
        ("m/src/a", "a"),
        ("m/secret/s", "hidden"),
        ("m/out/o", "o"),
        ("m/scripts/yes.py", "print('ran')\n"),
        ("m/src/no.py", "print('ran')\n"),
        ("shared/x", "shared"),
        ("plain/p", "p"),
    ] {
        fs::write(modules.join(name), text).unwrap();
    }
    let manifest =
        json!({"package_id": "PKG-M", "name": "m", "tier": "T1", "capabilities": capabilities, "metadata": {}});
    fs::write(modules.join("m/capabilities.json"), manifest.to_string()).unwrap();
    let all = modules.display();
    let paths = format!("\n[paths]\nread = [\"{all}\"]\nwrite = [\"{all}\"]\nexecute = [\"{all}\"]\n");
    let policy = POLICY.to_owned() + &paths;
    fs::write(exec.home.join("config/policy.toml"), policy).unwrap();
    exec
}

fn declared() -> Value {
    json!({
        "read": ["modules/m/src"],
        "write": ["modules/m/out/**", "elsewhere"],
        "execute": ["modules/m/scripts/*.py"],
        "forbidden": ["modules/m/secret"],
    })
}

/// Runs a script of Python in a directory of the modules, and gives what it printed.
fn say(exec: &Exec, directory: &str, script: &str, code: &str) -> Value {
    let modules = exec.home.join("modules");
    fs::write(modules.join("m/scripts").join(script), code).unwrap();
    fs::write(modules.join("plain").join(script), code).unwrap();
    let cwd = modules.join(directory);
    let script = modules.join(if directory == "plain" { "plain" } else { "m/scripts" }).join(script);
    exec.ask(&["--cwd", cwd.to_str().unwrap(), "--", "python3", script.to_str().unwrap()]).0
}

const PROBE: &str = include_str!("data/python/capabilities.py");

#[test]
fn module_capabilities_are_enforced_by_kernel() {
    cp_testkit::needs!("python3");
    for who in everyone() {
        let exec = house(who, &declared());
        let answer = say(&exec, "m", "probe.py", PROBE);
        let out = answer["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{who:?}: {answer}"));
        let expected = "can read_src\ncannot read_secret\ncannot read_shared\ncan write_out\ncannot write_src\ncannot write_shared\n";
        assert_eq!(out, expected, "{who:?}");
        // The control: outside the module the policy alone decides.
        let answer = say(&exec, "plain", "probe.py", PROBE);
        let out = answer["data"]["stdout"].as_str().unwrap_or_else(|| panic!("{who:?}: {answer}"));
        assert!(!out.contains("cannot"), "{who:?}: {out}");
    }
}

#[test]
fn capability_refusal_names_manifest() {
    cp_testkit::needs!("python3");
    let exec = house(Who::Me, &declared());
    let module = exec.home.join("modules/m");
    let check = |args: &[&str]| {
        let cwd = module.to_str().unwrap();
        exec.ask(&[&["check", "--cwd", cwd], args].concat()).0["data"].clone()
    };
    assert_eq!(check(&["--", "python3", "scripts/yes.py"])["decision"], "allow");
    for (words, path) in [
        (["python3", "src/no.py"], "execute on"),
        (["cat", "secret/s"], "read on"),
        (["python3", "../plain/p"], "execute on"),
    ] {
        let decision = check(&["--", words[0], words[1]]);
        assert_eq!(decision["decision"], "deny", "{decision}");
        let reason = decision["reason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("Capability denied: {path} ")), "{reason}");
    }
    let hint = check(&["--", "cat", "secret/s"])["hint"].clone();
    assert!(hint.as_str().unwrap().contains("capabilities.json"), "{hint}");
}

#[test]
fn file_operations_in_module_are_limited_by_capabilities() {
    let exec = house(Who::Me, &declared());
    let module = exec.home.join("modules/m");
    let ask = |operation: &str, path: &str| {
        let mut arguments = json!({"path": path, "content": "x"});
        if operation == "read_file" {
            arguments.as_object_mut().unwrap().remove("content");
        }
        exec.file(&["--base", module.to_str().unwrap()], operation, &arguments)
    };
    assert_eq!(ask("read_file", "src/a")["data"]["value"]["content"], "a");
    assert_eq!(ask("write_file", "out/new")["ok"], true);
    for (operation, path) in [("read_file", "../shared/x"), ("read_file", "secret/s"), ("write_file", "src/new")] {
        let answer = ask(operation, path);
        assert_eq!(answer["error"]["details"]["rule"], "capabilities", "{operation} {path}: {answer}");
    }
}

#[test]
fn manifest_without_lists_allows_nothing_and_never_widens() {
    cp_testkit::needs!("python3");
    // An empty list is no wildcard.
    let empty = house(Who::Me, &json!({}));
    let module = empty.home.join("modules/m");
    let cwd = module.to_str().unwrap();
    let decision = empty.ask(&["check", "--cwd", cwd, "--", "python3", "scripts/yes.py"]).0;
    assert_eq!(decision["data"]["rule"], "capabilities", "{decision}");
    // A manifest that cannot be read refuses everything in its module.
    fs::write(module.join("capabilities.json"), "{").unwrap();
    let decision = empty.ask(&["check", "--cwd", cwd, "--", "true"]).0;
    assert_eq!(decision["data"]["decision"], "deny", "{decision}");
    let wide = house(Who::Me, &json!({"read": ["/"], "write": ["/"], "execute": ["/"]}));
    let outside = wide.root.join("outside");
    fs::write(&outside, "x").unwrap();
    let code = format!("open({outside:?}).read()\n");
    let answer = say(&wide, "m", "probe.py", &code);
    assert_eq!(answer["error"]["code"], "E_COMMAND_FAILED", "{answer}");
}

#[test]
fn root_option_selects_other_modules() {
    cp_testkit::needs!("python3");
    let exec = house(Who::Me, &declared());
    let other = exec.root.join("other");
    fs::create_dir_all(other.join("modules")).unwrap();
    let cwd = exec.home.join("modules/m");
    let args =
        ["check", "--root", other.to_str().unwrap(), "--cwd", cwd.to_str().unwrap(), "--", "python3", "src/no.py"];
    assert_eq!(exec.ask(&args).0["data"]["decision"], "allow");
}
