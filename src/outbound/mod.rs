//! The only room with a client socket: HTTP requests to addresses that were judged first.
