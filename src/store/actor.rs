//! On whose behalf an operator's request is made. Carried with the request, so that calls can be attributed.

use std::net::IpAddr;

/// The originator of an operator's request: an API token, a request and an address. See [`Queue::by`](crate::Queue::by).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actor {
    /// The public id of the API token; `None` without authentication, and for the token of the server's settings.
    pub token_id: Option<String>,
    /// The name of the token.
    pub token_name: String,
    /// The id of the HTTP request, as in the response and in the log.
    pub request_id: Option<String>,
    /// The client's address.
    pub address: Option<IpAddr>,
}

impl Actor {
    /// An actor of this name, with nothing else known.
    pub fn new(name: impl Into<String>) -> Self {
        Self { token_id: None, token_name: name.into(), request_id: None, address: None }
    }

    /// Sets the id of the API token.
    pub fn token(mut self, id: impl Into<String>) -> Self {
        self.token_id = Some(id.into());
        self
    }

    /// Sets the id of the HTTP request.
    pub fn request(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Sets the client's address.
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }
}

/// Defines the request of an operator's verb: what it is about, and on whose behalf.
macro_rules! operator_request {
    (
        $(#[$about:meta])*
        $name:ident {
            $(#[$meaning:meta])*
            $field:ident: $type:ty
        }
        $(#[$purpose:meta])*
        new($given:ident: $given_type:ty) -> $value:expr;
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub struct $name {
            $(#[$meaning])*
            pub $field: $type,
            /// On whose behalf.
            pub by: Option<Actor>,
        }

        impl $name {
            $(#[$purpose])*
            pub fn new($given: $given_type) -> Self {
                Self { $field: $value, by: None }
            }

            /// Sets on whose behalf.
            pub fn by(mut self, actor: Option<Actor>) -> Self {
                self.by = actor;
                self
            }
        }
    };
}

pub(super) use operator_request;
