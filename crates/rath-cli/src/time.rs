//! Times as people say them.

use rath::Time;

/// `3 min ago`, or the date when it is long past.
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

/// Date and time of day in the machine's time zone, to the second.
pub(crate) fn local(time: Time) -> String {
    let stamp = i64::try_from(time.0).ok().and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
    match stamp {
        Some(stamp) => stamp.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        None => time.to_string(),
    }
}
