//! Comparison of keys: unescaped, and folded in the way of some readers, so that no key can pass
//! for another.

use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;

/// The characters of the content of a valid JSON string, unescaped; an error for a lone surrogate.
pub(crate) struct UnescapedChars<'a>(pub(crate) &'a str);

pub(crate) struct LoneSurrogate;

impl UnescapedChars<'_> {
    /// True if the text is equal to `wanted`. The comparison ends at the first difference.
    pub(crate) fn eq_text(self, wanted: &str) -> bool {
        let (mut characters, mut wanted) = (self, wanted.chars());
        loop {
            match (characters.next(), wanted.next()) {
                (None, None) => return true,
                (Some(Ok(is)), Some(should)) if is == should => {}
                _ => return false,
            }
        }
    }

    /// The UTF-16 unit of an escape at the beginning of the rest.
    fn unit(&self) -> Option<u32> {
        let digits = self.0.strip_prefix("\\u")?.get(..4)?;
        u32::from_str_radix(digits, 16).ok()
    }
}

impl Iterator for UnescapedChars<'_> {
    type Item = Result<char, LoneSurrogate>;

    fn next(&mut self) -> Option<Result<char, LoneSurrogate>> {
        let mut chars = self.0.chars();
        let first = chars.next()?;
        if first != '\\' {
            self.0 = chars.as_str();
            return Some(Ok(first));
        }
        let Some(unit) = self.unit() else {
            let escaped = chars.next()?;
            self.0 = chars.as_str();
            return Some(Ok(match escaped {
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }));
        };
        self.0 = &self.0[6..];
        if !(0xd800..0xdc00).contains(&unit) {
            return Some(char::from_u32(unit).ok_or(LoneSurrogate));
        }
        let Some(low @ 0xdc00..0xe000) = self.unit() else {
            return Some(Err(LoneSurrogate));
        };
        self.0 = &self.0[6..];
        Some(
            char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)).ok_or(LoneSurrogate),
        )
    }
}

/// The index of the one of `keys` that a key's content folds to, and true if the content is that
/// exact text. `keys` are ASCII without escapes.
pub(crate) fn find(bytes: &[u8], keys: &[&str]) -> Option<(usize, bool)> {
    let first = bytes.first()? | 0x20;
    for (index, wanted) in keys.iter().enumerate() {
        let wanted = wanted.as_bytes();
        if wanted.len() == bytes.len() && wanted[0] | 0x20 == first {
            if wanted == bytes {
                return Some((index, true));
            }
            if wanted.eq_ignore_ascii_case(bytes) {
                return Some((index, false));
            }
        }
    }
    if bytes.is_ascii() && !bytes.contains(&b'\\') {
        return None;
    }
    let inner = std::str::from_utf8(bytes).ok()?;
    let index = folded_index(inner, keys)?;
    Some((index, UnescapedChars(inner).eq_text(keys[index])))
}

/// The index of the one of `keys` that a key folds to. A text folds to ASCII only if each of its
/// characters does, one after the other. The search ends as soon as no key is possible any more.
fn folded_index(inner: &str, keys: &[&str]) -> Option<usize> {
    let mut possible = u64::MAX >> (64 - keys.len().clamp(1, 64));
    let mut length = 0;
    for character in UnescapedChars(inner) {
        let character = character.ok()?;
        let mut keep = |byte: u8| {
            for (index, wanted) in keys.iter().enumerate() {
                let same = wanted.as_bytes().get(length).map(u8::to_ascii_lowercase) == Some(byte);
                possible &= !(u64::from(!same) << index);
            }
            length += 1;
            possible != 0
        };
        match character {
            '\0' => {}
            ascii if ascii.is_ascii() => {
                if !keep(ascii.to_ascii_lowercase() as u8) {
                    return None;
                }
            }
            other => {
                #[cfg(test)]
                LOOKED_UP.with(|count| count.set(count.get() + 1));
                let at = FOLDED
                    .binary_search_by_key(&other, |(from, _)| *from)
                    .ok()?;
                let becomes = FOLDED[at].1;
                if !becomes.into_iter().filter(|byte| *byte != 0).all(keep) {
                    return None;
                }
            }
        }
    }
    (0..keys.len()).find(|index| possible & (1 << index) != 0 && keys[*index].len() == length)
}

/// Ranges of characters that include all those which [`fold`] turns into ASCII.
const FOLDED_RANGES: [(char, char); 20] = [
    ('\u{a0}', '\u{17f}'),
    ('\u{1c4}', '\u{1f3}'),
    ('\u{2b0}', '\u{2ff}'),
    ('\u{37e}', '\u{37e}'),
    ('\u{1d2c}', '\u{1dbf}'),
    ('\u{1e9e}', '\u{1e9e}'),
    ('\u{1fef}', '\u{1fef}'),
    ('\u{2000}', '\u{24ff}'),
    ('\u{2a74}', '\u{2a76}'),
    ('\u{2c7c}', '\u{2c7d}'),
    ('\u{3000}', '\u{33ff}'),
    ('\u{a7f1}', '\u{a7f4}'),
    ('\u{fb00}', '\u{fb4f}'),
    ('\u{fe10}', '\u{ff5e}'),
    ('\u{107a5}', '\u{107a5}'),
    ('\u{1ccd6}', '\u{1ccf9}'),
    ('\u{1d400}', '\u{1d7ff}'),
    ('\u{1df95}', '\u{1df95}'),
    ('\u{1f100}', '\u{1f2ff}'),
    ('\u{1fbf0}', '\u{1fbf9}'),
];

/// Each character that folds to ASCII with its folded text, padded with zeros; in the order of the
/// characters.
pub(crate) static FOLDED: LazyLock<Vec<(char, [u8; 6])>> = LazyLock::new(|| {
    let all = FOLDED_RANGES
        .iter()
        .flat_map(|(first, last)| *first..=*last);
    let ascii = all.filter_map(|character| {
        let folded = fold(character.encode_utf8(&mut [0; 4]));
        let mut bytes = [0; 6];
        bytes
            .get_mut(..folded.len())?
            .copy_from_slice(folded.as_bytes());
        (folded.is_ascii() && !folded.is_empty()).then_some((character, bytes))
    });
    ascii.collect()
});

/// Case folding, NFKC, no NUL. Folding is upper case and then lower case, which also joins the
/// characters (as `ſ` and `K`) whose lower case alone differs.
pub fn fold(text: &str) -> String {
    let fold_case = |text: String| text.to_uppercase().to_lowercase();
    let once: String = fold_case(text.chars().filter(|c| *c != '\0').nfkc().collect());
    fold_case(once.nfkc().collect())
}

#[cfg(test)]
thread_local! {
    /// The number of characters that were looked up for folding.
    pub(crate) static LOOKED_UP: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
