//! Tokens with a recognizable structure but without a prefix.

use crate::Secret;
use crate::words::random::{is_hexadecimal, is_random};
use crate::words::scan::{is_token, is_word_start, run};

/// Returns a JSON Web Token: three dotted parts in base64url, the first of which begins an object.
pub(crate) fn jwt(text: &[u8], start: usize) -> Option<Secret> {
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
    // An encrypted token has five parts.
    while text.get(at) == Some(&b'.') && run(text, at + 1, is_token) >= 8 {
        at += 1 + run(text, at + 1, is_token);
    }
    Some(Secret { at: start..at, rule: "jwt" })
}

/// Returns a bot token of Telegram: digits, `:AA`, 33 characters. `colon` is the offset of the colon.
pub(crate) fn telegram(text: &[u8], colon: usize) -> Option<Secret> {
    let digits = text[..colon].iter().rev().take(17).take_while(|byte| byte.is_ascii_digit()).count();
    let length = run(text, colon + 1, is_token);
    let fits = (5..=16).contains(&digits) && length == 35 && text[colon + 1..].starts_with(b"AA");
    fits.then(|| Secret { at: colon - digits..colon + 1 + length, rule: "telegram_token" })
}

/// Returns a bot token of Discord: an id in base64, six characters of time, the rest.
pub(crate) fn discord(text: &[u8], start: usize) -> Option<Secret> {
    if !is_word_start(text, start) || !matches!(text[start], b'M' | b'N' | b'O') {
        return None;
    }
    let number = run(text, start, |byte| byte.is_ascii_alphanumeric());
    let time = start + number + 1;
    let rest = time + run(text, time, is_token) + 1;
    let length = run(text, rest, is_token);
    let fits = (23..=28).contains(&number)
        && rest == time + 7
        && (27..=40).contains(&length)
        && text[time - 1] == b'.'
        && text[rest - 1] == b'.';
    fits.then(|| Secret { at: start..rest + length, rule: "discord_token" })
}

/// Returns a key of Firebase Cloud Messaging: eleven characters, `:APA91b`, many more. `colon` is the offset of the
/// colon.
pub(crate) fn firebase(text: &[u8], colon: usize) -> Option<Secret> {
    let start = colon.checked_sub(11)?;
    let length = run(text, colon + 1, is_token);
    let fits =
        text[colon..].starts_with(b":APA91b") && length >= 100 && text[start..colon].iter().all(|byte| is_token(*byte));
    fits.then(|| Secret { at: start..colon + 1 + length, rule: "firebase_key" })
}

/// Returns a key of Twilio: `SK` and 32 hexadecimal digits.
pub(crate) fn twilio(text: &[u8], start: usize) -> Option<Secret> {
    let length = run(text, start, is_token);
    let fits = text[start..].starts_with(b"SK")
        && is_word_start(text, start)
        && length == 34
        && is_hexadecimal(&text[start + 2..start + 34]);
    fits.then(|| Secret { at: start..start + length, rule: "twilio_key" })
}

/// Returns a client secret of Azure: three characters, a digit, `Q~`, 31 to 34 more. `mark` is the offset of `Q~`.
pub(crate) fn azure(text: &[u8], mark: usize) -> Option<Secret> {
    let start = mark.checked_sub(4)?;
    let of = |byte: u8| is_token(byte) || matches!(byte, b'~' | b'.');
    let length = run(text, mark + 2, of);
    let fits = text[start..mark].iter().all(|byte| of(*byte))
        && text[mark - 1].is_ascii_digit()
        && text[mark..].starts_with(b"Q~")
        && (31..=36).contains(&length);
    fits.then(|| Secret { at: start..mark + 2 + length, rule: "azure_secret" })
}

/// Returns a key of Mailchimp: 32 hexadecimal digits and the name of a data center. `mark` is the offset of `-us`.
pub(crate) fn mailchimp(text: &[u8], mark: usize) -> Option<Secret> {
    let start = mark.checked_sub(32)?;
    let centre = run(text, mark + 3, |byte| byte.is_ascii_digit());
    let fits = text[mark..].starts_with(b"-us")
        && (1..=2).contains(&centre)
        && is_word_start(text, start)
        && text[start..mark].iter().all(u8::is_ascii_hexdigit);
    fits.then(|| Secret { at: start..mark + 3 + centre, rule: "mailchimp_key" })
}

/// Returns a token of Terraform Cloud: 14 characters, `.atlasv1.`, the rest. `mark` is the offset of `.atlasv1.`.
pub(crate) fn terraform(text: &[u8], mark: usize) -> Option<Secret> {
    const MARK: &[u8] = b".atlasv1.";
    let start = mark.checked_sub(14)?;
    let length = run(text, mark + MARK.len(), is_token);
    let fits =
        text[mark..].starts_with(MARK) && length >= 40 && text[start..mark].iter().all(u8::is_ascii_alphanumeric);
    fits.then(|| Secret { at: start..mark + MARK.len() + length, rule: "terraform_token" })
}

/// Returns the signature of a presigned URL: `sig=…`, `X-Amz-Signature=…`. `sign` is the offset of `ig=` or `re=`.
pub(crate) fn signature(text: &[u8], sign: usize) -> Option<Secret> {
    let before = &text[sign.saturating_sub(16)..sign];
    let name = before.iter().rposition(|byte| matches!(byte, b'?' | b'&' | b';')).map(|at| &before[at + 1..])?;
    let signs = [&b"s"[..], b"X-Amz-Signatu", b"X-Goog-Signatu", b"Signatu", b"signatu"];
    let start = sign + 3;
    let length = run(text, start, |byte| is_token(byte) || matches!(byte, b'%' | b'+' | b'/' | b'~' | b'=' | b'.'));
    let fits = signs.contains(&name) && length >= 20 && is_random(&text[start..start + length]);
    fits.then(|| Secret { at: start..start + length, rule: "url_signature" })
}

/// Returns a token of Asana: `1/` or `2/`, digits, a colon, 32 hexadecimal digits. `slash` is the offset of the slash.
pub(crate) fn asana(text: &[u8], slash: usize) -> Option<Secret> {
    let start = slash.checked_sub(1)?;
    if !matches!(text[start], b'0'..=b'2') || !is_word_start(text, start) {
        return None;
    }
    let digits = run(text, slash + 1, |byte| byte.is_ascii_digit() || byte == b'/');
    let colon = slash + 1 + digits;
    let length = run(text, colon + 1, is_token);
    let fits =
        digits >= 12 && text.get(colon) == Some(&b':') && length == 32 && is_hexadecimal(&text[colon + 1..colon + 33]);
    fits.then(|| Secret { at: start..colon + 1 + length, rule: "asana_token" })
}
