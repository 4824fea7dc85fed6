//! When a server asks us to come back.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// A day: who asks for more has made a mistake, or wants the job dead.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the answer's `Retry-After` asks to wait: seconds, or a date, which is taken relative to the answer's own
/// `Date`, so that a wrong clock on either side does not matter. At most a day. `None` if there is none, or it cannot be
/// read.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits that no integer holds are a very long time, too.
        let seconds = text.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(WAIT_MAX));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    let date = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let now = date.unwrap_or_else(SystemTime::now);
    Some(then.duration_since(now).unwrap_or(Duration::ZERO).min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(retry_after_header: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after_header.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        retry_after(&headers)
    }

    #[test]
    fn seconds_are_taken_and_never_more_than_a_day() {
        let day = Some(Duration::from_secs(86_400));
        for (text, wait) in [
            ("0", Some(Duration::ZERO)),
            ("1", Some(Duration::from_secs(1))),
            (" 120 ", Some(Duration::from_secs(120))),
            ("86401", day),
            ("1000000000000", day),
            ("99999999999999999999999999", day),
            ("-1", None),
            ("1.5", None),
            ("+5", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(asked(text, None), wait, "{text:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn a_date_is_taken_relative_to_the_answers_own_clock() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(asked("Sun, 06 Nov 1994 08:50:07 GMT", date), Some(Duration::from_secs(30)));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:00 GMT", date), Some(Duration::ZERO), "it has passed");
        assert_eq!(asked("Sat, 06 Nov 2094 08:49:37 GMT", date), Some(Duration::from_secs(86_400)));
        assert_eq!(asked("Sun, 06 Nov 1994 08:50:07 GMT", None), Some(Duration::ZERO), "by our clock long ago");
        assert_eq!(asked("Sun, 06 Nov 1994 08:50:07 GMT", Some("yesterday")), Some(Duration::ZERO));
    }
}
