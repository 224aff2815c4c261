//! The bridge's own answers.

use super::peek::{self, PeekedMessage};
use colibri_protocol::error::{Code, Failure};
use colibri_protocol::rpc_error::RpcError;

/// One error answer, with its newline. `id` is JSON text.
pub(super) fn error_line(id: &[u8], code: Code, text: impl Into<String>) -> Vec<u8> {
    let failure = Failure::new(code, text);
    let (message, data) = (failure.to_string(), Some(failure.data()));
    let error = RpcError {
        code: code.row().number,
        message,
        data,
    }
    .to_json();
    [
        br#"{"jsonrpc":"2.0","id":"#,
        id,
        br#","error":"#,
        error.as_bytes(),
        b"}\n",
    ]
    .concat()
}

/// The answer to a line that finds no daemon: nothing for what wants no answer.
pub(super) fn refusal(line: &[u8], why: &str) -> Vec<u8> {
    let errors: Vec<_> = peek::messages(line)
        .into_iter()
        .filter_map(|message| match peek::message(message) {
            PeekedMessage::Request { id, .. } => Some(error_line(id, Code::DaemonUnreachable, why)),
            _ => None,
        })
        .collect();
    match errors.as_slice() {
        [one] if !peek::is_batch(line) => one.clone(),
        [] => Vec::new(),
        many => {
            let inner: Vec<_> = many.iter().map(|error| error.trim_ascii_end()).collect();
            [b"[", inner.join(&b","[..]).as_slice(), b"]\n"].concat()
        }
    }
}
