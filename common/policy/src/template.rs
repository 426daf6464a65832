//! Templates with `{variables}`, which the composing program fills in and the sending program recognizes.

use std::collections::BTreeMap;

use cp_common::{Error, Result};

/// Replaces each variable of a template by its value. A variable without a value is an error that names its line.
pub fn fill(template: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let mut filled = String::with_capacity(template.len());
    for (text, variable) in pieces(template) {
        filled.push_str(text);
        let Some((name, at)) = variable else { continue };
        filled.push_str(values.get(name).ok_or_else(|| {
            let line = template[..at].matches('\n').count() as u64 + 1;
            Error::validation(format!("the variable `{name}` has no value"))
                .at_line(line)
                .with("variable", name)
                .hint(format!("add --var {name}=VALUE"))
        })?);
    }
    Ok(filled)
}

/// Returns the names of the variables, in order.
pub fn variables(template: &str) -> impl Iterator<Item = &str> {
    pieces(template).into_iter().filter_map(|(_, variable)| variable).map(|(name, _)| name)
}

/// True if `text` begins with `template`, whose variables match any text.
pub fn begins_with(text: &str, template: &str) -> bool {
    let (pieces, mut rest, mut is_after_variable) = (pieces(template), text, false);
    for (literal, variable) in &pieces {
        // After a variable the first match is sufficient, because it leaves the most text for the rest.
        let at = if is_after_variable { rest.find(literal) } else { rest.starts_with(literal).then_some(0) };
        let Some(at) = at else { return false };
        rest = &rest[at + literal.len()..];
        is_after_variable = variable.is_some();
    }
    // Without variables the end of the template is known: a blank line and another part follow, or nothing.
    pieces.len() > 1 || rest.is_empty() || rest.starts_with("\n\n")
}

/// The literal texts of a template, including other braces, each with the name and the offset of the variable after it.
fn pieces(template: &str) -> Vec<(&str, Option<(&str, usize)>)> {
    let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
    while let Some(open) = template[at..].find('{').map(|open| at + open) {
        at = open + 1;
        let name = template[at..].find('}').map(|length| &template[at..at + length]).filter(|name| is_variable(name));
        if let Some(name) = name {
            pieces.push((&template[from..open], Some((name, at))));
            at += name.len() + 1;
            from = at;
        }
    }
    pieces.push((&template[from..], None));
    pieces
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_replaces_variables_and_keeps_other_braces() {
        let values = BTreeMap::from([("name".to_owned(), "{x}".to_owned())]);
        assert_eq!(fill("a {name} {\"k\":{}} {", &values).unwrap(), "a {x} {\"k\":{}} {");
        assert!(variables("{b} {a} {b} {} {\"a\"}").eq(["b", "a", "b"]));
        let e = fill("a\nb {other}", &values).unwrap_err();
        assert!(e.message().contains("line 2") && e.message().contains("other"));
    }

    #[test]
    fn begins_with_accepts_any_value_of_variables() {
        for (text, template, expected) in [
            ("Speak softly.\n\nAnd more.", "Speak {tone}.", true),
            ("Speak softly", "Speak {tone}.", false),
            ("Please speak softly.", "Speak {tone}.", false),
            ("Be brief.", "Be brief.", true),
            ("Be brief.\n\nx", "Be brief.", true),
            ("Be brief. Or not.", "Be brief.", false),
            ("{\"a\":{}} b", "{\"a\":{}} {x}", true),
            ("anything", "", false),
            ("a b", "{x} b", true),
        ] {
            assert_eq!(begins_with(text, template), expected, "{text:?} {template:?}");
        }
    }

    #[test]
    fn filled_template_is_recognized() {
        let values = BTreeMap::from([("a".to_owned(), "one {b}".to_owned()), ("b".to_owned(), String::new())]);
        for template in ["{a}", "x {a} y {b}{a}.", "{ {a} }", "{b}"] {
            assert!(begins_with(&fill(template, &values).unwrap(), template), "{template}");
        }
    }
}
