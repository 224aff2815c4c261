//! The body of a request, read strictly: whatever another reader could read otherwise, and whatever has the provider do
//! more than answer, is refused.

use colibri_json::Reader;
use hyper::StatusCode;

use super::api::Asks;
use super::grammar::grammar;
use super::refusal::{Refusal, Stopped};
use super::walk::{Facts, Judge};
use crate::registry::{ModelApi, ModelPermissions};

/// The deepest nesting of a body.
const MAX_DEPTH: usize = 128;

/// Reads a body for this interface and judges it.
///
/// # Errors
/// Why it is refused, and where.
pub(super) fn judge(api: ModelApi, asks: Asks, permits: &ModelPermissions, body: &[u8]) -> Result<Facts, Refusal> {
    let bad = |why: &str| Refusal::new(StatusCode::BAD_REQUEST, why);
    let text = std::str::from_utf8(body).map_err(|_| bad("the body is not UTF-8"))?;
    let reader = Reader::new(text, MAX_DEPTH, "nested deeper than 128 levels");
    let mut judge = Judge::new(reader, grammar(api), permits, asks);
    match judge.body() {
        Ok(()) => {
            let (top, mut facts) = (judge.top, judge.facts);
            if asks == Asks::Generate {
                top.splice(api, permits, &mut facts.splices)?;
            }
            Ok(facts)
        }
        Err(Stopped::Fault(fault)) => Err(bad(&format!("{}: {}", judge.place(), fault.why))),
        Err(Stopped::Refused(status, why)) => Err(Refusal::new(status, format!("{}: {why}", judge.place()))),
    }
}
