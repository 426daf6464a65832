//! The one door to the wall clock. `CP_NOW` (an RFC 3339 time) pins printed times in tests; it never moves expiry, deadlines or budgets.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};

/// The time to print: UTC, microseconds, `Z`.
pub fn now() -> String {
    match std::env::var("CP_NOW").ok().and_then(|pinned| DateTime::parse_from_rfc3339(&pinned).ok()) {
        Some(pinned) => rfc3339(pinned.with_timezone(&Utc)),
        None => rfc3339(DateTime::<Utc>::from(SystemTime::now())),
    }
}

/// The date of [`now`] as `YYYYMMDD`, for ids.
pub fn today() -> String {
    now().chars().take(10).filter(|c| *c != '-').collect()
}

/// Seconds since 1970 by the real clock: what expiry is measured with.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A count of seconds since 1970 as a printed time.
pub fn from_unix_seconds(seconds: u64) -> String {
    i64::try_from(seconds).ok().and_then(|s| DateTime::<Utc>::from_timestamp(s, 0)).map_or_else(now, rfc3339)
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_and_a_z() {
        assert_eq!(from_unix_seconds(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(now().len(), "1970-01-01T00:00:00.000000Z".len());
    }
}
