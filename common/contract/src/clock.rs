//! Wall clock: printed times, ids and expiry. `CP_NOW` (an RFC 3339 time) pins printed times in tests; it never moves
//! expiry, deadlines or budgets.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{
    DateTime, Datelike as _, Days, Local, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, Utc,
};

use crate::wire::{Error, Result};

/// Returns the time to print: UTC, microseconds, `Z`.
pub fn now() -> String {
    match std::env::var("CP_NOW").ok().and_then(|pinned| DateTime::parse_from_rfc3339(&pinned).ok()) {
        Some(pinned) => rfc3339(pinned.with_timezone(&Utc)),
        None => rfc3339(DateTime::<Utc>::from(SystemTime::now())),
    }
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
    unix_milliseconds() / 1000
}

/// Returns the milliseconds since 1970 by the real clock.
pub fn unix_milliseconds() -> u64 {
    unix_microseconds() / 1000
}

/// Returns the microseconds since 1970 by the real clock.
pub fn unix_microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Formats a number of seconds since 1970 as a printed time.
pub fn from_unix_seconds(seconds: u64) -> String {
    i64::try_from(seconds).ok().and_then(|s| DateTime::<Utc>::from_timestamp(s, 0)).map_or_else(now, rfc3339)
}

/// Parses a time that a user typed and formats it as a printed time: RFC 3339, a date (midnight UTC), a date with a
/// time of day, `today`, `yesterday` and the last day of a name such as `tuesday` (midnight), all three in the local
/// time zone, or a span before now such as `90s`, `30m`, `2h`, `7d`, `1w`.
pub fn time_of(text: &str) -> Result<String> {
    if let Some(time) = instant_of(text) {
        return Ok(time);
    }
    let midnight = |day: NaiveDate| day.and_hms_opt(0, 0, 0).map(|midnight| rfc3339(midnight.and_utc()));
    if let Some(time) = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().and_then(midnight) {
        return Ok(time);
    }
    let time = match text {
        "today" => local_midnight(0),
        "yesterday" => local_midnight(1),
        _ => last_weekday(text).or_else(|| local_time(text)).or_else(|| ago(text)),
    };
    time.ok_or_else(|| {
        Error::usage(format!("`{text}` is not a time")).hint(
            "write 2026-11-21T03:00:00Z, '2026-11-21 03:00', 2026-11-21, today, yesterday, tuesday, or a span before now such as 30m, 2h, 7d, 1w",
        )
    })
}

/// Converts an RFC 3339 time to the printed form; `None` if it is not valid.
fn instant_of(text: &str) -> Option<String> {
    DateTime::parse_from_rfc3339(text).ok().map(|time| rfc3339(time.with_timezone(&Utc)))
}

fn ago(span: &str) -> Option<String> {
    let (at, unit) = span.char_indices().last()?;
    let count: i64 = span[..at].parse().ok().filter(|_| span.starts_with(|first: char| first.is_ascii_digit()))?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let now = DateTime::parse_from_rfc3339(&now()).ok()?.with_timezone(&Utc);
    now.checked_sub_signed(TimeDelta::try_seconds(count.checked_mul(seconds)?)?).map(rfc3339)
}

/// Returns the midnight that began the last day with this name, which is today if today has it.
fn last_weekday(name: &str) -> Option<String> {
    let name: chrono::Weekday = name.parse().ok()?;
    local_midnight(u64::from(local_now()?.weekday().days_since(name)))
}

/// Parses a date with a time of day in the time zone of `TZ`, else of the machine.
fn local_time(text: &str) -> Option<String> {
    let text = text.replacen('T', " ", 1);
    let formats = ["%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f"];
    formats.into_iter().find_map(|format| NaiveDateTime::parse_from_str(&text, format).ok()).and_then(from_local)
}

/// Returns the midnight that began the day `days_before` days ago, in the time zone of `TZ`, else of the machine.
fn local_midnight(days_before: u64) -> Option<String> {
    let day = local_now()?.date_naive().checked_sub_days(Days::new(days_before))?;
    from_local(day.and_time(NaiveTime::MIN))
}

fn local_now() -> Option<DateTime<Local>> {
    DateTime::parse_from_rfc3339(&now()).ok().map(|now| now.with_timezone(&Local))
}

/// Formats a local time as a printed time: the earlier one if the clock was set back, an hour later if the clock
/// skipped it.
fn from_local(time: NaiveDateTime) -> Option<String> {
    let earliest = |time: NaiveDateTime| {
        let found = time.and_local_timezone(Local);
        // The order of the two is not defined, and the first moment after the clock was set back has a second one that
        // is not it.
        let both = [found.earliest(), found.latest()].into_iter().flatten().map(|found| found.with_timezone(&Utc));
        both.filter(|found| found.with_timezone(&Local).naive_local() == time).min()
    };
    earliest(time).or_else(|| earliest(time.checked_add_signed(TimeDelta::hours(1))?)).map(rfc3339)
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
        let day = |text: &str| time_of(text).unwrap();
        let names = ["monday", "tuesday", "wed", "thursday", "Friday", "sat", "sunday"].map(day);
        assert!(names.iter().all(|day| *day <= now() && *day > ago("8d").unwrap()), "{names:?}");
        assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), 7);
        assert!(names.contains(&day("today")) && names.contains(&day("yesterday")));
        let morning = day("2026-11-23 09:00");
        assert!(morning > day("2026-11-22T19:00:00Z") && morning < day("2026-11-24T00:00:00Z"), "{morning}");
        assert_eq!(time_of("2026-11-21T03:00:00+02:00").unwrap(), "2026-11-21T01:00:00.000000Z");
        assert_eq!(time_of("2026-11-21T03:00:00.5Z").unwrap(), "2026-11-21T03:00:00.500000Z");
        let [week, days, hours, minutes] = ["1w", "6d", "2h", "30m"].map(|span| time_of(span).unwrap());
        assert!(week < days && days < hours && hours < minutes && minutes < now());
        let [yesterday, today] = ["yesterday", "today"].map(|word| time_of(word).unwrap());
        assert!(yesterday < today && today <= now());
        for bad in ["", "h", "-1h", "+1h", "tomorrow", "2026-13-01", "99999999999999999d", "1é", "1y"] {
            assert!(time_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn printed_time_has_microseconds_and_z() {
        assert_eq!(from_unix_seconds(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(now().len(), "1970-01-01T00:00:00.000000Z".len());
    }
}
