//! The built-in kinds and their payloads. A server declares them always; a program that embeds the library need not.
//!
//! They are run by the [`simulated`] executor: each is a list of steps that sleep and sometimes fail. Nothing is sent,
//! fetched or summarized, and every result says so (`"simulated": true`).

mod payloads;
#[cfg(feature = "worker")]
pub mod simulated;

pub use payloads::{
    Addresses, Fit, ImageFormat, Method, ResizeImage, SendEmail, SummarizeText, WebhookDelivery, definitions,
};
