//! Texts as they lie in logs, files and chats: some hold a secret, others only look as if. Made here, so that no scanner takes this
//! file for a leak.

use super::Redactor;

/// Numbers that are the same in every run.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    /// So many characters, a digit and both cases among them where the alphabet has them.
    fn text(&mut self, alphabet: &str, length: usize) -> String {
        let alphabet: Vec<char> = alphabet.chars().collect();
        let mut text: String = (0..length).map(|_| alphabet[self.next(alphabet.len())]).collect();
        if alphabet.contains(&'7') && !text.contains(|c: char| c.is_ascii_digit()) && length > 3 {
            text.replace_range(2..3, "7");
        }
        text
    }
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What keys look like: what comes before, the alphabet of the rest, its length.
const KEYS: [(&str, &str, usize); 47] = [
    ("sk-ant-api03-", ALNUM, 93),
    ("sk-proj-", ALNUM, 48),
    ("sk-", ALNUM, 48),
    ("sk-or-v1-", HEX, 64),
    ("sk_live_", ALNUM, 24),
    ("sk_test_", ALNUM, 24),
    ("rk_live_", ALNUM, 24),
    ("whsec_", ALNUM, 32),
    ("ghp_", ALNUM, 36),
    ("gho_", ALNUM, 36),
    ("ghu_", ALNUM, 36),
    ("ghs_", ALNUM, 36),
    ("ghr_", ALNUM, 36),
    ("github_pat_", ALNUM, 82),
    ("glpat-", ALNUM, 20),
    ("xoxb-123456789012-", ALNUM, 24),
    ("xoxp-123456789012-", ALNUM, 32),
    ("xapp-1-A0123-", ALNUM, 40),
    ("AKIA", UPPER, 16),
    ("ASIA", UPPER, 16),
    ("AIza", ALNUM, 35),
    ("ya29.", ALNUM, 60),
    ("hf_", ALNUM, 34),
    ("npm_", ALNUM, 36),
    ("pypi-AgEIcHlwaS5vcmc", ALNUM, 80),
    ("gsk_", ALNUM, 52),
    ("xai-", ALNUM, 80),
    ("pplx-", ALNUM, 48),
    ("r8_", ALNUM, 37),
    ("SG.", ALNUM, 66),
    ("dop_v1_", HEX, 64),
    ("shpat_", HEX, 32),
    ("lin_api_", ALNUM, 40),
    ("ntn_", ALNUM, 46),
    ("dapi", HEX, 32),
    ("hvs.", ALNUM, 90),
    ("dckr_pat_", ALNUM, 27),
    ("ATATT3xFfGF0", ALNUM, 180),
    ("rubygems_", HEX, 48),
    ("glsa_", ALNUM, 41),
    ("sntrys_", ALNUM, 60),
    ("sbp_", HEX, 40),
    ("tskey-auth-", ALNUM, 40),
    ("dp.pt.", ALNUM, 43),
    ("sq0atp-", ALNUM, 22),
    ("PMAK-", HEX, 59),
    ("https://hooks.slack.com/services/T0123/B0123/", ALNUM, 24),
];

/// Where keys stand.
const PLACES: [&str; 5] = [
    "{}",
    "the key is {}, keep it",
    "KEY={}\n",
    "curl -H \"X-Key: {}\" https://api.example.org",
    "{\"value\":\"{}\",\"n\":1}",
];

/// Places that say by themselves that something is secret.
const SAID: [&str; 40] = [
    "password={}",
    "password: {}",
    "DB_PASSWORD={}",
    "export PGPASSWORD='{}'",
    "\"password\": \"{}\"",
    "{\"user\":\"ada\",\"passwd\":\"{}\"}",
    "passphrase = \"{}\"",
    "Server=db;User Id=sa;Password={};Encrypt=true",
    "client_secret={}&grant_type=client_credentials",
    "\"clientSecret\": \"{}\",",
    "aws_secret_access_key = {}",
    "AWS_SECRET_ACCESS_KEY={}",
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=core.windows.net",
    "SharedAccessKey={}",
    "api_key: {}",
    "apiKey=\"{}\"",
    "OPENAI_API_KEY={}",
    "x-api-key: {}",
    "https://api.example.org/v1?api_key={}&page=2",
    "https://api.example.org/v1?access_token={}",
    "Authorization: Bearer {}",
    "authorization: token {}",
    "-H 'Authorization: Basic {}'",
    "postgres://app:{}@db.example.org:5432/app",
    "amqp://guest:{}@mq/vhost",
    "https://ada:{}@git.example.org/repo.git",
    "redis://:{}@cache:6379/0",
    "refresh_token: \"{}\"",
    "auth_token={}",
    "secret_key_base: {}",
    "SECRET_KEY = '{}'",
    "JWT_SECRET={}",
    "webhook_secret: {}",
    "signing_key=\"{}\"",
    "encryption_key: {}",
    "//registry.npmjs.org/:_authToken={}",
    "private_key_password = {}",
    "mysql --user=root --password={} shop",
    "credentials: {}",
    "session_secret: \"{}\"",
];

fn positives() -> Vec<(String, String)> {
    let mut draw = Draw(7);
    let mut all = Vec::new();
    for (prefix, alphabet, length) in KEYS {
        for place in PLACES {
            let secret = format!("{prefix}{}", draw.text(alphabet, length));
            all.push((place.replace("{}", &secret), secret[prefix.len()..].to_owned()));
        }
    }
    for place in SAID {
        for (alphabet, length) in [(ALNUM, 24), (HEX, 40), (BASE64, 44)] {
            // A slash would end the authority of a URL: there it is written as %2F.
            let secret = draw.text(alphabet, length).replace('/', if place.contains("://") { "x" } else { "/" });
            all.push((place.replace("{}", &secret), secret));
        }
    }
    for label in ["RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"] {
        let body = draw.text(BASE64, 64);
        all.push((format!("-----BEGIN {label}-----\n{body}\n{body}\n-----END {label}-----"), body));
    }
    for _ in 0..5 {
        let (head, body, end) = (draw.text(ALNUM, 20), draw.text(ALNUM, 60), draw.text(ALNUM, 43));
        all.push((format!("cookie jwt eyJ{head}.eyJ{body}.{end}"), end));
    }
    all
}

/// What looks like a secret and is none: `{u}` a UUID, `{h}` 40 hex digits, `{s}` 64 hex digits, `{b}` base64, `{n}` a number.
const HARMLESS: [&str; 75] = [
    "request {u} took {n} ms",
    "\"id\":\"{u}\",\"trace_id\":\"{u}\"",
    "session_id={u}",
    "commit {h}",
    "Merge {h} into main",
    "index {h}..{h} 100644",
    "sha256:{s}",
    "FROM alpine@sha256:{s}",
    "{s}  dist/app.tar.gz",
    "\"integrity\": \"sha512-{b}==\"",
    "checksum = \"{s}\"",
    "etag: \"{h}\"",
    "![logo](data:image/png;base64,iVBORw0KGgo{b})",
    "data:font/woff2;base64,d09GMgABAAAAA{b}",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b} ada@example.org",
    "-----BEGIN PUBLIC KEY-----\n{b}\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\n{b}\n-----END CERTIFICATE-----",
    "Lorem ipsum dolor sit amet {n}, consectetur adipiscing elit",
    "max_tokens={n}, input_tokens: {n}",
    "\"max_tokens\":{n},\"total_tokens\":{n}",
    "token: expected identifier, found keyword on line {n}",
    "let token = lexer.next_token();  // {n}",
    "the password must have at least {n} characters",
    "Password: ",
    "password: String,",
    "password: str = None",
    "\"password\": {\"type\": \"string\", \"minLength\": {n}}",
    "password={{ vault_password }}",
    "password=${DB_PASSWORD}",
    "password=$PASSWORD_{n}",
    "password=<your-password>",
    "password=********",
    "api_key=YOUR_API_KEY",
    "api_key = os.environ[\"OPENAI_API_KEY\"]",
    "apiKey: process.env.API_KEY,",
    "token = request.headers.get(\"Authorization\")",
    "const token = await getToken();",
    "if (password === confirmation) return {n};",
    "def check_password(password, hashed):",
    "secretName: db-credentials-{n}",
    "keys: {n}, values: {n}",
    "primary_key: {n}",
    "foreign_key=users.id",
    "cache_key: page:{n}:{u}",
    "partition_key = {u}",
    "sort_key: created_at",
    "keyboard: qwerty, monkey: george{n}",
    "http://localhost:{n}/a@b",
    "https://example.org/users/ada@example.org?page={n}",
    "git@github.com:ada/repo.git at {h}",
    "mailto:ada@example.org",
    "task-force sk-learn risk-averse desk-{n}",
    "scikit-learn==1.{n} sk-image",
    "Bearer of bad news {n}",
    "Authorization: Bearer <token>",
    "WWW-Authenticate: Bearer realm=\"example\"",
    "author: Ada Lovelace, authority: {n}",
    "the token bucket holds {n} tokens",
    "Tokenizer(vocab_size={n})",
    "AKIA is how access keys begin",
    "2026-01-01T00:00:00.{n}Z INFO started pid={n}",
    "fe80::1ff:fe23:4567:890a 00:1b:44:11:3a:b7",
    "npm_config_cache=/home/ada/.npm",
    "pip install pypi-{n}",
    "hf_hub_download(repo_id=\"ada/model-{n}\")",
    "xai-grok and gsk_learn are words, ghp_ too",
    "color: #a1b2c3; width: {n}px",
    "version 1.2.{n}+{h}",
    "/var/lib/docker/overlay2/{s}/merged",
    "s3://bucket/{u}/part-{n}.parquet",
    "nonce={n} difficulty=0x{h}",
    "\"hash\":\"sha256:{s}\",\"prev\":\"sha256:{s}\"",
    "\"public_key\": \"{b}\"",
    "credentials: include",
    "token_type: bearer, expires_in: {n}",
];

fn negatives() -> Vec<String> {
    let mut draw = Draw(11);
    let mut all = Vec::new();
    for _ in 0..5 {
        for text in HARMLESS {
            let mut text = text.to_owned();
            let uuid: Vec<String> = [8, 4, 4, 4, 12].iter().map(|length| draw.text(HEX, *length)).collect();
            for (mark, with) in [
                ("{u}", uuid.join("-")),
                ("{h}", draw.text(HEX, 40)),
                ("{s}", draw.text(HEX, 64)),
                ("{b}", draw.text(BASE64, 86)),
                ("{n}", draw.text("123456789", 4)),
            ] {
                text = text.replace(mark, &with);
            }
            all.push(text);
        }
    }
    all
}

#[test]
fn secrets_are_found_and_what_only_looks_like_one_stays() {
    let redactor = Redactor::default();
    let positives = positives();
    let missed: Vec<&String> = positives
        .iter()
        .filter(|(text, secret)| redactor.redact_text(text).0.contains(secret))
        .map(|(text, _)| text)
        .collect();
    let negatives = negatives();
    let taken: Vec<(&String, String)> = negatives
        .iter()
        .map(|text| (text, redactor.redact_text(text)))
        .filter(|(_, (_, count))| *count > 0)
        .map(|(text, (clean, _))| (text, clean))
        .collect();
    assert!(positives.len() >= 300 && negatives.len() >= 300, "{} and {}", positives.len(), negatives.len());
    assert!(missed.len() * 100 <= positives.len(), "{} of {} missed: {missed:#?}", missed.len(), positives.len());
    assert!(taken.len() * 100 <= negatives.len(), "{} of {} taken: {taken:#?}", taken.len(), negatives.len());
}
