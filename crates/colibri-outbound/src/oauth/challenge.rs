//! A server's request for authorization: the `Bearer` challenge of `WWW-Authenticate` (RFC 9110
//! §11.6.1, RFC 6750 §3, RFC 9728 §5.1).

use hyper::header::HeaderValue;

/// More of the header fields than this is not read.
const MAX_BYTES: usize = 16 * 1024;

/// A `Bearer` challenge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bearer {
    /// The address of the protected resource's metadata.
    pub(crate) resource_metadata: Option<String>,
    /// The scopes that the request would have needed, separated by spaces.
    pub(crate) scope: Option<String>,
    /// `invalid_token`, `insufficient_scope`.
    pub(crate) error: Option<String>,
}

/// The first `Bearer` challenge among these header fields. What cannot be read ends the reading.
pub(crate) fn bearer(fields: &[HeaderValue]) -> Option<Bearer> {
    let fields = fields.iter().filter_map(|field| field.to_str().ok());
    let text = fields.collect::<Vec<_>>().join(", ");
    let mut reader = ChallengeReader {
        rest: text.get(..MAX_BYTES).unwrap_or(&text),
    };
    let mut found: Option<Bearer> = None;
    let mut is_bearer = false;
    loop {
        reader.skip(&[' ', '\t', ',']);
        let Some(word) = reader.token() else {
            return found;
        };
        reader.skip(&[' ', '\t']);
        match (reader.take('='), &mut found) {
            // A scheme; a second challenge of ours has nothing to add.
            (false, found) => {
                if found.is_some() {
                    return found.take();
                }
                is_bearer = word.eq_ignore_ascii_case("bearer");
                if is_bearer {
                    *found = Some(Bearer::default());
                }
            }
            (true, found) => {
                reader.skip(&[' ', '\t']);
                let Some(value) = reader.value() else {
                    return found.take();
                };
                if let Some(challenge) = found.as_mut().filter(|_| is_bearer) {
                    let member = match word.to_ascii_lowercase().as_str() {
                        "resource_metadata" => &mut challenge.resource_metadata,
                        "scope" => &mut challenge.scope,
                        "error" => &mut challenge.error,
                        _ => continue,
                    };
                    member.get_or_insert(value);
                }
            }
        }
    }
}

struct ChallengeReader<'a> {
    rest: &'a str,
}

impl<'a> ChallengeReader<'a> {
    fn skip(&mut self, what: &[char]) {
        self.rest = self.rest.trim_start_matches(what);
    }

    fn take(&mut self, what: char) -> bool {
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// A token (RFC 9110 §5.6.2).
    fn token(&mut self) -> Option<&'a str> {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let end = self.rest.find(|c| !is_token(c)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    /// A token or a quoted string (RFC 9110 §5.6.4).
    fn value(&mut self) -> Option<String> {
        if !self.take('"') {
            // URLs are seen here without the quotes that they need.
            let end = self.rest.find([',', ' ', '\t']).unwrap_or(self.rest.len());
            let (value, rest) = self.rest.split_at(end);
            self.rest = rest;
            return (!value.is_empty()).then(|| value.to_owned());
        }
        let mut value = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(value);
                }
                '\\' => value.push(characters.next()?.1),
                other => value.push(other),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[&'static str]) -> Option<Bearer> {
        let fields: Vec<_> = fields
            .iter()
            .map(|field| HeaderValue::from_static(field))
            .collect();
        bearer(&fields)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_challenge_is_found_among_others() {
        let expected = Bearer {
            resource_metadata: some("https://h/.well-known/oauth-protected-resource"),
            scope: some("a b"),
            error: some("insufficient_scope"),
        };
        for fields in [
            &[
                r#"Bearer resource_metadata="https://h/.well-known/oauth-protected-resource", scope="a b", error="insufficient_scope""#,
            ][..],
            &[
                r#"Basic realm="x, Bearer y", bearer scope="a b",error=insufficient_scope , resource_metadata = "https://h/.well-known/oauth-protected-resource""#,
            ],
            &[
                r#"Negotiate"#,
                r#"BEARER realm="q\"uo\"te", scope="a b", error="insufficient_scope", resource_metadata=https://h/.well-known/oauth-protected-resource"#,
            ],
            &[
                r#"Bearer scope="a b", scope="c", error="insufficient_scope", resource_metadata="https://h/.well-known/oauth-protected-resource", DPoP scope="d""#,
            ],
        ] {
            assert_eq!(read(fields), Some(expected.clone()), "{fields:?}");
        }
    }

    #[test]
    fn what_is_no_challenge_of_ours_is_none() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["Basic realm=\"Bearer\""]), None);
        assert_eq!(read(&["Bearer"]), Some(Bearer::default()));
        assert_eq!(
            read(&["Bearer scope=\"never ends"]),
            Some(Bearer::default())
        );
        assert_eq!(read(&["=, \"\" Bearer"]), None);
    }
}
