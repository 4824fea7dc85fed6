//! Named endpoints and secrets: where calls may go and how they are signed.
