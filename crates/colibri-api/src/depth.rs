//! The depth of JSON that is not parsed yet.

/// The nesting depth of a text, if it is JSON: 0 for a number or a string, 1 for `[]`.
#[must_use]
pub fn json_depth(json: &[u8]) -> u32 {
    let (mut depth, mut deepest, mut is_string, mut is_escaped) = (0_u32, 0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        for (json, depth) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[1,{"b":"[[[\"{{"}]}"#, 3),
            ("]]]][", 1),
            (r#""\\"[[""#, 2),
        ] {
            assert_eq!(json_depth(json.as_bytes()), depth, "{json}");
        }
    }
}
