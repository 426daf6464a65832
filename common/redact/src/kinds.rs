//! Recall over the kinds of secrets that other scanners know: gitleaks, betterleaks, trufflehog and detect-secrets.
//!
//! `corpus/kinds-*.tsv` has the form of each kind: its alphabets and lengths. The secrets are drawn from these forms.
//! Rules were written while only `kinds-tuning.tsv` was read; `kinds-heldout.tsv` measures the recall for unseen kinds.

use crate::Redactor;
use crate::corpus::{Draw, places};

/// A kind of secret that another scanner knows.
struct Kind {
    provider: &'static str,
    /// True if the secret has a prefix that names its kind.
    is_prefixed: bool,
    form: &'static str,
}

fn kinds(table: &'static str) -> Vec<Kind> {
    let rows = table.lines().filter(|row| !row.starts_with('#'));
    rows.map(|row| {
        let [_, provider, class, form] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        Kind { provider, is_prefixed: class == "prefix", form }
    })
    .collect()
}

fn tuning() -> Vec<Kind> {
    kinds(include_str!("../corpus/kinds-tuning.tsv"))
}

fn held_out() -> Vec<Kind> {
    kinds(include_str!("../corpus/kinds-heldout.tsv"))
}

/// Notations in which a name precedes the secret: `NAME` in upper case, `name` in lower case, `Name` as in code.
const NAMED: [&str; 24] = [
    "NAME_API_KEY={}",
    "export NAME_TOKEN={}\n./run",
    "NAME_SECRET = \"{}\"",
    "name_token: {}",
    "name_api_key: '{}'",
    "{\"user\":\"ada\",\"name_token\":\"{}\",\"ok\":true}",
    "{\"config.ini\": \"NAME_TOKEN={}\\nBACKUP_ENABLED=true\"}",
    "String nameToken = \"{}\";",
    "var nameToken string = \"{}\"",
    "nameToken := `{}`",
    "const nameApiKey = '{}';",
    "$nameToken .= \"{}\"",
    "<nameToken>\n    {}\n</nameToken>",
    "<entry name=\"nameToken\" value=\"{}\" />",
    "  \"nameToken\" => \"{}\"",
    "System.setProperty(\"NAME_TOKEN\", \"{}\")",
    "NAME_TOKEN ::= \"{}\"",
    "NAME_SECRET_KEY ?= \"{}\"",
    "env:\n  - name: NAME_API_KEY\n    value: {}\n",
    "https://api.example.com/v1/things?name_api_key={}&page=2",
    "deploy --name-api-key={} --now",
    "variable \"name_api_key\" {\n  type = string\n  default = \"{}\"\n}",
    "- **name_api_key**: `{}`",
    "curl -H 'X-name-Token: {}' https://api.example.com",
];

/// Notations whose words say less: recall is lower there.
const WORDED: [&str; 6] = [
    "export NAME_KEY={}",
    "my name API key is {}",
    "Use the name token {} for that.",
    "name: {}",
    "name_auth = {}",
    "| name API key | {} |",
];

fn placed(kind: &Kind, place: &str, secret: &str) -> String {
    let name = kind.provider;
    place.replace("NAME", &name.to_uppercase()).replace("name", name).replace("{}", secret)
}

/// Counts of texts, and of those whose secret is redacted.
#[derive(Default)]
struct Recall {
    all: usize,
    found: usize,
    missed: Vec<String>,
}

impl Recall {
    fn add(&mut self, text: &str, secret: &str) {
        self.all += 1;
        let clean = Redactor::default().redact_text(text).0;
        // No part as long as a third of the secret may be left.
        let part = (secret.len() / 3).max(8).min(secret.len());
        let is_found = secret.is_ascii() && (0..=secret.len() - part).all(|at| !clean.contains(&secret[at..at + part]));
        if is_found {
            self.found += 1;
        } else {
            self.missed.push(format!("{text}   →   {clean}"));
        }
    }

    fn percent(&self) -> usize {
        self.found * 100 / self.all.max(1)
    }

    fn show(&self, what: &str, is_shown: bool) {
        println!("{what}: {} of {} are {} %", self.found, self.all, self.percent());
        if is_shown {
            self.missed.iter().for_each(|missed| println!("  {}", missed.replace('\n', "⏎")));
        }
    }
}

fn measure(kinds: &[Kind], places: &[&str], prefixed: Option<bool>) -> Recall {
    let (mut draw, mut recall) = (Draw::new(0xd1ce), Recall::default());
    for kind in kinds.iter().filter(|kind| prefixed.is_none_or(|only| only == kind.is_prefixed)) {
        for place in places {
            let (secret, _) = draw.fill(kind.form);
            recall.add(&placed(kind, place, &secret), &secret);
        }
    }
    recall
}

#[test]
fn kinds_of_other_scanners_are_found() {
    let shown = std::env::var("SHOW").unwrap_or_default();
    let places = places();
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    for (what, kinds) in [("tuning", tuning()), ("heldout", held_out())] {
        let show = |recall: &Recall, class: &str| {
            recall.show(&format!("{what} {class}"), what == "tuning" && shown == class);
        };
        let classes: [(&str, &[&str], Option<bool>, usize); 3] =
            [("named", &NAMED, None, 97), ("worded", &WORDED, None, 69), ("prefix", &places, Some(true), 79)];
        for (class, places, is_prefixed, least) in classes {
            let recall = measure(&kinds, places, is_prefixed);
            show(&recall, class);
            assert!(recall.percent() >= least, "{what} {class}: {} %", recall.percent());
        }
    }
}

/// Encodings of a secret, and of the text around it.
fn encoded(secret: &str) -> Vec<(&'static str, String)> {
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
    let signs = |secret: &str, of: &dyn Fn(u8) -> String| -> String {
        secret
            .bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                    char::from(byte).to_string()
                } else {
                    of(byte)
                }
            })
            .collect()
    };
    let percent = signs(secret, &|byte| format!("%{byte:02X}"));
    let unicode = signs(secret, &|byte| format!("\\u{byte:04x}"));
    let json = format!("{{\"name\":\"ada\",\"value\":\"{secret}\"}}");
    vec![
        ("colour", format!("run \u{1b}[1m{secret}\u{1b}[0m ok")),
        ("colour", format!("\u{1b}[38;5;208mtoken\u{1b}[0m: \u{1b}[32m{secret}\u{1b}[39m")),
        ("colour", format!("echo -e \"\\x1b[0;31m{secret}\\x1b[0m\"")),
        ("colour", format!("{{\"out\":\"\\u001b[1m{secret}\\u001b[0m\"}}")),
        ("percent", format!("GET /callback?state=x%20{percent}%26next%3D1")),
        ("percent", format!("https://example.com/?u=https%3A%2F%2Fx.org%2F%3Fk%3D{percent}%22")),
        ("escapes", format!("{{\"url\":\"https://x.org/?k\\u003d{unicode}\\u0026n\\u003d1\"}}")),
        ("escapes", format!("var a = '\\x22{unicode}\\x22';")),
        ("escapes", format!("{{\\\"k\\\":\\\"\\u0022{unicode}\\u0022\\\"}}")),
        ("base64", format!("data: {}", BASE64_STANDARD.encode(&json))),
        ("base64", format!("?state={}&x=1", BASE64_URL_SAFE_NO_PAD.encode(&json))),
    ]
}

#[test]
fn encoded_secrets_are_found() {
    let mut draw = Draw::new(0xc0de);
    let mut classes: std::collections::BTreeMap<&str, Recall> = std::collections::BTreeMap::new();
    // Kinds that are found without an encoding.
    for kind in tuning().into_iter().chain(held_out()).filter(|kind| kind.is_prefixed) {
        let (secret, _) = draw.fill(kind.form);
        if Redactor::default().redact_text(&secret).0 != secret {
            for (class, text) in encoded(&secret) {
                let recall = classes.entry(class).or_default();
                let before = recall.found;
                recall.add(&text, &secret);
                // Base64 and escapes hide the secret itself; a mark shows that it was found.
                let is_hidden = !text.contains(&secret);
                if is_hidden
                    && recall.found > before
                    && !Redactor::default().redact_text(&text).0.contains("[REDACTED:")
                {
                    recall.found -= 1;
                    recall.missed.push(text);
                }
            }
        }
    }
    for (class, recall) in &classes {
        recall.show(class, std::env::var("SHOW").is_ok_and(|shown| shown == *class));
        assert!(recall.percent() >= 97, "{class}: {} %", recall.percent());
    }
}
