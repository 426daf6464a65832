//! Recall over the kinds of secrets that other scanners know: gitleaks, betterleaks, trufflehog and detect-secrets.
//!
//! `corpus/kinds-*.tsv` has the form of each kind: its alphabets and lengths. The secrets are drawn from these forms. Rules
//! were written while only `kinds-tuning.tsv` was read; `kinds-heldout.tsv` measures the recall for unseen kinds.

use crate::Redactor;
use crate::corpus::Draw;
use crate::recall::PLACES;

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
    fn add(&mut self, text: String, secret: &str) {
        self.all += 1;
        let clean = Redactor::default().redact_text(&text).0;
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
            recall.add(placed(kind, place, &secret), &secret);
        }
    }
    recall
}

#[test]
fn kinds_of_other_scanners_are_found() {
    let shown = std::env::var("SHOW").unwrap_or_default();
    for (what, kinds) in [("tuning", tuning()), ("heldout", held_out())] {
        let show = |recall: &Recall, class: &str| {
            recall.show(&format!("{what} {class}"), what == "tuning" && shown == class);
        };
        show(&measure(&kinds, &NAMED, None), "named");
        show(&measure(&kinds, &WORDED, None), "worded");
        show(&measure(&kinds, &PLACES, Some(true)), "prefix");
    }
}
