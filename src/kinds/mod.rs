//! The built-in kinds and their payloads. A server declares them always; a program that embeds the library need not.
//!
//! They are run by the [`simulated`] executor: each is a list of steps that sleep and sometimes fail. Nothing is sent,
//! fetched or summarized, and every result says so (`"simulated": true`).

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

pub use payloads::{
    Addresses, Fit, HttpRequest, ImageFormat, Method, RequestMethod, ResizeImage, Secrets, SendEmail, SummarizeText,
    WebhookDelivery, definitions,
};
