//! Keys of providers, recognized by their prefix.

use crate::secret::Secret;
use crate::shapes::token;
use crate::words::random::{is_hexadecimal, is_random};
use crate::words::scan::{is_base64, is_token, is_word_start, run};

/// The format of the text after the prefix of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Letters, digits, `-`, `_` and `.`.
    Token,
    /// Like `Token`, with at least one digit, for prefixes that also begin words.
    Mixed,
    /// Like `Token`, but random, for prefixes that also begin names.
    Random,
    /// Letters and digits.
    Alnum,
    /// Upper-case letters and digits, of the exact length.
    Upper,
    /// Lower-case hexadecimal digits.
    Hex,
    /// Base64 in either alphabet.
    Base64,
    /// The path of a URL that is a secret.
    Path,
    /// Parts separated by dollar signs.
    Dollar,
    /// Letters and digits with URL escapes.
    Percent,
    /// Upper-case letters and digits, of the minimum length.
    UpperFrom,
    /// A UUID.
    Uuid,
    /// 14 letters and digits, a full stop, 64 hexadecimal digits.
    Airtable,
}

use Rest::{Airtable, Alnum, Base64, Dollar, Hex, Mixed, Path, Percent, Random, Token, Upper, UpperFrom, Uuid};

/// A key: its rule, its prefix, the format of the rest, and the minimum length of the rest.
pub(crate) type Key = (&'static str, &'static str, Rest, usize);

/// Maximum number of bytes that are examined; the longest keys have some hundred bytes.
const LONGEST: usize = 2048;

/// The keys. If two prefixes begin alike, the longer one is first.
pub(crate) const KEYS: [Key; 219] = [
    ("anthropic_key", "sk-ant-", Token, 20),
    ("openai_key", "sk-proj-", Token, 20),
    ("openai_key", "sk-svcacct-", Token, 20),
    ("openai_key", "sk-admin-", Token, 20),
    ("openai_key", "sess-", Random, 40),
    ("openrouter_key", "sk-or-v1-", Token, 20),
    ("api_key", "sk-", Mixed, 20),
    ("stripe_key", "sk_live_", Token, 16),
    ("stripe_key", "sk_test_", Token, 16),
    ("stripe_key", "rk_live_", Token, 16),
    ("stripe_key", "rk_test_", Token, 16),
    ("stripe_key", "whsec_", Base64, 16),
    ("elevenlabs_key", "sk_", Mixed, 32),
    ("github_token", "ghp_", Alnum, 30),
    ("github_token", "gho_", Alnum, 30),
    ("github_token", "ghu_", Alnum, 30),
    ("github_token", "ghs_", Token, 30),
    ("github_token", "ghr_", Alnum, 30),
    ("github_token", "github_pat_", Token, 22),
    ("gitlab_token", "glpat-", Token, 20),
    ("gitlab_token", "gldt-", Token, 20),
    ("gitlab_token", "glrt-", Token, 20),
    ("gitlab_token", "glptt-", Token, 20),
    ("gitlab_token", "glft-", Token, 20),
    ("gitlab_token", "glimt-", Token, 20),
    ("gitlab_token", "glagent-", Token, 20),
    ("gitlab_token", "gloas-", Token, 20),
    ("gitlab_token", "glsoat-", Token, 20),
    ("gitlab_token", "glcbt-", Token, 20),
    ("gitlab_token", "glffct-", Token, 20),
    ("gitlab_token", "GR1348941", Token, 20),
    ("slack_token", "xoxb-", Mixed, 15),
    ("slack_token", "xoxp-", Mixed, 15),
    ("slack_token", "xoxa-", Mixed, 15),
    ("slack_token", "xoxr-", Mixed, 15),
    ("slack_token", "xoxs-", Mixed, 15),
    ("slack_token", "xoxo-", Mixed, 15),
    ("slack_token", "xoxc-", Mixed, 15),
    ("slack_token", "xoxd-", Mixed, 15),
    ("slack_token", "xoxe-", Mixed, 15),
    ("slack_token", "xoxe.xox", Mixed, 15),
    ("slack_token", "xapp-", Mixed, 15),
    ("slack_webhook", "hooks.slack.com/services/", Path, 20),
    ("slack_webhook", "hooks.slack.com/workflows/", Path, 20),
    ("slack_webhook", "hooks.slack.com/triggers/", Path, 20),
    ("discord_webhook", "discord.com/api/webhooks/", Path, 40),
    ("discord_webhook", "discordapp.com/api/webhooks/", Path, 40),
    ("teams_webhook", "webhook.office.com/webhookb2/", Path, 40),
    ("zapier_webhook", "hooks.zapier.com/hooks/catch/", Path, 10),
    ("aws_key", "AKIA", Upper, 16),
    ("aws_key", "ASIA", Upper, 16),
    ("aws_key", "ABIA", Upper, 16),
    ("aws_key", "ACCA", Upper, 16),
    ("aws_key", "A3TX", Upper, 16),
    ("aws_key", "amzn.mws.", Hex, 30),
    ("aws_key", "ABSK", Base64, 100),
    ("google_key", "AIza", Token, 35),
    ("google_token", "ya29.", Token, 20),
    ("google_token", "1//0", Token, 40),
    ("google_secret", "GOCSPX-", Token, 24),
    ("alibaba_key", "LTAI", Alnum, 16),
    ("huggingface_token", "hf_", Alnum, 30),
    ("huggingface_token", "api_org_", Alnum, 30),
    ("npm_token", "npm_", Alnum, 36),
    ("pypi_token", "pypi-", Token, 50),
    ("rubygems_key", "rubygems_", Hex, 40),
    ("nuget_key", "oy2", Alnum, 43),
    ("clojars_token", "CLOJARS_", Alnum, 60),
    ("groq_key", "gsk_", Alnum, 40),
    ("xai_key", "xai-", Token, 40),
    ("perplexity_key", "pplx-", Token, 40),
    ("replicate_token", "r8_", Alnum, 37),
    ("nvidia_key", "nvapi-", Token, 40),
    ("cerebras_key", "csk-", Random, 40),
    ("tavily_key", "tvly-", Token, 20),
    ("pinecone_key", "pcsk_", Token, 40),
    ("langsmith_key", "lsv2_", Token, 30),
    ("jina_key", "jina_", Token, 40),
    ("runpod_key", "rpa_", Alnum, 30),
    ("together_key", "tgp_v1_", Token, 30),
    ("e2b_key", "e2b_", Hex, 40),
    ("firecrawl_key", "fc-", Hex, 32),
    ("voyage_key", "pa-", Random, 40),
    ("fireworks_key", "fw_", Alnum, 22),
    ("sendgrid_key", "SG.", Token, 20),
    ("sendinblue_key", "xkeysib-", Token, 40),
    ("mailgun_key", "key-", Hex, 32),
    ("mailchimp_key", "md-", Random, 22),
    ("resend_key", "re_", Random, 30),
    ("digitalocean_token", "dop_v1_", Hex, 60),
    ("digitalocean_token", "doo_v1_", Hex, 60),
    ("digitalocean_token", "dor_v1_", Hex, 60),
    ("age_key", "AGE-SECRET-KEY-1", Token, 50),
    ("shopify_token", "shpat_", Alnum, 32),
    ("shopify_token", "shpss_", Alnum, 32),
    ("shopify_token", "shpca_", Alnum, 32),
    ("shopify_token", "shppa_", Alnum, 32),
    ("linear_key", "lin_api_", Alnum, 32),
    ("linear_key", "lin_oauth_", Alnum, 32),
    ("notion_token", "ntn_", Alnum, 40),
    ("notion_token", "secret_", Alnum, 40),
    ("databricks_token", "dapi", Hex, 32),
    ("databricks_token", "dose", Hex, 32),
    ("vault_token", "hvs.", Token, 24),
    ("vault_token", "hvb.", Token, 24),
    ("vault_token", "hvr.", Token, 24),
    ("docker_token", "dckr_pat_", Token, 20),
    ("docker_token", "dckr_oat_", Token, 20),
    ("atlassian_token", "ATATT3", Base64, 60),
    ("atlassian_token", "ATCTT3", Base64, 60),
    ("bitbucket_token", "ATBB", Alnum, 28),
    ("grafana_token", "glsa_", Token, 32),
    ("grafana_token", "glc_", Base64, 32),
    ("sentry_token", "sntrys_", Base64, 40),
    ("sentry_token", "sntryu_", Hex, 40),
    ("supabase_token", "sbp_", Hex, 40),
    ("supabase_key", "sb_secret_", Token, 20),
    ("tailscale_key", "tskey-", Mixed, 24),
    ("doppler_token", "dp.pt.", Token, 40),
    ("doppler_token", "dp.st.", Token, 40),
    ("doppler_token", "dp.sa.", Token, 40),
    ("doppler_token", "dp.ct.", Token, 40),
    ("square_token", "sq0atp-", Token, 22),
    ("square_token", "sq0csp-", Token, 40),
    ("square_token", "EAAA", Random, 56),
    ("facebook_token", "EAAC", Alnum, 60),
    ("facebook_token", "EAAM", Alnum, 60),
    ("facebook_token", "EAAG", Alnum, 60),
    ("postman_key", "PMAK-", Token, 50),
    ("newrelic_key", "NRAK-", Token, 27),
    ("newrelic_key", "NRII-", Token, 32),
    ("dynatrace_token", "dt0c01.", Token, 80),
    ("easypost_key", "EZAK", Alnum, 54),
    ("easypost_key", "EZTK", Alnum, 54),
    ("figma_token", "figd_", Token, 36),
    ("flyio_token", "fo1_", Token, 40),
    ("flyio_token", "fm2_", Base64, 80),
    ("planetscale_token", "pscale_", Token, 32),
    ("posthog_key", "phx_", Alnum, 40),
    ("pulumi_token", "pul-", Hex, 40),
    ("prefect_token", "pnu_", Alnum, 36),
    ("readme_key", "rdme_", Alnum, 60),
    ("sonar_token", "squ_", Hex, 40),
    ("sonar_token", "sqp_", Hex, 40),
    ("sonar_token", "sqa_", Hex, 40),
    ("sourcegraph_token", "sgp_", Token, 40),
    ("typeform_token", "tfp_", Token, 40),
    ("netlify_token", "nfp_", Alnum, 36),
    ("neon_key", "napi_", Alnum, 50),
    ("circleci_token", "CCIPAT_", Token, 40),
    ("buildkite_token", "bkua_", Hex, 40),
    ("contentful_token", "CFPAT-", Token, 40),
    ("heroku_key", "HRKU-", Token, 36),
    ("artifactory_key", "AKCp", Alnum, 60),
    ("onepassword_token", "ops_eyJ", Base64, 80),
    ("infracost_key", "ico-", Alnum, 32),
    ("openshift_token", "sha256~", Token, 40),
    ("dropbox_token", "sl.", Random, 100),
    ("confirm_token", "ct_", Hex, 40),
    ("crates_io_token", "cio", Random, 32),
    ("hubspot_token", "pat-na1-", Hex, 36),
    ("hubspot_token", "pat-na2-", Hex, 36),
    ("hubspot_token", "pat-eu1-", Hex, 36),
    ("hubspot_token", "pat-ap1-", Hex, 36),
    ("vercel_token", "vcp_", Alnum, 24),
    ("vercel_token", "vck_", Alnum, 24),
    ("vercel_token", "vci_", Alnum, 24),
    ("vercel_token", "vca_", Alnum, 24),
    ("vercel_token", "vcr_", Alnum, 24),
    ("paseto", "v1.local.", Token, 40),
    ("paseto", "v2.local.", Token, 40),
    ("paseto", "v3.local.", Token, 40),
    ("paseto", "v4.local.", Token, 40),
    ("paseto", "v1.public.", Token, 40),
    ("paseto", "v2.public.", Token, 40),
    ("paseto", "v3.public.", Token, 40),
    ("paseto", "v4.public.", Token, 40),
    ("mapbox_token", "sk.eyJ", Token, 60),
    ("mapbox_token", "tk.eyJ", Token, 60),
    ("paypal_token", "access_token$production$", Dollar, 40),
    ("paypal_token", "access_token$sandbox$", Dollar, 40),
    ("twitter_bearer", "AAAAAAAAAAAAAAAAAAAAA", Percent, 80),
    ("bip32_key", "xprv", Alnum, 100),
    ("airtable_token", "pat", Airtable, 79),
    ("trello_token", "ATTA", Hex, 64),
    ("render_key", "rnd_", Alnum, 28),
    ("apify_token", "apify_api_", Alnum, 30),
    ("wakatime_key", "waka_", Hex, 36),
    ("cloudflare_key", "v1.0-", Hex, 100),
    ("octopus_key", "API-", UpperFrom, 25),
    ("shippo_token", "shippo_live_", Hex, 40),
    ("shippo_token", "shippo_test_", Hex, 40),
    ("duffel_token", "duffel_live_", Token, 40),
    ("duffel_token", "duffel_test_", Token, 40),
    ("plaid_token", "access-production-", Hex, 36),
    ("plaid_token", "access-sandbox-", Hex, 36),
    ("plaid_token", "access-development-", Hex, 36),
    ("flutterwave_key", "FLWSECK-", Token, 32),
    ("flutterwave_key", "FLWSECK_TEST-", Token, 12),
    ("razorpay_key", "rzp_live_", Alnum, 14),
    ("razorpay_key", "rzp_test_", Alnum, 14),
    ("launchdarkly_key", "sdk-", Uuid, 36),
    ("launchdarkly_key", "api-", Uuid, 36),
    ("adafruit_key", "aio_", Alnum, 28),
    ("frameio_token", "fio-u-", Token, 60),
    ("ory_token", "ory_pat_", Token, 30),
    ("ory_token", "ory_at_", Token, 30),
    ("tencent_key", "AKID", Random, 32),
    ("yandex_key", "AQVN", Token, 35),
    ("yandex_token", "y0_", Random, 50),
    ("intercom_token", "dG9rO", Base64, 50),
    ("anyscale_key", "esecret_", Alnum, 20),
    ("kaggle_token", "KGAT_", Alnum, 30),
    ("bedrock_key", "bedrock-api-key-", Base64, 60),
    ("stytch_secret", "secret-live-", Token, 36),
    ("stytch_secret", "secret-test-", Token, 36),
    ("gitlab_token", "glwt-", Token, 20),
    ("mergify_key", "mka_", Token, 30),
    ("lob_key", "live_", Random, 35),
];

/// Returns the offset of the rarest three bytes of a prefix: signs and digits are rarer than letters, and some letters
/// than others.
pub(crate) const fn rarest_of(prefix: &[u8]) -> usize {
    let (mut best, mut best_weight, mut at) = (0, 0, 0);
    while at + 3 <= prefix.len() {
        let weight = weight(prefix[at]) + weight(prefix[at + 1]) + weight(prefix[at + 2]);
        if weight > best_weight {
            (best, best_weight) = (at, weight);
        }
        at += 1;
    }
    best
}

const fn weight(byte: u8) -> u32 {
    match byte.to_ascii_lowercase() {
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 1,
        b'j' | b'q' | b'x' | b'z' | b'k' | b'v' | b'w' | b'g' | b'b' | b'-' | b'.' | b'/' | b'~' => 3,
        b'0'..=b'9' | b'_' => 4,
        _ => 2,
    }
}

/// Returns the key of this kind that begins here.
pub(crate) fn at(text: &[u8], start: usize, (rule, prefix, of, least): Key) -> Option<Secret> {
    if !text.get(start..)?.starts_with(prefix.as_bytes()) || !is_word_start(text, start) {
        return None;
    }
    if start > 0 && matches!(text[start - 1], b'+' | b'/') && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        // Base64 text contains every such prefix somewhere.
        return None;
    }
    let tail = start + prefix.len();
    let text = &text[..text.len().min(tail + LONGEST)];
    let end = tail
        + match of {
            Token | Mixed | Random | Airtable => run(text, tail, |byte| is_token(byte) || byte == b'.'),
            Dollar => run(text, tail, |byte| byte.is_ascii_alphanumeric() || byte == b'$'),
            Percent => run(text, tail, |byte| byte.is_ascii_alphanumeric() || byte == b'%'),
            Base64 => run(text, tail, is_base64),
            Path => run(text, tail, |byte| is_token(byte) || matches!(byte, b'/' | b'@')),
            Alnum | Upper | UpperFrom | Hex | Uuid => run(text, tail, is_token),
        };
    // A full stop ends the sentence, not the key.
    let end = end - usize::from(text[tail..end].ends_with(b"."));
    let body = &text[tail..end];
    // `ghp_xxxx…` illustrates the format of a key.
    let fits = body.len() >= least
        && body.iter().any(|byte| *byte != body[0])
        && match of {
            Token | Base64 | Path | Dollar => true,
            Airtable => is_airtable(body),
            Uuid => is_uuid(body),
            Mixed => body.iter().any(u8::is_ascii_digit),
            Percent | Random => is_random(body),
            Alnum => body.iter().all(u8::is_ascii_alphanumeric),
            Upper => body.len() == least && body.iter().all(|byte| is_capital(*byte)),
            UpperFrom => body.iter().all(|byte| is_capital(*byte)) && body.iter().any(u8::is_ascii_digit),
            Hex => body.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')),
        };
    fits.then_some(Secret { at: start..end, rule })
}

fn is_capital(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_airtable(body: &[u8]) -> bool {
    body.len() == 79
        && body[14] == b'.'
        && body[..14].iter().all(u8::is_ascii_alphanumeric)
        && is_hexadecimal(&body[15..])
}

fn is_uuid(body: &[u8]) -> bool {
    let dashes = [8, 13, 18, 23].iter().all(|at| body.get(*at) == Some(&b'-'));
    body.len() == 36 && dashes && is_hexadecimal(body)
}

/// Returns the key of any kind that begins here.
pub(crate) fn any_at(text: &[u8], start: usize) -> Option<Secret> {
    let key = KEYS.iter().find_map(|key| at(text, start, *key));
    key.or_else(|| token::jwt(text, start)).or_else(|| token::discord(text, start))
}
