//! The built-in kinds: what their payloads look like. They are always declared.
//!
//! What runs them is the [`simulated`] executor: each is a list of steps that sleep and sometimes fail, and does none
//! of the real work. Everything that shows it says so.

mod payloads;
#[cfg(feature = "worker")]
pub mod simulated;

pub use payloads::{
    Addresses, Fit, ImageFormat, Method, ResizeImage, SendEmail, SummarizeText, WebhookDelivery, definitions,
};
