//! What a budget holds: limits, sums, reservations, the pace and the pause. One process has it in memory; several have it in a file.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use cp_common::wire::Usage;
use serde::{Deserialize, Serialize};

/// More reservations than this are not those of processes of one host.
const MOST: usize = 4096;

/// Dollars and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::engine) struct Amount {
    pub usd: f64,
    pub tokens: u64,
}

/// What may be spent; what is not there is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// What one process keeps for its requests under way, and a little for the next ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reservation {
    /// Its owner holds a lock on the file of this name.
    pub id: String,
    /// Who that is, for people.
    pub owner: String,
    pub since: Timestamp,
    pub tokens: u64,
    pub usd: f64,
}

/// The requests and tokens since a time: they say when the next request may go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rate {
    pub window_start: Timestamp,
    pub requests: u64,
    pub tokens: u64,
}

/// A budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetFile {
    pub limit: Limit,
    pub spent: Amount,
    pub reserved: Vec<Reservation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Nothing is sent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<Timestamp>,
}

/// Milliseconds since 1970, printed as a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Timestamp(pub u64);

/// How much time a request takes, and how much each of its tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub request: Duration,
    pub token: Duration,
}

impl Amount {
    /// What a use is.
    pub(in crate::engine) fn of(usage: &Usage) -> Self {
        let written = usage.output_tokens.saturating_add(usage.cache_write_tokens);
        let read = usage.input_tokens.saturating_add(usage.cache_read_tokens);
        Self { usd: usage.cost_usd.unwrap_or(0.0), tokens: read.saturating_add(written) }
    }

    pub(super) fn plus(self, more: Self) -> Self {
        // Rounding to nine digits keeps sums of dollars readable.
        let usd = ((self.usd + more.usd) * 1e9).round() / 1e9;
        Self { usd, tokens: self.tokens.saturating_add(more.tokens) }
    }

    pub(super) fn minus(self, less: Self) -> Self {
        let usd = ((self.usd - less.usd) * 1e9).round() / 1e9;
        Self { usd: usd.max(0.0), tokens: self.tokens.saturating_sub(less.tokens) }
    }

    /// Each part of it by itself, if that is less than this one's.
    pub(super) fn min(self, most: Self) -> Self {
        Self { usd: self.usd.min(most.usd), tokens: self.tokens.min(most.tokens) }
    }

    /// A part of it.
    #[expect(clippy::cast_precision_loss, reason = "as many tokens are never counted")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a count, cut off")]
    pub(super) fn scaled(self, part: f64) -> Self {
        Self { usd: self.usd * part, tokens: (self.tokens as f64 * part) as u64 }
    }

    fn is_valid(self) -> bool {
        self.usd.is_finite() && self.usd >= 0.0
    }
}

impl Limit {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether nothing is left.
    pub(super) fn is_reached(self, spent: Amount) -> bool {
        self.usd.is_some_and(|most| spent.usd >= most) || self.tokens.is_some_and(|most| spent.tokens >= most)
    }

    /// Whether an amount is within another, as far as it is limited.
    pub(super) fn holds(self, amount: Amount, within: Amount) -> bool {
        (self.usd.is_none() || amount.usd <= within.usd) && (self.tokens.is_none() || amount.tokens <= within.tokens)
    }

    /// What is kept for the next requests, so that not each of them has to change the file: little of the whole, less of the rest.
    pub(super) fn reserve_ahead(self, taken: Amount) -> Amount {
        let whole = Amount { usd: self.usd.unwrap_or(0.0), tokens: self.tokens.unwrap_or(0) };
        whole.scaled(1.0 / 50.0).min(whole.minus(taken).scaled(1.0 / 8.0))
    }
}

impl BudgetFile {
    /// What a file holds, if it is a budget: of this shape, or of the one that knew the sums only.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let content: Self = match serde_json::from_slice(text) {
            Ok(content) => content,
            Err(why) => Self { spent: sums(text).ok_or_else(|| why.to_string())?, ..Self::default() },
        };
        let amounts = content.reserved.iter().map(Reservation::amount).chain([content.spent]);
        let limit = Amount { usd: content.limit.usd.unwrap_or(0.0), tokens: 0 };
        let names_a_file = |id: &str| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !amounts.chain([limit]).all(Amount::is_valid) {
            return Err("an amount of dollars is not valid".to_owned());
        }
        if content.reserved.len() > MOST || !content.reserved.iter().all(|reserved| names_a_file(&reserved.id)) {
            return Err("a reservation is not valid".to_owned());
        }
        Ok(content)
    }

    /// What all reservations hold.
    pub(super) fn reserved(&self) -> Amount {
        self.reserved.iter().map(Reservation::amount).fold(Amount::default(), Amount::plus)
    }
}

/// The sums of a file that older versions wrote.
fn sums(text: &[u8]) -> Option<Amount> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sums {
        usd: f64,
        tokens: f64,
    }
    let Sums { usd, tokens } = serde_json::from_slice(text).ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, and its range is checked")]
    (0.0..1e18).contains(&tokens).then_some(Amount { usd, tokens: tokens as u64 })
}

impl Reservation {
    pub(super) fn amount(&self) -> Amount {
        Amount { usd: self.usd, tokens: self.tokens }
    }
}

impl Rate {
    /// The turn of the next request, which is taken. A window whose time is over is followed by one that begins now.
    pub(super) fn turn(rate: &mut Option<Self>, pace: Pace, now: Timestamp) -> Timestamp {
        // A clock that was set back does not stop the stream.
        let turn = rate.map_or(now, |rate| rate.window_start.min(now).after(pace.of(rate.requests, rate.tokens)));
        match rate.as_mut().filter(|_| turn > now) {
            Some(rate) => rate.requests = rate.requests.saturating_add(1),
            None => *rate = Some(Self { window_start: now, requests: 1, tokens: 0 }),
        }
        turn.max(now)
    }
}

impl Pace {
    /// So many in a minute; none is no limit.
    pub(super) fn new(requests: Option<u32>, tokens: Option<u32>) -> Self {
        let share = |limit: Option<u32>| limit.map_or(Duration::ZERO, |limit| Duration::from_mins(1) / limit.max(1));
        Self { request: share(requests), token: share(tokens) }
    }

    fn of(self, requests: u64, tokens: u64) -> Duration {
        let scaled = |each: Duration, count: u64| each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        scaled(self.request, requests).saturating_add(scaled(self.token, tokens))
    }
}

impl Timestamp {
    pub(super) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long it is from another to this one.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<Timestamp> for String {
    fn from(moment: Timestamp) -> Self {
        let time = i64::try_from(moment.0).ok().and_then(DateTime::<Utc>::from_timestamp_millis);
        time.unwrap_or(DateTime::<Utc>::MAX_UTC).to_rfc3339_opts(SecondsFormat::Millis, true)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let time = DateTime::parse_from_rfc3339(&text).map_err(|_| "not a time")?;
        u64::try_from(time.timestamp_millis()).map(Self).map_err(|_| "a time before 1970")
    }
}
