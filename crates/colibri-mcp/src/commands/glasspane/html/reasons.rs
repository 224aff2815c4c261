//! Sentences for the codes with which calls end.

use colibri_protocol::Code;

/// The sentence for an error code of a record. The code itself is shown beside it.
pub(super) fn reason(code: &str) -> &'static str {
    if let Some(known) = Code::ALL.iter().find(|known| known.name() == code) {
        return known.row().when;
    }
    match code {
        "" => "the record has no reason",
        "CANCELLED" => "the client cancelled the call",
        "TOOL_ERROR" => "the tool ran and answered that it failed; its answer says why",
        "-32700" => "the server could not read the request as JSON",
        "-32600" => "the server did not take the message for a valid request",
        "-32601" => "the server does not know the method or the tool",
        "-32602" => "the server did not accept the arguments",
        "-32603" => "the server had an internal error while it worked on the call",
        "-32002" => "the server does not have the resource",
        _ if code.parse::<i64>().is_ok() => "the server answered with an error of its own",
        _ => "the tool, or the integration behind it, answered with an error of its own",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_sentence() {
        assert_eq!(reason("POLICY_DENIED"), Code::PolicyDenied.row().when);
        assert!(reason("-32603").contains("internal error"));
        for code in ["-1", "42", "NOBODY_KNOWS", ""] {
            assert!(!reason(code).is_empty());
        }
    }
}
