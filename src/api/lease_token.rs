//! What a lease token looks like to a worker: the lease's own UUID and, once there are API tokens, a tag (an HMAC) that
//! only the API token which claimed the lease gets. So a lease belongs to that token, without the store having to remember
//! whose it is.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use super::access::{Caller, SecretHash};
use crate::job::LeaseToken;

/// 16 bytes: as hard to guess as the lease itself.
const TAG_BYTES: usize = 16;

/// For the worker.
pub(super) fn write(token: LeaseToken, caller: &Caller) -> String {
    match caller {
        Caller::Anyone => token.to_string(),
        Caller::Holder(holder) => {
            let mut tag = [0; TAG_BYTES];
            tag.copy_from_slice(&mac(token, &holder.secret).finalize().into_bytes()[..TAG_BYTES]);
            // 16 bytes as 32 hex digits.
            format!("{token}.{}", Uuid::from_bytes(tag).simple())
        }
    }
}

/// From the worker; `None` if it is not a lease of this caller.
pub(super) fn read(text: &str, caller: &Caller) -> Option<LeaseToken> {
    let (lease, tag) = text.split_once('.').unwrap_or((text, ""));
    let token = lease.parse().ok()?;
    if let Caller::Holder(holder) = caller {
        let tag = Uuid::try_parse(tag).ok()?;
        // In constant time.
        mac(token, &holder.secret).verify_truncated_left(tag.as_bytes()).ok()?;
    }
    Some(token)
}

fn mac(token: LeaseToken, secret: &SecretHash) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret.as_bytes())
        .expect("an HMAC takes a key of any length")
        .chain_update(b"steadfast lease")
        .chain_update(token.as_uuid().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::access::ApiToken;
    use super::*;

    #[test]
    fn a_lease_can_be_shown_only_by_the_token_that_claimed_it() {
        let holder = |secret| Caller::Holder(Arc::new(ApiToken::of_operator(SecretHash::of(secret))));
        let (a, b, token) = (holder("a"), holder("b"), LeaseToken::random());
        let text = write(token, &a);
        assert_eq!(read(&text, &a), Some(token));
        assert_eq!(read(&text, &b), None);
        assert_eq!(read(&token.to_string(), &a), None);
        assert_eq!(read(&write(token, &Caller::Anyone), &Caller::Anyone), Some(token));
        for bad in ["", ".", "x", &text[1..], &text[..text.len() - 1]] {
            assert_eq!(read(bad, &a), None, "{bad}");
        }
        let last = if text.ends_with('0') { '1' } else { '0' };
        assert_eq!(read(&format!("{}{last}", &text[..text.len() - 1]), &a), None, "the whole tag is compared");
    }
}
