//! What a lease token looks like to a worker: the lease's own UUID, and with API tokens a tag that only the one which
//! claimed it can have. So a lease belongs to the token that claimed it, without the store having to remember whose it is.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::auth::{Caller, SecretHash};
use crate::job::LeaseToken;

/// 16 bytes: as hard to guess as the lease itself.
const TAG_BYTES: usize = 16;

/// For the worker.
pub(super) fn write(token: LeaseToken, caller: &Caller) -> String {
    match caller {
        Caller::Anyone => token.to_string(),
        Caller::Holder { secret, .. } => format!("{token}.{}", tag(token, secret)),
    }
}

/// From the worker; `None` if it is not a lease of this caller.
pub(super) fn read(text: &str, caller: &Caller) -> Option<LeaseToken> {
    let (lease, given) = text.split_once('.').unwrap_or((text, ""));
    let token = lease.parse().ok()?;
    match caller {
        Caller::Anyone => Some(token),
        Caller::Holder { secret, .. } => {
            bool::from(tag(token, secret).as_bytes().ct_eq(given.as_bytes())).then_some(token)
        }
    }
}

fn tag(token: LeaseToken, secret: &SecretHash) -> String {
    let digest = Sha256::new()
        .chain_update(b"steadfast lease")
        .chain_update(secret.as_bytes())
        .chain_update(token.as_uuid().as_bytes())
        .finalize();
    digest[..TAG_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_can_be_shown_only_by_the_token_that_claimed_it() {
        let holder = |secret| Caller::Holder { secret: SecretHash::of(secret), scopes: vec![] };
        let (a, b, token) = (holder("a"), holder("b"), LeaseToken::random());
        let text = write(token, &a);
        assert_eq!(read(&text, &a), Some(token));
        assert_eq!(read(&text, &b), None);
        assert_eq!(read(&token.to_string(), &a), None);
        assert_eq!(read(&write(token, &Caller::Anyone), &Caller::Anyone), Some(token));
        for bad in ["", ".", "x", &text[1..], &text[..text.len() - 1]] {
            assert_eq!(read(bad, &a), None, "{bad}");
        }
    }
}
