//! Wall clock: printed times, ids and expiry. `CP_NOW` (an RFC 3339 time) pins printed times in tests; it never moves
//! expiry, deadlines or budgets.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Days, Local, SecondsFormat, TimeDelta, Utc};

use crate::wire::{Error, Result};

/// Returns the time to print: UTC, microseconds, `Z`.
pub fn now() -> String {
    rfc3339(instant())
}

fn instant() -> DateTime<Utc> {
    let pinned = std::env::var("CP_NOW").ok().and_then(|pinned| DateTime::parse_from_rfc3339(&pinned).ok());
    pinned.map_or_else(|| SystemTime::now().into(), |pinned| pinned.to_utc())
}

/// Returns a printed time in whole seconds, for text.
pub fn in_seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, fraction)) if fraction.ends_with('Z') => format!("{seconds}Z"),
        _ => time.to_owned(),
    }
}

/// Returns the date of [`now`] as `YYYYMMDD`, for ids.
pub fn today() -> String {
    now().chars().take(10).filter(|c| *c != '-').collect()
}

/// Returns the seconds since 1970 by the real clock, for expiry.
pub fn unix_seconds() -> u64 {
    unix_microseconds() / 1_000_000
}

/// Returns the microseconds since 1970 by the real clock.
pub fn unix_microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Formats a number of seconds since 1970 as a printed time.
pub fn from_unix_seconds(seconds: u64) -> String {
    i64::try_from(seconds).ok().and_then(|s| DateTime::<Utc>::from_timestamp(s, 0)).map_or_else(now, rfc3339)
}

/// Parses a time that a user typed and formats it as a printed time: RFC 3339, a date (midnight UTC), `today` or
/// `yesterday` (midnight in the zone of `TZ`, else of the machine), or a span before now such as `90s`, `30m`, `2h`,
/// `7d`, `1w`.
pub fn time_of(text: &str) -> Result<String> {
    let time = match text {
        "today" => local_midnight(0),
        "yesterday" => local_midnight(1),
        _ => DateTime::parse_from_rfc3339(&format!("{text}T00:00:00Z"))
            .or_else(|_| DateTime::parse_from_rfc3339(text))
            .map_or_else(|_| before_now(text), |time| Some(time.to_utc())),
    };
    time.map(rfc3339).ok_or_else(|| {
        Error::usage(format!("`{text}` is not a time")).hint(
            "write 2026-11-21T03:00:00Z, 2026-11-21, today, yesterday, or a span before now such as 30m, 2h, 7d, 1w",
        )
    })
}

fn before_now(span: &str) -> Option<DateTime<Utc>> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400)];
    let (count, seconds) = units.iter().find_map(|(unit, seconds)| Some((span.strip_suffix(*unit)?, *seconds)))?;
    let count = count.parse::<u32>().ok().filter(|_| !count.starts_with('+'))?;
    instant().checked_sub_signed(TimeDelta::try_seconds(i64::from(count) * seconds)?)
}

/// Returns the midnight that began the day `days_before` days ago, or an hour later if the clock skipped it.
fn local_midnight(days_before: u64) -> Option<DateTime<Utc>> {
    let day = instant().with_timezone(&Local).date_naive().checked_sub_days(Days::new(days_before))?;
    let first = |hour| {
        let found = day.and_hms_opt(hour, 0, 0)?.and_local_timezone(Local);
        // The order of the two is not defined.
        [found.earliest(), found.latest()].into_iter().flatten().min()
    };
    first(0).or_else(|| first(1)).map(|time| time.to_utc())
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_human_forms_returns_utc() {
        assert_eq!(time_of("2026-11-21").unwrap(), "2026-11-21T00:00:00.000000Z");
        assert_eq!(time_of("2026-11-21T03:00:00+02:00").unwrap(), "2026-11-21T01:00:00.000000Z");
        assert_eq!(time_of("2026-11-21T03:00:00.5Z").unwrap(), "2026-11-21T03:00:00.500000Z");
        let [week, days, hours, minutes] = ["1w", "6d", "2h", "30m"].map(|span| time_of(span).unwrap());
        assert!(week < days && days < hours && hours < minutes && minutes < now());
        let [yesterday, today] = ["yesterday", "today"].map(|word| time_of(word).unwrap());
        assert!(yesterday < today && today <= now());
        for bad in
            ["", "h", "-1h", "+1h", "tomorrow", "tuesday", "2026-13-01", "2026-11-21 09:00", "9999999999d", "1é", "1y"]
        {
            assert!(time_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn printed_time_has_microseconds_and_z() {
        assert_eq!(from_unix_seconds(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(now().len(), "1970-01-01T00:00:00.000000Z".len());
    }
}
