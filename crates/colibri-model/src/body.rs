//! The body of a request, read strictly: whatever another reader could read otherwise, and whatever
//! has the provider do more than answer, is refused.

use colibri_json::JsonReader;
use hyper::StatusCode;

use super::api::ModelRequestKind;
use super::grammar::grammar;
use super::refusal::{BodyRefusal, ModelRefusal};
use super::walk::{BodyFacts, Judge};
use crate::rules::{ModelApi, ModelPermissions};

/// The deepest nesting of a body.
const MAX_DEPTH: usize = 128;

/// Reads a body for this interface and judges it.
///
/// # Errors
/// Why it is refused, and where.
pub(super) fn judge(
    api: ModelApi,
    asks: ModelRequestKind,
    permits: &ModelPermissions,
    body: &[u8],
) -> Result<BodyFacts, ModelRefusal> {
    let bad = |why: &str| ModelRefusal::new(StatusCode::BAD_REQUEST, why);
    let text = std::str::from_utf8(body).map_err(|_| bad("the body is not UTF-8"))?;
    let reader = JsonReader::new(text, MAX_DEPTH, "nested deeper than 128 levels");
    let mut judge = Judge::new(reader, grammar(api), permits, asks);
    match judge.body() {
        Ok(()) => {
            let (top, mut facts) = (judge.top, judge.facts);
            if asks == ModelRequestKind::Generate {
                top.splice(api, permits, &mut facts.splices)?;
            }
            Ok(facts)
        }
        Err(BodyRefusal::Fault(fault)) => Err(bad(&format!("{}: {}", judge.place(), fault.why))),
        Err(BodyRefusal::Refused(status, why)) => Err(ModelRefusal::new(
            status,
            format!("{}: {why}", judge.place()),
        )),
    }
}
