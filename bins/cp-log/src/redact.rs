//! Takes secrets out of an entry before it is written. Works on JSON text in normal form and leaves JSON text.
//!
//! One pass over the bytes looks for three-byte anchors; only where one stands is anything else done. No pattern is
//! compiled, so a process that writes one line pays nothing.

#[cfg(test)]
mod corpus;

use std::ops::Range;

use cp_common::json;
use memchr::memmem::Finder;

/// Values shorter than this are not looked for: they would hide ordinary words.
const SHORTEST_OWN: usize = 12;

/// Knows what secrets look like, and the ones this process holds.
#[derive(Debug, Default)]
pub struct Redactor {
    own: Vec<Finder<'static>>,
}

impl Redactor {
    /// A redactor that also knows the secrets in this process's environment.
    pub fn from_environment() -> Self {
        let secrets = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            names_a_secret(name.as_bytes()).then_some(value)
        });
        Self::knowing(secrets)
    }

    /// A redactor that knows these values besides the shapes.
    pub fn knowing(secrets: impl IntoIterator<Item = String>) -> Self {
        let spelt = |secret: String| {
            let mut text = Vec::with_capacity(secret.len() + 2);
            json::string(&secret, &mut text);
            Finder::new(&text[1..text.len() - 1]).into_owned()
        };
        Self { own: secrets.into_iter().filter(|secret| secret.len() >= SHORTEST_OWN).map(spelt).collect() }
    }

    /// Replaces every secret in `text[from..]` by `[REDACTED:rule]`; returns how many there were.
    pub fn redact(&self, text: &mut Vec<u8>, from: usize) -> u32 {
        let mut count = 0;
        for finder in &self.own {
            const MARK: [u8; 21] = *b"[REDACTED:own_secret]";
            let mut at = from;
            while let Some(next) = finder.find(&text[at..]) {
                let start = at + next;
                text.splice(start..start + finder.needle().len(), MARK);
                at = start + MARK.len();
                count += 1;
            }
        }
        let found = shapes(&text[from..]);
        if found.is_empty() {
            return count;
        }
        let mut clean = Vec::with_capacity(text.len() - from);
        let mut at = from;
        for secret in &found {
            clean.extend_from_slice(&text[at..from + secret.at.start]);
            clean.extend_from_slice(b"[REDACTED:");
            clean.extend_from_slice(secret.rule.as_bytes());
            clean.push(b']');
            at = from + secret.at.end;
        }
        clean.extend_from_slice(&text[at..]);
        text.truncate(from);
        text.append(&mut clean);
        count + u32::try_from(found.len()).unwrap_or(u32::MAX)
    }

    /// Like [`Redactor::redact`], for text that is not JSON.
    pub fn redact_text(&self, text: &str) -> (String, u32) {
        let mut quoted = Vec::with_capacity(text.len() + 2);
        json::string(text, &mut quoted);
        match self.redact(&mut quoted, 0) {
            0 => (text.to_owned(), 0),
            count => (json::unquote(&quoted).unwrap_or_default(), count),
        }
    }
}

/// A secret that was found: where, and by what.
struct Secret {
    at: Range<usize>,
    rule: &'static str,
}

fn shapes(text: &[u8]) -> Vec<Secret> {
    let mut found: Vec<Secret> = Vec::new();
    let mut from = 0;
    while let Some((at, anchors)) = next_anchor(text, from) {
        from = at + 1;
        let secret = (0..ANCHORS.len()).filter(|bit| anchors >> bit & 1 == 1).find_map(|bit| {
            let (_, back, rule) = ANCHORS[bit];
            rule.secret(text, at.checked_sub(back)?)
        });
        if let Some(secret) = secret
            && found.last().is_none_or(|last| last.at.end <= secret.at.start)
        {
            from = from.max(secret.at.end);
            found.push(secret);
        }
    }
    found
}

/// How a candidate is looked at.
#[derive(Clone, Copy)]
enum Rule {
    /// A known prefix, then at least so many characters of a token.
    Key { name: &'static str, prefix: &'static str, least: usize, of: Alphabet },
    /// A block of a private key, to its end line or the end of the string.
    PrivateKey,
    /// Three dotted parts in base64url, the first of which starts an object.
    Jwt,
    /// A password in the authority of a URL.
    Url,
    /// The credentials after `Bearer`.
    Bearer,
    /// The credentials in an `Authorization` header, whatever their scheme.
    Authorization,
    /// A word that names a secret, then `=` or `:`, then the secret.
    Assignment,
}

/// What a key is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    /// Letters, digits, `-` and `_`.
    Token,
    /// The same, and somewhere a digit: for prefixes that ordinary words have too.
    Mixed,
    /// Upper-case letters and digits, exactly so many.
    Upper,
    /// Lower-case hex digits, for prefixes that words have too.
    Hex,
    /// The same as `Token`, and `/`: the path of a URL that is a secret itself.
    Path,
}

const fn key(name: &'static str, prefix: &'static str, least: usize) -> Rule {
    Rule::Key { name, prefix, least, of: Alphabet::Token }
}

const fn mixed(name: &'static str, prefix: &'static str, least: usize) -> Rule {
    Rule::Key { name, prefix, least, of: Alphabet::Mixed }
}

const fn upper(name: &'static str, prefix: &'static str, least: usize) -> Rule {
    Rule::Key { name, prefix, least, of: Alphabet::Upper }
}

/// Three bytes (letters in any case), how far they are into what the rule looks at, and the rule.
///
/// Anchors are the rarest three bytes of their rule, not always the first.
const ANCHORS: [(&[u8; 3], usize, Rule); 64] = [
    (b"sk-", 0, mixed("api_key", "sk-", 20)),
    (b"sk_", 0, mixed("stripe_key", "sk_", 20)),
    (b"rk_", 0, mixed("stripe_key", "rk_", 20)),
    (b"whs", 0, key("stripe_key", "whsec_", 16)),
    (b"ghp", 0, key("github_token", "ghp_", 30)),
    (b"gho", 0, key("github_token", "gho_", 30)),
    (b"ghu", 0, key("github_token", "ghu_", 30)),
    (b"ghs", 0, key("github_token", "ghs_", 30)),
    (b"ghr", 0, key("github_token", "ghr_", 30)),
    (b"b_p", 5, key("github_token", "github_pat_", 22)),
    (b"glp", 0, key("gitlab_token", "glpat-", 20)),
    (b"xox", 0, mixed("slack_token", "xox", 15)),
    (b"xap", 0, mixed("slack_token", "xapp-", 15)),
    (b"aki", 0, upper("aws_key", "AKIA", 16)),
    (b"sia", 1, upper("aws_key", "ASIA", 16)),
    (b"aiz", 0, key("google_key", "AIza", 35)),
    (b"ya2", 0, key("google_token", "ya29.", 20)),
    (b"hf_", 0, key("huggingface_token", "hf_", 30)),
    (b"pm_", 1, key("npm_token", "npm_", 36)),
    (b"pi-", 2, key("pypi_token", "pypi-", 50)),
    (b"gsk", 0, key("api_key", "gsk_", 40)),
    (b"xai", 0, key("api_key", "xai-", 40)),
    (b"plx", 1, key("api_key", "pplx-", 40)),
    (b"r8_", 0, key("api_key", "r8_", 37)),
    (b"sg.", 0, key("sendgrid_key", "SG.", 20)),
    (b"p_v", 2, key("digitalocean_token", "dop_v1_", 60)),
    (b"y-1", 13, key("age_key", "AGE-SECRET-KEY-1", 50)),
    (b"hpa", 1, key("shopify_token", "shpat_", 32)),
    (b"in_", 1, key("linear_key", "lin_api_", 32)),
    (b"ntn", 0, key("notion_token", "ntn_", 40)),
    (b"dap", 0, Rule::Key { name: "databricks_token", prefix: "dapi", least: 32, of: Alphabet::Hex }),
    (b"hvs", 0, key("vault_token", "hvs.", 24)),
    (b"ckr", 1, key("docker_token", "dckr_pat_", 20)),
    (b"tt3", 3, key("atlassian_token", "ATATT3", 60)),
    (b"ms_", 6, key("rubygems_key", "rubygems_", 40)),
    (b"lsa", 1, key("grafana_token", "glsa_", 32)),
    (b"ys_", 4, key("sentry_token", "sntrys_", 40)),
    (b"sbp", 0, key("supabase_token", "sbp_", 40)),
    (b"tsk", 0, mixed("tailscale_key", "tskey-", 24)),
    (b"dp.", 0, key("doppler_token", "dp.pt.", 40)),
    (b"sq0", 0, key("square_token", "sq0", 22)),
    (b"pma", 0, mixed("postman_key", "PMAK-", 50)),
    (
        b"s.s",
        4,
        Rule::Key { name: "slack_webhook", prefix: "hooks.slack.com/services/", least: 20, of: Alphabet::Path },
    ),
    (b"---", 0, Rule::PrivateKey),
    (b"eyj", 0, Rule::Jwt),
    (b"://", 0, Rule::Url),
    (b"rer", 3, Rule::Bearer),
    (b"riz", 5, Rule::Authorization),
    (b"ssw", 0, Rule::Assignment),
    (b"ssp", 0, Rule::Assignment),
    (b"pwd", 0, Rule::Assignment),
    (b"ecr", 0, Rule::Assignment),
    (b"tok", 0, Rule::Assignment),
    (b"ike", 0, Rule::Assignment),
    (b"i_k", 0, Rule::Assignment),
    (b"i-k", 0, Rule::Assignment),
    (b"s_k", 0, Rule::Assignment),
    (b"e_k", 0, Rule::Assignment),
    (b"ssk", 0, Rule::Assignment),
    (b"ntk", 0, Rule::Assignment),
    (b"tek", 0, Rule::Assignment),
    (b"g_k", 0, Rule::Assignment),
    (b"n_k", 0, Rule::Assignment),
    (b"ede", 0, Rule::Assignment),
];

/// For each of the three places, which anchors a byte fits.
static FITS: [[u64; 256]; 3] = fits();

const fn fits() -> [[u64; 256]; 3] {
    let mut tables = [[0; 256]; 3];
    let mut anchor = 0;
    while anchor < ANCHORS.len() {
        let mut place = 0;
        while place < 3 {
            let byte = ANCHORS[anchor].0[place];
            tables[place][byte as usize] |= 1 << anchor;
            tables[place][byte.to_ascii_uppercase() as usize] |= 1 << anchor;
            place += 1;
        }
        anchor += 1;
    }
    tables
}

fn next_anchor(text: &[u8], from: usize) -> Option<(usize, u64)> {
    let [first, second, third] = &FITS;
    text.get(from..)?.windows(3).enumerate().find_map(|(at, bytes)| {
        let anchors = first[usize::from(bytes[0])] & second[usize::from(bytes[1])] & third[usize::from(bytes[2])];
        (anchors != 0).then_some((from + at, anchors))
    })
}

impl Rule {
    fn secret(self, text: &[u8], start: usize) -> Option<Secret> {
        match self {
            Self::Key { name, prefix, least, of } => {
                let at = key_at(text, start, prefix, least, of)?;
                // Two providers share the prefix; an anchor for each would find every place twice.
                let rule = if text[at.clone()].starts_with(b"sk-ant-") { "anthropic_key" } else { name };
                Some(Secret { at, rule })
            }
            Self::PrivateKey => private_key_at(text, start).map(|at| Secret { at, rule: "private_key" }),
            Self::Jwt => jwt_at(text, start).map(|at| Secret { at, rule: "jwt" }),
            Self::Url => url_password_at(text, start).map(|at| Secret { at, rule: "url_password" }),
            Self::Bearer => bearer_at(text, start).map(|at| Secret { at, rule: "bearer" }),
            Self::Authorization => authorization_at(text, start),
            Self::Assignment => assignment_at(text, start),
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Whether a word starts here; the letter of an escape such as `\n` is not part of it.
fn is_word_start(text: &[u8], start: usize) -> bool {
    match start.checked_sub(1).map(|before| text[before]) {
        None => true,
        Some(byte) if byte.is_ascii_alphanumeric() => start >= 2 && text[start - 2] == b'\\',
        Some(byte) => byte != b'_',
    }
}

fn run(text: &[u8], start: usize, of: impl Fn(u8) -> bool) -> usize {
    text[start.min(text.len())..].iter().take_while(|byte| of(**byte)).count()
}

fn key_at(text: &[u8], start: usize, prefix: &str, least: usize, of: Alphabet) -> Option<Range<usize>> {
    if !text.get(start..)?.starts_with(prefix.as_bytes()) || !is_word_start(text, start) {
        return None;
    }
    let tail = start + prefix.len();
    let more = |byte| match of {
        Alphabet::Token | Alphabet::Mixed => byte == b'.',
        Alphabet::Path => byte == b'/',
        Alphabet::Upper | Alphabet::Hex => false,
    };
    let length = run(text, tail, |byte| is_token(byte) || more(byte));
    let body = &text[tail..tail + length];
    let fits = match of {
        Alphabet::Token | Alphabet::Path => length >= least,
        Alphabet::Hex => length >= least && body.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')),
        Alphabet::Mixed => length >= least && body.iter().any(u8::is_ascii_digit),
        Alphabet::Upper => {
            length == least && body.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        }
    };
    fits.then_some(start..tail + length)
}

fn private_key_at(text: &[u8], start: usize) -> Option<Range<usize>> {
    let rest = text[start..].strip_prefix(b"-----BEGIN ")?;
    let label = run(rest, 0, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ');
    if !rest[..label].ends_with(b"PRIVATE KEY") && !rest[..label].ends_with(b"PRIVATE KEY BLOCK") {
        return None;
    }
    // A string ends at its quote, even if the key was cut off before its last line.
    let string = start + string_end(&text[start..]);
    let body = &text[start..string];
    let end = memchr::memmem::find(body, b"-----END ")
        .and_then(|end| memchr::memmem::find(&body[end + 9..], b"-----").map(|dashes| start + end + 9 + dashes + 5));
    Some(start..end.unwrap_or(string))
}

fn jwt_at(text: &[u8], start: usize) -> Option<Range<usize>> {
    if !text[start..].starts_with(b"eyJ") || !is_word_start(text, start) {
        return None;
    }
    let mut at = start;
    for part in 0..3 {
        let length = run(text, at, is_token);
        if length < 8 {
            return None;
        }
        at += length;
        if part < 2 {
            if text.get(at) != Some(&b'.') {
                return None;
            }
            at += 1;
        }
    }
    Some(start..at)
}

fn url_password_at(text: &[u8], start: usize) -> Option<Range<usize>> {
    let authority = start + 3;
    let length =
        run(text, authority, |byte| !matches!(byte, b'/' | b'"' | b'\\' | b'?' | b'#' | b'<' | b'>' | 0..=b' '));
    let authority = &text[authority..authority + length];
    let at = memchr::memrchr(b'@', authority)?;
    let colon = memchr::memchr(b':', &authority[..at])?;
    let secret = start + 3 + colon + 1..start + 3 + at;
    (!is_placeholder(&text[secret.clone()])).then_some(secret)
}

fn bearer_at(text: &[u8], start: usize) -> Option<Range<usize>> {
    if !text.get(start..start + 6)?.eq_ignore_ascii_case(b"bearer") || text.get(start + 6) != Some(&b' ') {
        return None;
    }
    let start = start + 7;
    let length = run(text, start, |byte| is_token(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'='));
    let token = &text[start..start + length];
    (length >= 16 && token.iter().any(u8::is_ascii_digit)).then_some(start..start + length)
}

fn authorization_at(text: &[u8], start: usize) -> Option<Secret> {
    const NAME: &[u8] = b"authorization";
    let end = start + NAME.len();
    if !text.get(start..end)?.eq_ignore_ascii_case(NAME) {
        return None;
    }
    let mut at = end + quote_at(text, end).len();
    if !matches!(text.get(at), Some(b':' | b'=')) {
        return None;
    }
    at += 1;
    at += run(text, at, |byte| byte == b' ');
    at += quote_at(text, at).len();
    let scheme = run(text, at, |byte| byte.is_ascii_alphabetic());
    let mut rule = "authorization";
    if text.get(at + scheme) == Some(&b' ') {
        if text[at..at + scheme].eq_ignore_ascii_case(b"bearer") {
            rule = "bearer";
        }
        at += scheme + 1;
    }
    let length = run(text, at, |byte| is_token(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=' | b':'));
    let secretive = length >= 12 && text[at..at + length].iter().any(u8::is_ascii_digit);
    secretive.then_some(Secret { at: at..at + length, rule })
}

fn string_end(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += next;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

/// Whether a name of a variable or a member says that its value is secret.
fn names_a_secret(name: &[u8]) -> bool {
    const ENDS: [&str; 18] = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "accesstoken",
        "refreshtoken",
        "authtoken",
        "token",
        "accountkey",
        "signingkey",
        "encryptionkey",
        "secretkeybase",
        "credential",
        "credentials",
    ];
    const WHOLE: [&str; 2] = ["pwd", "authorization"];
    let mut plain = [0; 64];
    let mut length = 0;
    for byte in name.iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        if length == plain.len() {
            return false;
        }
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let plain = &plain[..length];
    WHOLE.iter().any(|whole| plain == whole.as_bytes()) || ENDS.iter().any(|end| plain.ends_with(end.as_bytes()))
}

fn assignment_at(text: &[u8], inside: usize) -> Option<Secret> {
    let before = text[..inside].iter().rev().take_while(|byte| is_token(**byte)).count();
    let mut start = inside - before;
    if start > 0 && text[start - 1] == b'\\' {
        start += 1;
    }
    let end = inside + run(text, inside, is_token);
    if end - start > 48 || !names_a_secret(text.get(start..end)?) {
        return None;
    }
    let quoted = quote_at(text, end);
    let mut at = end + quoted.len();
    at += run(text, at, |byte| byte == b' ');
    let sign = *text.get(at)?;
    if !matches!(sign, b'=' | b':') || text.get(at + 1) == Some(&b'=') || text.get(at + 1) == Some(&b':') {
        return None;
    }
    at += 1;
    at += run(text, at, |byte| byte == b' ');
    let opening = quote_at(text, at);
    if !quoted.is_empty() && opening.is_empty() {
        // A member whose value is a number, a list or nothing at all.
        return None;
    }
    at += opening.len();
    let length = match opening {
        b"\"" => string_end(&text[at..]),
        b"" => run(text, at, |byte| {
            !matches!(byte, b'"' | b'\\' | b'\'' | b',' | b';' | b'&' | b')' | b'}' | b']' | 0..=b' ')
        }),
        _ => nested_end(&text[at..at + string_end(&text[at..])], opening)?,
    };
    let value = &text[at..at + length];
    let clear = !quoted.is_empty() || !opening.is_empty() || text[start..end].to_ascii_lowercase().starts_with(b"pass");
    let least = if clear { 4 } else { 8 };
    let secretive = clear || value.iter().any(u8::is_ascii_digit);
    if length < least || !secretive || is_placeholder(value) {
        return None;
    }
    Some(Secret { at: at..at + length, rule: "assignment" })
}

/// Where a string ends that is quoted inside a JSON string. There a backslash is two, and what it escapes comes after both.
fn nested_end(text: &[u8], quote: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(quote) {
            return Some(at);
        }
        at += match text[at..] {
            [b'\\', b'\\', b'\\', _, ..] => 4,
            [b'\\', b'\\', _, ..] => 3,
            [b'\\', _, ..] => 2,
            _ => 1,
        };
    }
    None
}

/// The quote that stands here: plain, single, or escaped inside a JSON string.
fn quote_at(text: &[u8], at: usize) -> &[u8] {
    match text.get(at..) {
        Some([b'\\', b'"', ..]) => &text[at..at + 2],
        Some([b'"' | b'\'', ..]) => &text[at..=at],
        _ => b"",
    }
}

/// Whether a value stands for one: a variable, a mark, or the word for a type where code and schemas have one.
fn is_placeholder(value: &[u8]) -> bool {
    const WORDS: [&str; 10] =
        ["string", "str", "none", "null", "true", "false", "undefined", "required", "optional", "bytes"];
    value.is_empty()
        || matches!(value[0], b'$' | b'<' | b'*' | b'%' | b'{')
        || value.starts_with(b"[REDACTED")
        || WORDS.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redacted(text: &str) -> String {
        let (clean, count) = Redactor::default().redact_text(text);
        assert_eq!(clean.matches("[REDACTED:").count() - text.matches("[REDACTED:").count(), count as usize);
        clean
    }

    /// Fakes, made here so that no scanner takes this file for a leak.
    fn fake(prefix: &str, length: usize) -> String {
        prefix.to_owned() + &"a1B2c3D4e5".repeat(10)[..length]
    }

    #[test]
    fn known_shapes_are_taken_out_wherever_they_stand() {
        for (prefix, length, rule) in [
            ("sk-ant-api03-", 40, "anthropic_key"),
            ("sk-proj-", 40, "api_key"),
            ("ghp_", 36, "github_token"),
            ("github_pat_", 40, "github_token"),
            ("glpat-", 20, "gitlab_token"),
            ("xoxb-", 30, "slack_token"),
            ("AIza", 35, "google_key"),
            ("hf_", 34, "huggingface_token"),
            ("npm_", 36, "npm_token"),
            ("pypi-", 60, "pypi_token"),
            ("sk_live_", 24, "stripe_key"),
        ] {
            let secret = fake(prefix, length);
            for (before, after) in [("", ""), ("see ", " and go"), ("\n", "\n"), ("(", ")"), ("x=", "")] {
                assert_eq!(redacted(&format!("{before}{secret}{after}")), format!("{before}[REDACTED:{rule}]{after}"));
            }
        }
        assert_eq!(redacted(&format!("AKIA{}", "ABCDEFGH12345678")), "[REDACTED:aws_key]");
    }

    #[test]
    fn ordinary_words_stay() {
        for text in [
            "the task-force asked for sk-learn and a risk-averse-solution",
            "token: expected identifier, found keyword",
            "input_tokens: 1200, \"max_tokens\":100",
            "no password given",
            "password: $PASSWORD",
            "https://example.org/a:b@c",
            "std::secret::Token",
            "decrease, secretary, tokenize",
            "Bearer of bad news",
            "AKIA is a prefix",
            "-----BEGIN PUBLIC KEY-----\nMII\n-----END PUBLIC KEY-----",
        ] {
            assert_eq!(redacted(text), text);
        }
    }

    #[test]
    fn assignments_lose_their_value_only() {
        for (text, clean) in [
            ("password=hunter22 next", "password=[REDACTED:assignment] next"),
            ("DB_PASSWORD: hunter22", "DB_PASSWORD: [REDACTED:assignment]"),
            ("api_key = 'abcd1234efgh'", "api_key = '[REDACTED:assignment]'"),
            (r#"{"client_secret":"abc\"def","x":1}"#, r#"{"client_secret":"[REDACTED:assignment]","x":1}"#),
            ("postgres://me:s3cret@db/x", "postgres://me:[REDACTED:url_password]@db/x"),
            ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [REDACTED:bearer]"),
        ] {
            assert_eq!(redacted(text), clean);
        }
        let mut json = br#"{"data":{"password":"a\"b,c","tokens":5,"token":null,"secret":["x"]}}"#.to_vec();
        assert_eq!(Redactor::default().redact(&mut json, 0), 1);
        assert_eq!(json, br#"{"data":{"password":"[REDACTED:assignment]","tokens":5,"token":null,"secret":["x"]}}"#);
    }

    #[test]
    fn a_private_key_goes_to_its_end_line_or_to_the_end() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nabc=\n-----END EC PRIVATE KEY-----";
        assert_eq!(redacted(&format!("a {key} b")), "a [REDACTED:private_key] b");
        assert_eq!(redacted(&format!("a {}", &key[..45])), "a [REDACTED:private_key]");
    }

    #[test]
    fn a_signed_token_needs_three_parts() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl";
        assert_eq!(redacted(jwt), "[REDACTED:jwt]");
        assert_eq!(redacted("eyJhbGciOiJIUzI1NiJ9"), "eyJhbGciOiJIUzI1NiJ9");
    }

    #[test]
    fn our_own_secrets_go_first_whatever_they_look_like() {
        let redactor = Redactor::knowing(["correct horse \"battery\"".to_owned(), "short".to_owned()]);
        let (clean, count) =
            redactor.redact_text("say correct horse \"battery\" twice: correct horse \"battery\", short");
        assert_eq!(clean, "say [REDACTED:own_secret] twice: [REDACTED:own_secret], short");
        assert_eq!(count, 2);
    }

    proptest! {
        #[test]
        fn what_was_json_stays_json(text in r#"([a-z"\\:= /@.\n]|password|token|sk-|://|Bearer |-----BEGIN PRIVATE KEY-----|eyJ|0123456789abcdef){0,40}"#) {
            let mut quoted = Vec::new();
            json::string(&text, &mut quoted);
            Redactor::default().redact(&mut quoted, 0);
            prop_assert!(json::is_normal(&quoted), "{}", String::from_utf8_lossy(&quoted));
            let mut object = b"{\"token\":".to_vec();
            json::string(&text, &mut object);
            object.push(b'}');
            Redactor::default().redact(&mut object, 0);
            prop_assert!(json::is_normal(&object), "{}", String::from_utf8_lossy(&object));
        }
    }
}
