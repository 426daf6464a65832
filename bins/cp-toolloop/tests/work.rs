//! A model that does the work in a project: it looks, changes a file, is refused once, asks once and tests. Whatever
//! ends it, it goes on, and all of it can be undone.

use cp_testkit::{Outcome, Program, Sweep, pytest_environment, required};
use serde_json::{Value, json};

use crate::toolloop::{Results, ToolLoop};

/// A project with a failing test, in a repository.
struct Project {
    files: &'static [(&'static str, &'static str)],
    /// The file with the mistake, the mistake, and what it should be.
    edit: (&'static str, &'static str, &'static str),
    test: &'static str,
    /// What the test says when it passes.
    passes: &'static str,
}

const PYTHON: Project = Project {
    files: &[
        ("prices.py", "RATE = 3\n\n\ndef price(n):\n    return n * RATE\n"),
        ("test_prices.py", "from prices import price\n\n\ndef test_price():\n    assert price(21) == 42\n"),
    ],
    // The length differs, because Python takes its compiled file for current while the second and the length are the
    // same.
    edit: ("prices.py", "RATE = 3", "RATE = 2.0"),
    test: "pytest -q -p no:cacheprovider",
    passes: "1 passed",
};

/// The same without pytest, which takes its time.
const SCRIPT: Project = Project {
    files: &[("main.py", "RATE = 3\nassert 21 * RATE == 42\nprint('it passes')\n")],
    edit: ("main.py", "RATE = 3", "RATE = 2"),
    test: "python3 main.py",
    passes: "it passes",
};

const NODE: Project = Project {
    files: &[
        ("package.json", r#"{"name":"a","version":"1.0.0","scripts":{"test":"node --test"}}"#),
        ("price.js", "exports.price = n => n * 3\n"),
        (
            "price.test.js",
            "require('node:test')('price', () => require('node:assert').equal(require('./price').price(21), 42))\n",
        ),
    ],
    edit: ("price.js", "n * 3", "n * 2"),
    test: "npm test",
    passes: "pass 1",
};

const CARGO: Project = Project {
    files: &[
        ("Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n"),
        (
            "src/lib.rs",
            "pub fn price(n: u32) -> u32 {\n    n * 3\n}\n\n#[test]\nfn it_is_right() {\n    assert_eq!(price(21), 42);\n}\n",
        ),
        (".gitignore", "target\nCargo.lock\n"),
    ],
    edit: ("src/lib.rs", "n * 3", "n * 2"),
    test: "cargo test",
    passes: "1 passed",
};

impl Project {
    /// The project with its policy and the model's script. The variables are those of everything that runs there.
    fn begin(&self, variables: &[(&str, &str)]) -> ToolLoop {
        let place = ToolLoop::new();
        for (name, text) in self.files {
            place.work.write(name, text);
        }
        place.work.write("NOTES", "first\n");
        let (path, old, new) = self.edit;
        let file = |input: Value| json!({"tool_calls": [{"name": "filesystem", "input": input}]});
        let shell = |command: &str| json!({"tool_calls": [{"name": "shell", "input": {"command": command}}]});
        let script = [
            file(json!({"operation": "list_directory", "path": "."})),
            json!({"tool_calls": [{"name": "bash", "input": {"command": "find . -type f"}}]}),
            shell("mkfs zeros"),
            shell(self.test),
            file(json!({"operation": "read_file", "path": path, "line": 1, "lines": 20})),
            file(json!({"operation": "edit_file", "path": path, "old": old, "new": new})),
            file(json!({"operation": "write_file", "path": "NOTES", "content": "second\n", "mode": "overwrite"})),
            shell(self.test),
            json!({"content": "The test passes."}),
        ];
        place.script(&script.map(|line| line.to_string()).iter().map(String::as_str).collect::<Vec<_>>());
        let begin = "git init -q . && printf '__pycache__\\n' >.git/info/exclude && git add -A && \
                     git -c user.name=n -c user.email=n@example.org commit -qm first && cp-exec policy init --for .";
        with(place.shell("sh", begin), variables).run().success();
        place
    }

    fn run(&self, place: &ToolLoop, variables: &[(&str, &str)]) {
        let done = with(place.command(&["Fix the failing test"]), variables).run();
        assert_eq!(done.status, 0, "{done:?}");
        let before = done.results();
        assert!(before[1].contains(self.edit.0) && before[2].contains("no policy can allow it"), "{before:#?}");
        assert!(!before[3].contains(self.passes) && before[4].contains(self.edit.1), "{before:#?}");
        assert!(done.results().last().unwrap().contains(self.passes), "{done:?}");
        assert_eq!(place.written("NOTES"), "second\n");
        undone(place, &newest(place));
    }
}

fn with(program: Program, variables: &[(&str, &str)]) -> Program {
    variables.iter().fold(program, |program, (name, value)| program.env(name, value))
}

fn newest(place: &ToolLoop) -> String {
    let runs = place.run(&["runs"]).closing();
    runs["data"]["items"][0]["id"].as_str().unwrap().to_owned()
}

/// Undoes a run: the files of the repository are as they were.
fn undone(place: &ToolLoop, run: &str) {
    place.run(&["undo", run]).success();
    place.shell("sh", "git diff --exit-code && test -z \"$(git status --porcelain)\"").run().success();
}

#[test]
fn pytest_project_is_fixed_and_undone() {
    let Some(environment) = pytest_environment() else { return };
    let variables = [("VIRTUAL_ENV", environment.to_str().unwrap())];
    PYTHON.run(&PYTHON.begin(&variables), &variables);
}

#[test]
fn npm_project_is_fixed_and_undone() {
    cp_testkit::needs!("npm");
    NODE.run(&NODE.begin(&[]), &[]);
}

#[test]
fn cargo_project_is_fixed_and_undone() {
    let home = std::env::var("HOME").unwrap_or_default();
    if !required("a toolchain of rustup in the home", std::path::Path::new(&home).join(".cargo/bin/cargo").exists()) {
        return;
    }
    let variables = [("HOME", home.as_str())];
    CARGO.run(&CARGO.begin(&variables), &variables);
}

/// Resumes a run until it ends. A person checks if a started call had its effect.
fn finish(place: &ToolLoop, run: &str) -> Outcome {
    let mut words = vec!["resume".to_owned(), run.to_owned(), "--approver".to_owned(), "/bin/true".to_owned()];
    for _ in 0..6 {
        let ran = place.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        if ran.status != 9 {
            return ran;
        }
        let call = &ran.error()["details"]["call"];
        let input = &call["input"];
        let text = place.written(input["path"].as_str().unwrap_or("none"));
        let done = input["new"].as_str().or(input["content"].as_str()).is_some_and(|new| text.contains(new));
        let answer = if done { "--deny" } else { "--approve" };
        words.truncate(4);
        words.extend([answer.to_owned(), call["id"].as_str().unwrap().to_owned()]);
    }
    panic!("the run does not end");
}

#[test]
fn run_killed_anywhere_is_finished_and_undoable() {
    let place = SCRIPT.begin(&[]);
    let script = place.root.join("script").display().to_string();
    let line = ["--backend", "stub", "--stub-script", &script, "--approver", "/bin/true", "--", "Fix the failing test"];
    Sweep::new(&place, &line).dies_alone().run(|_, fault| {
        let listed = place.run(&["runs"]);
        let Some(run) = listed.closing()["data"]["items"][0]["id"].as_str().map(str::to_owned) else { return };
        let done = finish(&place, &run);
        let is_over = done.error()["code"] == "E_CONFLICT";
        assert!(done.status == 0 || is_over, "{fault}: {done:?}");
        assert_eq!(
            (place.written("main.py").as_str(), place.written("NOTES").as_str()),
            ("RATE = 2\nassert 21 * RATE == 42\nprint('it passes')\n", "second\n"),
            "{fault}"
        );
        undone(&place, &run);
    });
}
