//! Signatures by the Standard Webhooks specification: `v1` is HMAC-SHA256, `v1a` is Ed25519. What is signed is
//! `id.timestamp.body`, with the bytes of the body as they are sent.
//!
//! A key is never shown: not by `Debug`, and not in an error about a text that is none.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_PAD_INDIFFERENT};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};

const SYMMETRIC_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// 24 to 64 bytes, as the specification has it: fewer could be guessed, more add nothing.
const SYMMETRIC_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// 32 bytes: as many as the hash has.
const SYMMETRIC_MADE_BYTES: usize = 32;

const SEED_BYTES: usize = 32;

/// A key that signs webhooks: `whsec_…` or `whsk_…`. Cheap to clone.
#[derive(Clone)]
pub struct SigningKey(Arc<Algorithm>);

enum Algorithm {
    Symmetric(hmac::Key),
    Ed25519(Ed25519KeyPair),
}

/// The text is not a key. It does not quote the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAKey(&'static str);

/// The system has no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system provides no random bytes")]
pub struct NoRandomBytes;

impl SigningKey {
    /// Whether a text claims to be a key, by its prefix.
    pub(crate) fn is_meant_by(text: &str) -> bool {
        text.starts_with(SYMMETRIC_PREFIX) || text.starts_with(PRIVATE_PREFIX)
    }

    /// Reads `whsec_…` or `whsk_…`.
    pub fn parse(text: &str) -> Result<Self, NotAKey> {
        let decode = |text: &str| STANDARD_PAD_INDIFFERENT.decode(text).map_err(|_| NotAKey("a secret is not base64"));
        if let Some(symmetric) = text.strip_prefix(SYMMETRIC_PREFIX) {
            let bytes = decode(symmetric)?;
            if !SYMMETRIC_BYTES.contains(&bytes.len()) {
                return Err(NotAKey("a whsec_ secret has 24 to 64 bytes: make one with `steadfast webhooks secret`"));
            }
            return Ok(Self(Arc::new(Algorithm::Symmetric(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))));
        }
        let Some(private) = text.strip_prefix(PRIVATE_PREFIX) else {
            return Err(NotAKey("a secret starts with whsec_ or whsk_"));
        };
        let bytes = decode(private)?;
        let pair = match bytes.split_at_checked(SEED_BYTES) {
            Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed),
            Some((seed, public)) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
            None => Ed25519KeyPair::from_seed_unchecked(&[]),
        };
        let not_a_pair = NotAKey("a whsk_ secret has 32 bytes, or 64 with its public key, and these do not match");
        Ok(Self(Arc::new(Algorithm::Ed25519(pair.map_err(|_| not_a_pair)?))))
    }

    /// The signature of one message, with its version: `v1,…` or `v1a,…`.
    fn sign(&self, message: &[u8]) -> String {
        match &*self.0 {
            Algorithm::Symmetric(key) => format!("v1,{}", STANDARD.encode(hmac::sign(key, message))),
            Algorithm::Ed25519(pair) => format!("v1a,{}", STANDARD.encode(pair.sign(message))),
        }
    }
}

impl fmt::Debug for SigningKey {
    /// Only the version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0 {
            Algorithm::Symmetric(_) => "SigningKey(v1)",
            Algorithm::Ed25519(_) => "SigningKey(v1a)",
        })
    }
}

/// The value of `webhook-signature`: one signature per key, separated by spaces.
pub(crate) fn signatures(keys: &[SigningKey], id: &str, timestamp: u64, body: &[u8]) -> String {
    let mut message = format!("{id}.{timestamp}.").into_bytes();
    message.extend_from_slice(body);
    keys.iter().map(|key| key.sign(&message)).collect::<Vec<_>>().join(" ")
}

/// A new `whsec_…` secret.
pub fn generate_secret() -> Result<String, NoRandomBytes> {
    Ok(format!("{SYMMETRIC_PREFIX}{}", STANDARD.encode(random::<SYMMETRIC_MADE_BYTES>()?)))
}

/// A new pair of keys, the private `whsk_…` and the public `whpk_…` for the receivers.
pub fn generate_ed25519() -> Result<Ed25519Keys, NoRandomBytes> {
    let seed = random::<SEED_BYTES>()?;
    // Any 32 bytes are a seed.
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| NoRandomBytes)?;
    let public = pair.public_key().as_ref();
    Ok(Ed25519Keys {
        private: format!("{PRIVATE_PREFIX}{}", STANDARD.encode([&seed[..], public].concat())),
        public: format!("{PUBLIC_PREFIX}{}", STANDARD.encode(public)),
    })
}

/// A pair of keys, from [`generate_ed25519`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ed25519Keys {
    /// Signs; stays with the sender.
    pub private: String,
    /// Verifies; for the receivers.
    pub public: String,
}

impl fmt::Debug for Ed25519Keys {
    /// Only the public one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ed25519Keys").field("public", &self.public).finish_non_exhaustive()
    }
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], NoRandomBytes> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomBytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn s22_the_example_of_the_reference_libraries_gives_its_signature() {
        let keys = [SigningKey::parse(SECRET).unwrap()];
        let signed = signatures(&keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn s44_every_key_signs_in_the_order_given() {
        let pair = generate_ed25519().unwrap();
        let keys = [SECRET, &generate_secret().unwrap(), &pair.private].map(|text| SigningKey::parse(text).unwrap());
        let signed = signatures(&keys, "id", 1, b"{}");
        let versions: Vec<_> = signed.split(' ').map(|one| one.split_once(',').unwrap().0).collect();
        assert_eq!(versions, ["v1", "v1", "v1a"]);
        let public = STANDARD.decode(pair.public.strip_prefix("whpk_").unwrap()).unwrap();
        let signature = STANDARD.decode(signed.rsplit_once("v1a,").unwrap().1).unwrap();
        let verifier = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, public);
        verifier.verify(b"id.1.{}", &signature).unwrap();
    }

    #[test]
    fn a_private_key_is_read_with_and_without_its_public_half() {
        let pair = generate_ed25519().unwrap();
        let whole = STANDARD.decode(pair.private.strip_prefix("whsk_").unwrap()).unwrap();
        let seed_only = format!("whsk_{}", STANDARD.encode(&whole[..32]));
        let sign = |text: &str| signatures(&[SigningKey::parse(text).unwrap()], "id", 1, b"{}");
        assert_eq!(sign(&pair.private), sign(&seed_only));
        let mut mismatched = whole;
        mismatched[40] ^= 1;
        assert!(SigningKey::parse(&format!("whsk_{}", STANDARD.encode(mismatched))).is_err());
    }

    #[test]
    fn padding_is_optional_and_short_long_and_odd_texts_are_refused_without_quoting_them() {
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for good in [of(24), of(25), of(25).trim_end_matches('=').to_owned(), of(64)] {
            assert!(SigningKey::parse(&good).is_ok(), "{good}");
        }
        for bad in [of(23), of(65), "whsec_".into(), "whsec_canary!".into(), "canary".into(), "whsk_Y2FuYXJ5".into()] {
            let error = SigningKey::parse(&bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }

    #[test]
    fn s43_no_key_is_shown_by_debug() {
        let pair = generate_ed25519().unwrap();
        let shown = format!("{:?} {:?} {pair:?}", SigningKey::parse(SECRET), SigningKey::parse(&pair.private));
        assert!(!shown.contains(&SECRET[6..]) && !shown.contains(&pair.private[5..]), "{shown}");
    }

    #[test]
    fn made_secrets_differ() {
        let [one, other] = [(); 2].map(|()| generate_secret().unwrap());
        assert_ne!(one, other);
        assert!(SigningKey::parse(&one).is_ok());
    }
}
