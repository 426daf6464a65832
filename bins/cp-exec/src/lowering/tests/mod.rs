mod commands;
mod differential;
mod lines;
mod programs;

use std::collections::BTreeMap;

use super::*;

/// The steps of a line, or the rule that it breaks and where.
fn lowered(text: &str) -> String {
    let variables = BTreeMap::from([("USER".to_owned(), "ann".to_owned())]);
    let environment = Environment { home: "/the/home", directory: "/the/work", variables: &variables };
    match lower(text, &environment) {
        Ok(lowered) => serde_json::to_string(&lowered.steps).unwrap(),
        Err(refusal) => format!("{} {}", refusal.rule.name(), refusal.offset),
    }
}

#[test]
fn a_line_becomes_steps() {
    let cases = [
        ("ls -la", r#"[{"join":"start","pipeline":[{"argv":["ls","-la"]}]}]"#),
        (
            "cd src && grep x . | sort 2>&1 >>f",
            r#"[{"join":"start","cd":"src"},{"join":"and","pipeline":[{"argv":["grep","x","."]},{"argv":["sort"],"redirects":[{"fd":2,"op":"dup","to":1},{"fd":1,"op":"append","path":"f"}]}]}]"#,
        ),
        (
            "cat > n <<'EOF'\nhi $x\nEOF\nls *.md",
            r#"[{"join":"start","pipeline":[{"argv":["cat"],"redirects":[{"fd":1,"op":"write","path":"n"},{"fd":0,"op":"text","text":"hi $x\n"}]}]},{"join":"then","pipeline":[{"argv":["ls",[{"glob":"*"},{"text":".md"}]]}]}]"#,
        ),
        (
            "( a; b ) || { ! c \"$?\"; exit 1; }",
            r#"[{"join":"start","group":[{"join":"start","pipeline":[{"argv":["a"]}]},{"join":"then","pipeline":[{"argv":["b"]}]}]},{"join":"or","block":[{"join":"start","negated":true,"pipeline":[{"argv":["c",["status"]]}]},{"join":"then","exit":"1"}]}]"#,
        ),
        (
            "export A=1 && B=2 env > x",
            r#"[{"join":"start","pipeline":[{"argv":[],"env":{"A":"1"}}]},{"join":"and","pipeline":[{"argv":["env"],"env":{"A":"1","B":"2"},"redirects":[{"fd":1,"op":"write","path":"x"}]}]}]"#,
        ),
        ("pwd", r#"[{"join":"start","pipeline":[{"argv":["pwd","-L"]}]}]"#),
        ("command -v git", r#"[{"join":"start","pipeline":[{"argv":["which","git"]}]}]"#),
        (
            "git commit -m \"$(cat <<'EOF'\na b\n\n`c` $d\nEOF\n)\"",
            r#"[{"join":"start","pipeline":[{"argv":["git","commit","-m","a b\n\n`c` $d"]}]}]"#,
        ),
    ];
    for (line, steps) in cases {
        assert_eq!(lowered(line), steps, "{line}");
        let read: Vec<steps::Step> = serde_json::from_str(steps).unwrap();
        assert_eq!((serde_json::to_string(&read).unwrap().as_str(), check(&read)), (steps, Ok(())), "{line}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_its_place() {
    let cases = [
        ("", "empty 0"),
        ("a 'x", "unterminated_quote 2"),
        ("a \\", "trailing_backslash 2"),
        ("a\0", "nul_byte 1"),
        ("a # \u{1b}", "control_char 4"),
        ("cat <<E\nx", "here_document 6"),
        ("a &&", "syntax 4"),
        ("a; ; b", "syntax 3"),
        ("(a", "syntax 2"),
        ("a )", "syntax 2"),
        ("a;&b", "syntax 1"),
        ("> 2>f", "syntax 2"),
        ("echo $(x)", "command_substitution 5"),
        ("echo `x`", "command_substitution 5"),
        ("echo \"$(cat <<'E'\nE)\"", "command_substitution 6"),
        ("diff <(a) b", "process_substitution 5"),
        ("echo $((3 + 4))", "arithmetic 5"),
        ("((1))", "arithmetic 0"),
        ("echo $X", "variable 5"),
        ("echo ${HOME:-x}", "variable 5"),
        ("A='a b'; echo $A", "variable 14"),
        ("a && A=1; echo $A", "uncertain_variable 15"),
        ("a && export A=1; b", "uncertain_variable 17"),
        ("A+=1 b", "assignment 0"),
        ("IFS=x; b", "assignment 0"),
        ("sleep 1 &", "background 8"),
        ("if a; then b; fi", "compound_command 0"),
        ("for f in a; do b; done", "compound_command 0"),
        ("[[ a ]]", "compound_command 0"),
        ("f() { a; }", "function 1"),
        ("source x", "builtin 0"),
        ("kill %1", "builtin 0"),
        ("cd /tmp; pwd; cd -", "builtin 14"),
        ("cd src*", "builtin 0"),
        ("na\\\nme[1", "assignment 0"),
        ("pushd a && b", "builtin 0"),
        ("set -e; a", "builtin 0"),
        ("echo --help", "builtin 0"),
        ("test a -a b", "builtin 0"),
        ("a 3>f", "redirection 2"),
        ("a 2>&-", "redirection 2"),
        ("(a) > f", "group 4"),
        ("a | cd b", "group 8"),
        ("{ a; } | b", "group 7"),
        ("echo {01..3}", "brace_expansion 5"),
        ("a > *.txt", "pattern 4"),
        ("[b]x", "pattern 0"),
        ("ls ~root", "tilde 3"),
        ("echo $'\\c1'", "escape 7"),
    ];
    for (line, refusal) in cases {
        assert_eq!(lowered(line), refusal, "{line}");
    }
}

#[test]
fn a_refusal_says_what_was_understood_and_where_it_stands() {
    let variables = BTreeMap::new();
    let environment = Environment { home: "/h", directory: "/w", variables: &variables };
    let refusal = *lower("cd a\nmake | sort\nls `x`", &environment).unwrap_err();
    assert_eq!((refusal.line, &refusal.understood[..]), (Some((3, 4)), &["cd", "make", "sort"].map(str::to_owned)[..]));
    let error = cp_common::Error::from(refusal);
    assert_eq!((error.code(), &error.details()["line"]), (cp_common::Code::Forbidden, &3.into()));
    assert_eq!(cp_common::Error::from(*lower("a '", &environment).unwrap_err()).code(), cp_common::Code::Validation);
}

#[test]
fn steps_given_outright_are_checked_like_those_of_a_line() {
    let good = r#"[{"join":"start","pipeline":[{"argv":["a"],"env":{"A":"1"}}]}]"#;
    let steps = |text: &str| serde_json::from_str::<Vec<steps::Step>>(text).map_err(|e| e.to_string());
    assert_eq!(check(&steps(good).unwrap()), Ok(()));
    for (from, to) in [
        (r#""start""#, r#""then""#),
        (r#"["a"],"env":{"A":"1"}"#, "[]"),
        (r#"{"A":"1"}"#, "{}},{}"),
        (r#"["a"]"#, r#"[""]"#),
        (r#"["a"]"#, r#"[[{"glob":"*"}]]"#),
        (r#"["a"]"#, r#"["a",[{"glob":"**"}]]"#),
        (r#"["a"]"#, r#"["a",[{"glob":"[a"}]]"#),
        (r#"["a"]"#, r#"["a",[]]"#),
        (r#"["a"]"#, r#"["a\u0000"]"#),
        (r#""A""#, r#""1A""#),
        (r#"{"A":"1"}"#, r#"{},"redirects":[{"fd":3,"op":"write","path":"f"}]"#),
        (r#"{"A":"1"}"#, r#"{},"redirects":[{"fd":1,"op":"read","path":"f"}]"#),
        (r#"{"A":"1"}"#, r#"{},"redirects":[{"fd":1,"op":"dup","to":0}]"#),
        (r#"{"A":"1"}"#, r#"{},"redirects":[{"fd":1,"op":"dup","path":"f"}]"#),
        (r#"{"A":"1"}"#, r#"{},"more":1"#),
        (r#""pipeline":[{"argv":["a"],"env":{"A":"1"}}]"#, r#""exit":"256""#),
        (r#""pipeline":[{"argv":["a"],"env":{"A":"1"}}]"#, r#""group":[]"#),
        (r#""pipeline":[{"argv":["a"],"env":{"A":"1"}}]"#, r#""cd":"a","exit":"1""#),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good);
        assert!(steps(&text).is_err() || check(&steps(&text).unwrap()).is_err(), "{text}");
    }
}
