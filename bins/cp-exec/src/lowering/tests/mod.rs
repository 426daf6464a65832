mod commands;
mod differential;
mod lines;

use std::collections::BTreeMap;

use super::*;

fn lowered(text: &str) -> String {
    let variables = BTreeMap::from([("USER".to_owned(), "ann".to_owned())]);
    let environment = Environment { home: "/the/home", directory: "/the/work", variables: &variables };
    match lower(text, &environment) {
        Ok(lowered) => serde_json::to_string(&lowered.steps).unwrap(),
        Err(refusal) => format!("{} {}: {}", refusal.rule.name(), refusal.offset, refusal.reason),
    }
}

#[test]
fn shown() {
    for line in [
        "ls -la",
        "cd src && grep -rn \"TODO\" --include=\"*.py\" . | sort | head -5 2>/dev/null",
        "cat > notes.txt <<'EOF'\nhello $x\nEOF\nls",
        "ls *.md; rm -rf ~/x",
        "( cd a; ls ) || { echo no; exit 1; }",
        "export A=1 B='x y' && env",
        "A=1; echo $A \"$A b\"",
        "false && A=1; echo $A",
        "x && export A=1; ls",
        "echo {a,b}{1..3}",
        "cat <<EOF | wc\n$HOME \\$x `a`\nEOF",
        "cat <<EOF | wc\n$HOME \\$x\nEOF",
        "a |& b",
        "a > f 2>&1",
        "a &>f",
        "3>f",
        "if x; then y; fi",
        "a &",
        "pwd",
        "test -f x && [ -d y ]",
        "a=(1)",
        "f() { x; }",
        "echo $(x)",
        "ls [a-c]*",
        "find . -name '*.py' -exec grep x {} \\;",
        "echo \"$?\" x$?",
        "command -v git >/dev/null 2>&1",
        "cd x 2>/dev/null || exit 1",
        "echo a=~/x",
        "time ls",
        "! ls",
        "ls;;",
        "ls &&",
        "((1))",
        "> f",
        ": > f",
        "cat <<< \"$USER x\"",
        "a\n\n# hi\nb # x\n",
        "~/x/y ~",
        "kill -9 123",
        "printf '%s\\n' a",
    ] {
        println!("{line:?}\n    {}", lowered(line));
    }
    let steps: Vec<steps::Step> = serde_json::from_str(r#"[{"join":"start","pipeline":[{"argv":["a",[{"glob":"*"},"status"]],"redirects":[{"fd":1,"op":"write","path":"f"}]}]},{"join":"and","cd":"x"}]"#).unwrap();
    println!("{steps:?}");
    println!("{:?}", serde_json::from_str::<steps::Step>(r#"{"join":"start","cd":"x","more":1}"#));
    println!("{:?}", serde_json::from_str::<steps::Step>(r#"{"join":"start","cd":"x","exit":"1"}"#));
}
