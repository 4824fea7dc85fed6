//! Which headers a caller or an operator may set, and which are ours alone.
//!
//! Names and values become typed headers here or are refused; nothing else puts text into a request.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};

/// 32 headers: more than any webhook needs, far below what servers accept.
const COUNT_MAX: usize = 32;
/// 64 bytes, like the names of everything else here.
const NAME_MAX_BYTES: usize = 64;
/// 1 KiB: a bearer token of the usual length.
const VALUE_MAX_BYTES: usize = 1024;
/// 8 KiB of names and values in all: what common servers accept for all headers of a request.
const ALL_MAX_BYTES: usize = 8 * 1024;

/// Frame the message, are bound to the connection, or are set by us.
const OURS: [&str; 13] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Whole families that are ours.
const OUR_PREFIXES: [&str; 3] = ["proxy-", "webhook-", "steadfast-"];

/// The headers of a payload, typed; the error says which one is wrong and why.
pub(crate) fn of_caller(headers: Option<&BTreeMap<String, String>>) -> Result<HeaderMap, String> {
    let mut typed = HeaderMap::new();
    let Some(headers) = headers else { return Ok(typed) };
    if headers.len() > COUNT_MAX {
        return Err(format!("headers: {} are too many, at most {COUNT_MAX}", headers.len()));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ALL_MAX_BYTES {
        return Err(format!("headers: {bytes} bytes are too many, at most {ALL_MAX_BYTES} for all names and values"));
    }
    for (name, value) in headers {
        let (typed_name, typed_value) = header(name, value, VALUE_MAX_BYTES)?;
        if typed.insert(typed_name, typed_value).is_some() {
            return Err(format!("headers: {name:?} is given twice, in upper and lower case"));
        }
    }
    Ok(typed)
}

/// One header of an operator, who may have longer values.
pub(crate) fn of_operator(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, mut value) = header(name, value, ALL_MAX_BYTES)?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn header(name: &str, value: &str, value_max_bytes: usize) -> Result<(HeaderName, HeaderValue), String> {
    if name.len() > NAME_MAX_BYTES {
        return Err(format!("headers: a name has {} bytes, at most {NAME_MAX_BYTES}", name.len()));
    }
    let typed_name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("headers: {name:?} is not the name of a header"))?;
    if is_ours(typed_name.as_str()) {
        return Err(format!("headers: {name:?} is set by Steadfast or by HTTP itself: leave it out"));
    }
    if value.len() > value_max_bytes {
        return Err(format!("headers: the value of {name:?} has {} bytes, at most {value_max_bytes}", value.len()));
    }
    // Visible ASCII and spaces: what every server reads the same way. CR, LF, NUL and tab are not among it.
    let visible = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let typed_value = HeaderValue::from_str(value).ok().filter(|_| visible);
    let typed_value = typed_value
        .ok_or_else(|| format!("headers: the value of {name:?} holds a character other than visible ASCII"))?;
    Ok((typed_name, typed_value))
}

/// `webhook_id` counts as `webhook-id`: where headers become variables (CGI, WSGI, PHP), both have one name.
fn is_ours(name: &str) -> bool {
    let name = name.replace('_', "-");
    OURS.contains(&name.as_str()) || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(headers: &[(&str, &str)]) -> Result<HeaderMap, String> {
        of_caller(Some(&headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()))
    }

    #[test]
    fn s21_headers_that_frame_route_or_sign_are_refused_in_every_spelling() {
        let ours = [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "transfer_encoding",
            "CONNECTION",
            "keep-alive",
            "te",
            "trailer",
            "upgrade",
            "expect",
            "Proxy-Authorization",
            "proxy-connection",
            "webhook-id",
            "Webhook-Signature",
            "webhook_id",
            "WEBHOOK_TIMESTAMP",
            "steadfast-job-id",
            "steadfast_retry",
            "Content-Type",
            "accept-encoding",
        ];
        for name in ours {
            let refused = caller(&[(name, "x")]).unwrap_err();
            assert!(refused.contains("leave it out"), "{name}: {refused}");
            assert!(of_operator(name, "x").is_err(), "{name}");
        }
        assert!(
            caller(&[("x-shop", "7"), ("Authorization", "Bearer x"), ("user-agent", "shop"), ("x-webhook-id", "")])
                .is_ok()
        );
    }

    #[test]
    fn s21_line_ends_nul_and_other_controls_are_refused() {
        for bad in ["a\r\nwebhook-id: 1", "a\nb", "a\rb", "a\0", "a\tb", "a\u{7f}", "ä", "a\u{2028}"] {
            assert!(caller(&[("x-shop", bad)]).unwrap_err().contains("visible ASCII"), "{bad:?}");
            assert!(of_operator("x-shop", bad).is_err(), "{bad:?}");
        }
        for bad in ["", "a b", "a:b", "a\r\nb", "a\0", "ä", "(x)"] {
            assert!(caller(&[(bad, "x")]).unwrap_err().contains("not the name"), "{bad:?}");
        }
    }

    #[test]
    fn s39_number_and_sizes_are_limited() {
        let many = |count: usize, bytes: usize| {
            let names: Vec<_> = (0..count).map(|n| format!("x-{n:02}")).collect();
            let value = "v".repeat(bytes);
            caller(&names.iter().map(|name| (name.as_str(), value.as_str())).collect::<Vec<_>>())
        };
        assert!(many(32, 10).is_ok());
        assert!(many(33, 10).unwrap_err().contains("too many"));
        assert!(many(1, 1024).is_ok() && many(7, 1024).is_ok());
        assert!(many(1, 1025).unwrap_err().contains("1025 bytes"));
        assert!(many(8, 1024).unwrap_err().contains("8192 for all"));
        assert!(caller(&[(&"x".repeat(64), "v")]).is_ok());
        assert!(caller(&[(&"x".repeat(65), "v")]).unwrap_err().contains("65 bytes"));
    }

    #[test]
    fn s39_a_header_given_in_two_cases_is_refused() {
        assert!(caller(&[("X-Shop", "1"), ("x-shop", "2")]).unwrap_err().contains("twice"));
    }

    #[test]
    fn values_of_the_operator_are_not_shown() {
        let (_, value) = of_operator("authorization", "Bearer canary").unwrap();
        assert!(!format!("{value:?}").contains("canary"));
    }
}
