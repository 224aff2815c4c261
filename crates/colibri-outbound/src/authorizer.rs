//! Authorization of a request, where it is found out on the way: the seam at which OAuth comes in.

use hyper::StatusCode;
use hyper::header::HeaderValue;

use colibri_http::BoxFuture;

/// The challenge of a server that refuses a request.
#[derive(Debug, Clone)]
pub struct Challenge {
    /// 401 or 403.
    pub status: StatusCode,
    /// Its `WWW-Authenticate` header fields, in their order.
    pub fields: Vec<HeaderValue>,
    /// The `Authorization` that it refused.
    pub refused: Option<HeaderValue>,
}

/// Gives requests to one server their `Authorization`.
///
/// A request that was refused with 401 or 403 is sent once more for each time that
/// [`Authorizer::challenged`] says so, at most three times in all; what is refused still then is
/// told.
pub trait Authorizer: Send + Sync {
    /// The value of `Authorization` for a request, if there is one by now. It must be marked as
    /// sensitive. May take a while: a token is refreshed here.
    ///
    /// # Errors
    /// What the caller is told: why there is none, and what to do.
    fn authorization(&self) -> BoxFuture<'_, anyhow::Result<Option<HeaderValue>>>;

    /// A request was refused. `Ok`: it is worth sending again, since there is another authorization
    /// now.
    ///
    /// # Errors
    /// What the caller is told: why it was refused, and what to do (`colibri-mcp login SERVER`).
    fn challenged(&self, challenge: Challenge) -> BoxFuture<'_, anyhow::Result<()>>;
}

/// No authorization but what the entry's own headers are.
#[derive(Debug, Clone, Copy)]
pub struct Anonymous;

impl Authorizer for Anonymous {
    fn authorization(&self) -> BoxFuture<'_, anyhow::Result<Option<HeaderValue>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn challenged(&self, challenge: Challenge) -> BoxFuture<'_, anyhow::Result<()>> {
        let why = match challenge.status {
            StatusCode::FORBIDDEN => {
                "it does not allow this (403): give the entry headers with the right to it"
            }
            _ => {
                "it wants to know who asks (401): give the entry headers, Authorization with {\"secret\": NAME}"
            }
        };
        Box::pin(std::future::ready(Err(anyhow::anyhow!(why))))
    }
}
