//! The key, taken out of whatever the model's server says: one that repeats what it was sent would
//! show it.

use bytes::Bytes;
use memchr::memmem;
use secrecy::{ExposeSecret as _, SecretString};

use crate::registry::secrets::MIN_REDACTED;

/// Takes values out of a stream of bytes. Each is replaced by as many asterisks, so that lengths
/// stay.
pub(super) struct Mask<'s> {
    values: &'s [SecretString],
    /// The end of what came, as far as a value may begin there.
    held: Vec<u8>,
}

impl<'s> Mask<'s> {
    pub(super) fn new(values: &'s [SecretString]) -> Mask<'s> {
        Mask {
            values,
            held: Vec::new(),
        }
    }

    /// Masks a part and returns the bytes that can go on.
    pub(super) fn feed(&mut self, part: Bytes) -> Bytes {
        let values = || {
            self.values
                .iter()
                .map(|value| value.expose_secret().as_bytes())
        };
        let is_clean = |bytes: &[u8]| values().all(|value| memmem::find(bytes, value).is_none());
        if self.held.is_empty() && is_clean(&part) && begun(&part, values()) == 0 {
            return part;
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(&part);
        let mut found = Vec::new();
        for value in values() {
            found.extend(memmem::find_iter(&bytes, value).map(|at| at..at + value.len()));
        }
        for range in found {
            bytes[range].fill(b'*');
        }
        let rest = begun(&bytes, values());
        self.held = bytes.split_off(bytes.len() - rest);
        bytes.into()
    }

    /// The bytes that were held back, at the end of the stream.
    pub(super) fn end(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }
}

/// The number of bytes at the end that may be the beginning of a value.
fn begun<'v>(bytes: &[u8], values: impl Iterator<Item = &'v [u8]>) -> usize {
    let longest = |value: &[u8]| {
        let most = (value.len() - 1).min(bytes.len());
        (1..=most)
            .rev()
            .find(|length| bytes.ends_with(&value[..*length]))
    };
    values.filter_map(longest).max().unwrap_or(0)
}

/// The values of a header that must not be seen: the whole, and what follows a word such as
/// `Bearer`.
pub(super) fn values_of(header: &SecretString) -> Vec<SecretString> {
    let whole = header.expose_secret().trim();
    let last = whole.rsplit(' ').next().unwrap_or_default();
    let values = [last, whole]
        .into_iter()
        .filter(|value| value.len() >= MIN_REDACTED);
    let mut values: Vec<SecretString> = values
        .map(|value| SecretString::from(value.to_owned()))
        .collect();
    if last.len() == whole.len() {
        values.truncate(1);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn masked(parts: &[&str], values: &[&str]) -> String {
        let values: Vec<SecretString> = values
            .iter()
            .map(|value| SecretString::from((*value).to_owned()))
            .collect();
        let mut mask = Mask::new(&values);
        let mut out = Vec::new();
        for part in parts {
            out.extend_from_slice(&mask.feed(Bytes::copy_from_slice(part.as_bytes())));
        }
        out.extend_from_slice(&mask.end());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_key_goes_wherever_the_parts_are_cut() {
        assert_eq!(
            masked(&["say sk-secret."], &["sk-secret"]),
            "say *********."
        );
        assert_eq!(
            masked(&["say sk-", "sec", "ret."], &["sk-secret"]),
            "say *********."
        );
        assert_eq!(
            masked(&["say sk-", "sec", "tion"], &["sk-secret"]),
            "say sk-section"
        );
        assert_eq!(
            masked(&["sksk-se", "cretsk-secret"], &["sk-secret"]),
            "sk******************"
        );
        assert_eq!(masked(&["a", "b"], &[]), "ab");
    }

    #[test]
    fn what_is_no_beginning_is_not_held_back() {
        let values = [SecretString::from("sk-secret".to_owned())];
        let mut mask = Mask::new(&values);
        assert_eq!(
            mask.feed(Bytes::from_static(b"data: {}\n\n")),
            "data: {}\n\n"
        );
        assert_eq!(mask.feed(Bytes::from_static(b"x sk-")), "x ");
        assert_eq!(mask.feed(Bytes::from_static(b"x")), "sk-x");
    }

    #[test]
    fn a_scheme_is_no_part_of_the_key() {
        let values = |text: &str| {
            let values = values_of(&SecretString::from(text.to_owned()));
            values
                .iter()
                .map(|value| value.expose_secret().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            values("Bearer sk-secret"),
            ["sk-secret", "Bearer sk-secret"]
        );
        assert_eq!(values("sk-secret"), ["sk-secret"]);
        assert!(values("short").is_empty());
    }

    proptest! {
        #[test]
        fn nothing_of_a_key_is_left(text in "[ab]{0,40}", value in "[ab]{6,8}", cuts in prop::collection::vec(0..40usize, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let masked = masked(&parts, &[&value]);
            prop_assert!(!masked.contains(&value), "{} in {}", value, masked);
            prop_assert_eq!(masked.len(), text.len());
        }
    }
}
