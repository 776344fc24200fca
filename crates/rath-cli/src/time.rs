//! Parses and formats times.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use rath::Time;

/// Formats a time relative to now, as in `3 min ago`. After 30 days, the date.
pub(crate) fn ago(time: Time) -> String {
    let seconds = Time::now().micros_since(time) / 1_000_000;
    match seconds {
        0..=1 => "just now".into(),
        2..=59 => format!("{seconds} s ago"),
        60..=3599 => format!("{} min ago", seconds / 60),
        3600..=86_399 => format!("{} h ago", seconds / 3600),
        86_400..=2_591_999 => format!("{} d ago", seconds / 86_400),
        _ => local(time)[..10].to_owned(),
    }
}

/// Formats date and time in the machine's time zone, to the second.
pub(crate) fn local(time: Time) -> String {
    let stamp = i64::try_from(time.0).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    match stamp {
        Some(stamp) => stamp.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        None => time.to_string(),
    }
}

/// Parses the start of a period: an age (`2h`), a day (`yesterday`, `2026-11-16`), a local time (`2026-11-16 14:30`) or
/// an RFC 3339 timestamp. A day is its first microsecond.
pub(crate) fn since(text: &str) -> Result<Time, String> {
    moment(text, false)
}

/// Parses the end of a period, as [`since`] does. A day is its last microsecond.
pub(crate) fn until(text: &str) -> Result<Time, String> {
    moment(text, true)
}

/// Formats the date in the machine's time zone.
pub(crate) fn day(time: Time) -> String {
    local(time).get(..10).unwrap_or_default().to_owned()
}

fn moment(text: &str, end: bool) -> Result<Time, String> {
    let bad = || {
        format!(
            "invalid time {text:?}: expected for example 2h, 3d, yesterday, 2026-11-16, \"2026-11-16 14:30\" or 2026-11-16T14:30:00Z"
        )
    };
    let text = text.trim();
    let now = Time::now();
    let today = day(now).parse::<Date>().map_err(|_| bad())?;
    let of_day = |date: Date| {
        let date = if end { date.tomorrow().map_err(|_| bad())? } else { date };
        let start = date.to_zoned(TimeZone::system()).map_err(|_| bad())?.timestamp().as_microsecond();
        Ok(Time(u64::try_from(start - i64::from(end)).map_err(|_| bad())?))
    };
    match text.to_ascii_lowercase().as_str() {
        "now" => return Ok(now),
        "today" => return of_day(today),
        "yesterday" => return of_day(today.yesterday().map_err(|_| bad())?),
        _ => {}
    }
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit.trim() {
        "s" => Some(1),
        "m" | "min" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        "w" => Some(604_800),
        _ => None,
    };
    if let (Ok(number), Some(seconds)) = (number.parse::<u64>(), seconds) {
        return Ok(Time(now.0.saturating_sub(number.saturating_mul(seconds * 1_000_000))));
    }
    let stamp = match (text.len(), text.parse::<jiff::Timestamp>(), text.parse::<DateTime>()) {
        (10, _, _) => return of_day(text.parse().map_err(|_| bad())?),
        (_, Ok(stamp), _) => stamp,
        (_, _, Ok(time)) => time.to_zoned(TimeZone::system()).map_err(|_| bad())?.timestamp(),
        _ => return Err(bad()),
    };
    u64::try_from(stamp.as_microsecond()).map(Time).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_days_and_timestamps_parse() {
        let ago = |text: &str| {
            let then = since(text).unwrap();
            Time::now().micros_since(then) / 1_000_000
        };
        assert_eq!(
            ["0s", "90s", "2min", "2m", "3h", "1d", "2 w"].map(ago),
            [0, 90, 120, 120, 10_800, 86_400, 1_209_600]
        );
        assert_eq!(since("2026-11-16T14:30:00Z").unwrap(), Time(1_794_839_400_000_000));
        let (first, last) = (since("2026-11-16").unwrap(), until("2026-11-16").unwrap());
        assert_eq!(last.0 - first.0, 86_400_000_000 - 1);
        assert_eq!(since("2026-11-16 01:00").unwrap().0 - first.0, 3_600_000_000);
        assert!(
            since("yesterday").unwrap() < since("today").unwrap() && since("today").unwrap() <= since("now").unwrap()
        );
        for bad in
            ["", "2", "h", "2x", "soon", "2026-13-01", "2026-11-16T", "-2h", "1969-01-01", "99999999999999999999h"]
        {
            assert!(since(bad).is_err(), "{bad:?}");
        }
    }
}
