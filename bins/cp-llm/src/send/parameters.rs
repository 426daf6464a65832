//! `-o KEY=VALUE` and `--header NAME=VALUE`: what goes into a request by the name that it has there.

use cp_common::{Error, Result};
use serde_json::{Map, Value};

use crate::backend::headers::header;

/// Members of a body that are no parameters, and what sets them.
const OWN: [(&str, &str); 5] = [
    ("model", "use -m MODEL"),
    ("stream", "use --stream"),
    ("messages", "give the text, or a prompt record"),
    ("contents", "give the text, or a prompt record"),
    ("input", "give the text, or a prompt record"),
];

/// What sets a member of the body that is no parameter; none for one that is.
pub(super) fn own(name: &str) -> Option<&'static str> {
    OWN.iter().find(|(own, _)| *own == name).map(|(_, cure)| *cure)
}

/// The parameters, those that have an option of their own among them. No error repeats a value.
pub(super) fn parameters(given: &[String], named: [(&str, Option<Value>); 2]) -> Result<Map<String, Value>> {
    let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let mut parameters: Map<String, Value> = named.collect();
    for given in given {
        let (key, text) = given.split_once('=').ok_or_else(|| {
            Error::usage("a parameter after -o has no `=`").hint("write -o KEY=VALUE, such as -o top_p=0.9")
        })?;
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(Error::usage(format!("`{key}` after -o is not the name of a parameter"))
                .hint("write -o KEY=VALUE, such as -o top_p=0.9"));
        }
        if let Some(cure) = own(key) {
            return Err(Error::usage(format!("`{key}` is not a parameter")).hint(cure));
        }
        if parameters.insert(key.to_owned(), value(key, text)?).is_some() {
            return Err(Error::usage(format!("the parameter `{key}` is given twice")).hint("give it once"));
        }
    }
    Ok(parameters)
}

/// The JSON that a text is, else the text. What begins as JSON and is none was meant as JSON, and so was a number that JSON has not.
fn value(key: &str, text: &str) -> Result<Value> {
    let wrong = |what: &str| {
        Error::usage(format!("-o {key}: {what}"))
            .hint(format!("correct it, or write it as a text in JSON: -o '{key}=\"…\"'"))
    };
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(e) if text.trim_start().starts_with(['{', '[', '"']) => Err(wrong(&format!("the value is not JSON: {e}"))),
        Err(_) if text.trim().parse::<f64>().is_ok_and(|number| !number.is_finite()) => {
            Err(wrong("JSON has no such number"))
        }
        Err(_) => Ok(text.into()),
    }
}

/// The headers, each as a name and a value. No error repeats a value.
pub(super) fn headers(given: &[String]) -> Result<Vec<(String, String)>> {
    let mut headers: Vec<(String, String)> = Vec::with_capacity(given.len());
    for given in given {
        let form = "write --header NAME=VALUE or --header 'Name: value'";
        let Some((name, value)) = given.split_once(['=', ':']) else {
            return Err(Error::usage("a header has neither `=` nor `:`").hint(form));
        };
        let (name, value) =
            header(name, value).map_err(|e| Error::usage(e.message()).hint(e.hint_text().unwrap_or(form)))?;
        if headers.iter().any(|(known, _)| *known == name) {
            return Err(Error::usage(format!("the header {name} is given twice")).hint("give it once"));
        }
        headers.push((name, value));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(given: &[&str]) -> Result<Value> {
        let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
        parameters(&given, [("max_tokens", Some(7.into())), ("temperature", None)]).map(Value::Object)
    }

    #[test]
    fn a_value_is_json_where_it_parses_and_else_text() {
        let given = [
            "a=1",
            "b=-0.5",
            "c=true",
            "d=null",
            "e=[1]",
            "f={\"x\":1}",
            "g=\"1\"",
            "h=low",
            "i=",
            "j=a=b",
            "temperature=0",
        ];
        let expected = json!({"max_tokens":7,"a":1,"b":-0.5,"c":true,"d":null,"e":[1],"f":{"x":1},"g":"1","h":"low","i":"","j":"a=b","temperature":0});
        assert_eq!(parsed(&given).unwrap(), expected);
    }

    #[test]
    fn what_is_no_parameter_is_refused_and_its_value_not_repeated() {
        for given in [
            "secret",
            "=secret",
            "a b=secret",
            "a={secret",
            "a=[\"secret\"",
            "model=secret",
            "max_tokens=11",
            "a=NaN",
            "a=1e999",
        ] {
            let error = parsed(&[given]).unwrap_err();
            assert!(!format!("{error:?}{:?}", error.hint_text()).contains("secret"), "{given}: {error:?}");
        }
        assert!(parsed(&["a=1", "a=2"]).unwrap_err().message().contains("twice"));
    }

    #[test]
    fn a_header_is_a_token_and_visible_characters() {
        let parsed = |given: &str| headers(&[given.to_owned()]);
        assert_eq!(parsed("X-A: b=c").unwrap(), [("x-a".to_owned(), "b=c".to_owned())]);
        assert_eq!(parsed("x-a=b:c").unwrap(), [("x-a".to_owned(), "b:c".to_owned())]);
        for given in
            ["secret", "=secret", "a b: secret", "x: secret\r\ny: z", "x=secretß", "Host: secret", "Content-Length=5"]
        {
            let error = parsed(given).unwrap_err();
            let is_repeated = format!("{error:?}").contains("secret") && given != "secret";
            assert!(!is_repeated, "{given}: {error:?}");
        }
        assert!(headers(&["a=1".to_owned(), "A: 2".to_owned()]).unwrap_err().message().contains("twice"));
    }
}
