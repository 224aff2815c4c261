//! The changes in a call on its way to a server: its id and token always, names and `_meta` where
//! they differ. Everything else stays byte for byte. `docs/rewrites.md` lists every rule; the rules
//! themselves are `colibri-protocol`'s.

use crate::relay::{Call, CallArguments};
use colibri_protocol::input::{RetryWith, retry_edits};
use colibri_protocol::{self as protocol, Askable, Towards, Version};
use colibri_wire::{Edits, Json};

/// The edits of a call that goes to a server of `version` under our `number`, which is its id and
/// its progress token. The server may ask the client for no more than `may_ask`. `name` is the
/// server's own name or URI of what is asked for, where the client may have used another.
pub(super) fn request(
    call: &Call,
    number: u64,
    version: Version,
    name: Option<&str>,
    may_ask: Askable,
) -> Edits {
    let mut edits = Edits::new();
    edits.replace(call.parts.id.clone(), number);
    if call.version.is_modern() == version.is_modern() {
        // Of one era, only what says whose the call is and what is called differs.
        if let Some(token) = &call.parts.progress_token {
            edits.replace(token.clone(), number);
        }
        // An agent has no person who could be asked, whatever its program declares.
        if call.client.door.is_some()
            && call.parts.declares
            && let Some(params) = call.parts.params.clone()
            && let Some(object) = Json::part(&call.frame, params.clone())
        {
            edits.append_at(params.start, protocol::mute_edits(object));
        }
    } else if let Some(params) = call.parts.params.clone()
        && let Some(object) = Json::part(&call.frame, params.clone())
    {
        let towards = Towards {
            client: call.version,
            server: version,
            progress_token: Some(number),
            may_ask: call.askable().both(may_ask),
            log_level: call.log_level(),
        };
        edits.append_at(params.start, protocol::params_edits(object, &towards));
    } else if version.is_modern() && call.parts.params.is_none() {
        edits.insert(
            call.parts.id.end,
            format!(
                ",\"params\":{}",
                protocol::required_params(version, call.askable().both(may_ask))
            ),
        );
    }
    if let (Some(name), Some(at)) = (name, &call.parts.name) {
        protocol::rename_edit(&mut edits, &call.frame, at.clone(), name);
    }
    if let Some(resumed) = &call.entry.resumes
        && let Some(params) = call.parts.params.clone()
        && let Some(object) = Json::part(&call.frame, params.clone())
    {
        let is_servers = resumed.is_servers() && version.is_modern();
        let responses = resumed.responses.as_deref();
        let responses = responses.or_else(|| Some(object.get("inputResponses")?.text()));
        let with = RetryWith {
            state: resumed.state().filter(|_| is_servers),
            responses: responses.filter(|_| is_servers),
        };
        edits.append_at(params.start, retry_edits(object, with));
    }
    if let CallArguments::Within { outer, .. } = &call.parts.arguments {
        edits.replace(outer.clone(), call.arguments());
    }
    edits
}
