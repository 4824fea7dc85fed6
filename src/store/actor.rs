//! Who asked for an operator's act. Carried along with the request, so that whoever records acts can say by whom.

use std::net::IpAddr;

/// Somebody who acts on jobs, queues, kinds or tokens over the API.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actor {
    /// The public id of the API token; `None` on a server that is open to everybody, and for the operator's own token.
    pub token_id: Option<String>,
    /// What people call the token.
    pub token_name: String,
    /// The request's id, as in the answer and in the log.
    pub request_id: Option<String>,
    /// Where the request came from.
    pub address: Option<IpAddr>,
}

impl Actor {
    /// Somebody by this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { token_id: None, token_name: name.into(), request_id: None, address: None }
    }

    /// Who showed the API token with this id.
    pub fn token(mut self, id: impl Into<String>) -> Self {
        self.token_id = Some(id.into());
        self
    }

    /// In this request.
    pub fn request(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// From this address.
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }
}
