//! The content of a budget file: limits, sums, reservations, the rate and the pause. A process with a budget of its own keeps it in memory.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use cp_common::wire::Usage;
use serde::{Deserialize, Serialize};

/// The most reservations of a valid file: one host does not run more processes.
const MOST: usize = 4096;

/// An amount of dollars and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::engine) struct Amount {
    pub usd: f64,
    pub tokens: u64,
}

/// The limits of a budget; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// The amount that one process reserves for its requests in flight, and in advance for a few more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reservation {
    /// The suffix of the file that the owner keeps locked.
    pub id: String,
    /// The program and process id, for people who read the file.
    pub owner: String,
    pub since: Timestamp,
    pub tokens: u64,
    pub usd: f64,
}

/// The requests and tokens since a time, which determine when the next request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rate {
    pub window_start: Timestamp,
    pub requests: u64,
    pub tokens: u64,
}

/// The content of a budget file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetFile {
    pub limit: Limit,
    pub spent: Amount,
    pub reserved: Vec<Reservation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// No request is sent before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<Timestamp>,
}

/// Milliseconds since 1970, serialized as RFC 3339.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Timestamp(pub u64);

/// The time between requests, and between tokens, that limits the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub request: Duration,
    pub token: Duration,
}

impl Amount {
    /// The amount of a usage.
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

    /// The smaller dollars and the smaller tokens of two amounts.
    pub(super) fn min(self, most: Self) -> Self {
        Self { usd: self.usd.min(most.usd), tokens: self.tokens.min(most.tokens) }
    }

    /// Multiplies both parts.
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

    /// True if an amount reaches a limit.
    pub(super) fn is_reached(self, spent: Amount) -> bool {
        self.usd.is_some_and(|most| spent.usd >= most) || self.tokens.is_some_and(|most| spent.tokens >= most)
    }

    /// True if the limited parts of an amount are within another amount.
    pub(super) fn holds(self, amount: Amount, within: Amount) -> bool {
        (self.usd.is_none() || amount.usd <= within.usd) && (self.tokens.is_none() || amount.tokens <= within.tokens)
    }

    /// The amount to reserve in advance, so that not every request changes the file: at most 2 % of the limit and an eighth of the rest.
    pub(super) fn reserve_ahead(self, taken: Amount) -> Amount {
        let whole = Amount { usd: self.usd.unwrap_or(0.0), tokens: self.tokens.unwrap_or(0) };
        whole.scaled(1.0 / 50.0).min(whole.minus(taken).scaled(1.0 / 8.0))
    }
}

impl BudgetFile {
    /// Parses a file, also in the old format, which has only sums.
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

    /// The sum of all reservations.
    pub(super) fn reserved(&self) -> Amount {
        self.reserved.iter().map(Reservation::amount).fold(Amount::default(), Amount::plus)
    }
}

/// Parses the sums in the old format.
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
    /// Takes the next turn and returns its time. If the window is over, a new one begins now.
    pub(super) fn turn(rate: &mut Option<Self>, pace: Pace, now: Timestamp) -> Timestamp {
        // A clock that was set back must not stop the stream.
        let turn = rate.map_or(now, |rate| rate.window_start.min(now).after(pace.of(rate.requests, rate.tokens)));
        match rate.as_mut().filter(|_| turn > now) {
            Some(rate) => rate.requests = rate.requests.saturating_add(1),
            None => *rate = Some(Self { window_start: now, requests: 1, tokens: 0 }),
        }
        turn.max(now)
    }
}

impl Pace {
    /// Converts limits for a minute.
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

    /// The time since an earlier one.
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
