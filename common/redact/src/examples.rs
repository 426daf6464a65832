//! Examples of each rule: texts that it must match, with its name, and texts that it must not match. The placeholders
//! are those of the corpus.

use std::collections::BTreeSet;

use crate::Redactor;
use crate::corpus::Draw;
use crate::shapes::key::{self, KEYS, Key, Part};

/// A rule, examples that it matches, and examples that it does not match.
type Examples = (&'static str, &'static [&'static str], &'static [&'static str]);

const EXAMPLES: &[Examples] = &[
    (
        "private_key",
        &[
            "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----",
            "data LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1J«B60»",
        ],
        &[
            "-----BEGIN PUBLIC KEY-----\nMHcC",
            "-----BEGIN PRIVATE KEY----- is its first line",
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1J«B60»",
        ],
    ),
    ("jwt", &["eyJhbGciOiJIUzI1NiJ9.eyJ«T60».«T43»"], &["eyJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJIUzI1NiJ9.short.x"]),
    (
        "url_password",
        &[
            "redis://:«A20»@cache",
            "https://ada:«A20»@x.org/",
            "https://«A40»@github.com/a",
            "https://«H32»@o1.ingest.sentry.io/1",
            "jdbc:oracle:thin:scott/«P»@//db:1521/x",
        ],
        &["https://ada@x.org:80/", "http://localhost:8080/a@b", "x://u:$P@h", "x://user:password@h"],
    ),
    ("pgpass", &["db:5432:shop:ada:«P»", "*:*:*:ada:«P»"], &["db:5432", "10.0.0.1:5432:up", "a:5432:b:c:${P}"]),
    ("bearer", &["Bearer «A32»", "bearer: Bearer «A40»"], &["Bearer of bad news", "Bearer <token>", "the bearer"]),
    ("basic", &["Basic «C9»", "Authorization: Basic «C5»"], &["Basic usage", "Basic authentication", "Basic dGVzdA=="]),
    (
        "authorization",
        &["Authorization: ApiKey «A40»", "authorization=«A32»"],
        &["Authorization: required", "Authorization: Bearer $TOKEN"],
    ),
    (
        "cookie",
        &["Cookie: sessionid=«A32»", "Set-Cookie: sid=«A24»; Path=/"],
        &["Cookie: theme=dark", "cookie: true", "cookies=3"],
    ),
    (
        "token",
        &["acme_live_«A24»", "zq-at-«A32»", "zqsecret_v1_«A40»", "zq_«H40»", "zq.«A30»", "zqx-«a32»"],
        &[
            "req_«A24»",
            "acme_«u»",
            "acme_live_«A8»",
            "zq-live-«A8».js",
            "call_«A24»",
            "acme_getUserById2FromHttpRequest",
        ],
    ),
    ("telegram_token", &["«D10»:AA«T33»"], &["12:AAAA", "«D10»:AA«T40»"]),
    ("discord_token", &["MTk«A21».«T6».«T38»"], &["MTk«A21»", "MTk.x.y"]),
    ("firebase_key", &["AAAA«T7»:APA91b«T134»"], &["AAAA:APA91b"]),
    ("twilio_key", &["SK«H32»"], &["SK«H12»", "task«H32»"]),
    ("azure_secret", &["«A3»8Q~«T34»"], &["8Q~x", "«A3»xQ~«T34»"]),
    ("mailchimp_key", &["«H32»-us12"], &["«H31»-us12", "contact-us"]),
    ("terraform_token", &["«A14».atlasv1.«A64»"], &["x.atlasv1.y"]),
    (
        "url_signature",
        &["https://x/c?sr=b&sig=«A43»%3D", "https://x/k?X-Amz-Signature=«H64»"],
        &["sig=abc", "config=«A43»", "?sig=none"],
    ),
    (
        "assignment",
        &[
            "password=«P»",
            "master_key: «H32»",
            "'token' => '«A32»'",
            "define('DB_PASS', '«P»')",
            "IDENTIFIED BY '«P»'",
            "<password>«P»</password>",
            "requests.get(url, auth=('ada', '«P»'))",
            "the password for the server is «P»",
        ],
        &[
            "password=$P",
            "token_count=5",
            "password = read()",
            "monkey: «A20»",
            "password: string;",
            "auth=(user, password)",
            "the password is wrong",
        ],
    ),
    (
        "flag",
        &[
            "--password «P»",
            "--token «A32»",
            "setx API_KEY «A32»",
            "requirepass «P»",
            "echo ada:«P» | chpasswd",
            "mysql -p«P»",
        ],
        &[
            "--password",
            "--password $P",
            "--token TOKEN",
            "curl -u ada https://x",
            "mysql -p shop",
            "mysql -p$MYSQL_PASSWORD shop",
            "mysql -p'$MYSQL_PASSWORD' shop",
            "mysql --execute x && mkdir -pv a/b",
            "docker run --name mysql -p3306:3306 mysql",
            "docker run --name mysql -p127.0.0.1:3306:3306 mysql",
            "sshpass -p \"$P\" ssh -p 2222 ada@host",
            "sshpass -e ssh -p 2222 ada@host",
            "ssh -p 22 ada@host",
            "ssh -p2222 ada@host",
            "mkdir -p path",
            "mkdir -p /var/lib/mysql",
            "cp -pr /var/lib/mysql /backup",
            "cp -pr a b",
            "docker run -u 1000:1000 x",
            "htpasswd -c .htpasswd ada",
            "net use X: \\\\srv\\share",
            "sudo -S apt update",
            "echo «P» | sudo tee /etc/x",
            "ssh-keygen -N ''",
        ],
    ),
    (
        "password_hash",
        &[
            "root:$6$saltsalt$«A86»:19000:0:99999:7:::",
            "$2b$12$«A53»",
            "$y$j9T$«A22»$«A43»",
            "$argon2id$v=19$m=65536,t=3,p=4$«B22»$«B43»",
            "pbkdf2_sha256$600000$«A22»$«B43»=",
            "ada {SSHA}«B32»",
            "ada:1001:«H32»:«H32»:::",
        ],
        &["costs $1 to $2", "$1$x", "{SSHA}", "$2b$", "awk '{print $1$2$3}'", "root:*:19000:0:99999:7:::"],
    ),
    ("aws_secret", &["AKIA«U16»,«B40»", "AKIA«U16» «B40»"], &["«B40»", "id,name\nAKIDX,«B40»"]),
    (
        "wallet_key",
        &[
            "5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ",
            "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn",
        ],
        &["«A51»x-", "Ls1", "5Ham"],
    ),
    ("asana_token", &["1/1199«D12»:«H32»"], &["1/2", "1/1199«D12»:«H12»"]),
    (
        "entropy",
        &["here is the key (old): «A32»", "the token in use was «A40»"],
        &["the key «u»", "fix token in «H40»", "the key to everything", "public key: «A40»"],
    ),
];

/// Generates a secret of this form.
fn key_like(draw: &mut Draw, key: &Key) -> String {
    let mut text = String::new();
    for part in key.parts {
        match *part {
            Part::Text(literal) => text += literal,
            Part::Run(class, least, most) => {
                let bytes = (b'!'..=b'~').filter(|byte| key::is_in(class, *byte) && byte.is_ascii_alphanumeric());
                let alphabet: String = bytes.map(char::from).collect();
                let length = most.min(least.max(1) + 2);
                // A digit after a letter, so that the text is random.
                let piece = (0..length).map(|at| match at % 3 {
                    0 if key::is_in(class, b'7') => draw.text("23456789", 1),
                    _ => draw.text(&alphabet, 1),
                });
                text.extend(piece);
            }
        }
    }
    text
}

#[test]
fn rules_match_only_their_examples() {
    let (mut draw, redactor) = (Draw::new(5), Redactor::default());
    for (rule, found, left) in EXAMPLES {
        for example in *found {
            let (text, _) = draw.fill(example);
            let (clean, _) = redactor.redact_text(&text);
            assert!(clean.contains(&format!("[REDACTED:{rule}]")), "{rule}: {text} became {clean}");
        }
        for example in *left {
            let (text, _) = draw.fill(example);
            assert_eq!(redactor.redact_text(&text), (text.clone(), 0), "{rule}");
        }
    }
}

#[test]
fn keys_are_redacted_and_bare_prefixes_are_kept() {
    let (mut draw, redactor) = (Draw::new(6), Redactor::default());
    for key in KEYS {
        let prefix = match key.parts[key.secret] {
            Part::Text(text) => text,
            Part::Run(..) => "",
        };
        let rule = key.rule;
        let text = key_like(&mut draw, key);
        let plain = cp_json::unquote(format!("\"{text}\"").as_bytes()).unwrap();
        assert!(redactor.redact_text(&plain).0.contains(&format!("[REDACTED:{rule}]")), "{text}");
        for text in
            [prefix.to_owned(), format!("{prefix}x"), format!("{prefix}{}", "x".repeat(200)), format!("a{plain}")]
        {
            let clean = redactor.redact_text(&text).0;
            let begins_within =
                rule == "password_hash" || !plain.starts_with(|first: char| first.is_ascii_alphanumeric());
            assert!(!clean.contains(&format!("[REDACTED:{rule}]")) || begins_within, "{text} became {clean}");
        }
    }
}

#[test]
fn every_rule_has_examples() {
    let sources = [
        include_str!("named/assignment.rs"),
        include_str!("named/call.rs"),
        include_str!("named/command.rs"),
        include_str!("named/phrase.rs"),
        include_str!("shapes/file.rs"),
        include_str!("shapes/header.rs"),
        include_str!("shapes/url.rs"),
    ];
    let marks = sources.iter().flat_map(|source| source.split("rule"));
    let marks = marks.filter_map(|mark| mark.strip_prefix(": \"").or(mark.strip_prefix(" = \"")));
    let names: BTreeSet<&str> = marks.filter_map(|mark| mark.split('"').next()).collect();
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        assert!(
            EXAMPLES.iter().any(|(named, found, left)| *named == name && !found.is_empty() && !left.is_empty()),
            "{name}"
        );
    }
}
