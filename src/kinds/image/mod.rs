//! `resize_image`: fetches, resizes, stores.
