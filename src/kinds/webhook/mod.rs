//! `webhook_delivery`: signed HTTP calls.
