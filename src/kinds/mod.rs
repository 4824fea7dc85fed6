//! The built-in kinds: their payloads, and what runs them. A program that embeds the library takes what it wants.
//!
//! | kind | payload | runs with the feature |
//! |---|---|---|
//! | `webhook_delivery` | [`WebhookDelivery`] | `kinds-http` |
//! | `http_request` | [`HttpRequest`] | `kinds-http` |
//! | `send_email` | [`SendEmail`] | `kinds-mail` |
//! | `resize_image` | [`ResizeImage`] | `kinds-image` |
//! | `summarize_text` | [`SummarizeText`] | `kinds-text` |
//!
//! Payloads and [`definitions`] need no feature. Each kind is a value that is made once from its settings; `BuiltInKinds`
//! collects those that a process can run, checks payloads by their rules, and registers them with a worker. The `simulated`
//! executor stands in for all of them in demos and tests; it never does I/O.

#[cfg(feature = "worker")]
mod built_in;
#[cfg(feature = "worker")]
pub mod command;
#[cfg(feature = "kinds-http")]
pub mod endpoint;
#[cfg(feature = "kinds-image")]
pub mod image;
#[cfg(feature = "kinds-mail")]
pub mod mail;
mod payloads;
#[cfg(feature = "kinds-http")]
pub mod push;
#[cfg(feature = "worker")]
pub mod simulated;
#[cfg(feature = "kinds-text")]
pub mod text;
#[cfg(feature = "kinds-http")]
pub mod webhook;

#[cfg(feature = "worker")]
pub use built_in::{BuiltInKinds, register};
pub use payloads::{
    Addresses, Fit, HttpRequest, ImageFormat, Method, RequestMethod, ResizeImage, Secrets, SendEmail, SummarizeText,
    WebhookDelivery, built_in_kinds, definitions, is_inline_secret,
};

use crate::queue::Job;

/// The names of all built-in kinds.
pub const NAMES: [&str; 5] =
    [WebhookDelivery::KIND, HttpRequest::KIND, SendEmail::KIND, ResizeImage::KIND, SummarizeText::KIND];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_kind_is_named() {
        let mut declared: Vec<_> = definitions().unwrap().iter().map(|kind| kind.kind.to_string()).collect();
        let mut names = NAMES.map(str::to_owned).to_vec();
        declared.sort();
        names.sort();
        assert_eq!(declared, names);
    }
}
