//! Lower-case hexadecimal digits.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The two digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Writes the digits of `bytes` into `digits`, two per byte. If one of the two is longer, its rest
/// is ignored.
pub fn hex_into(bytes: &[u8], digits: &mut [u8]) {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&PAIRS[usize::from(*byte)]);
    }
}

/// Appends the digits of `bytes`.
pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let from = out.len();
    out.resize(from + 2 * bytes.len(), 0);
    hex_into(bytes, &mut out[from..]);
}

/// The digits of `bytes`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| PAIRS[usize::from(*byte)])
        .map(char::from)
        .collect()
}

/// Reads lower-case digits, two per byte, into `bytes`. True if there were exactly as many, and
/// nothing else.
#[must_use]
pub fn unhex_into(digits: &[u8], bytes: &mut [u8]) -> bool {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    digits.len() == 2 * bytes.len()
        && digits.chunks_exact(2).zip(bytes).all(|(pair, byte)| {
            let [Some(high), Some(low)] = [value(pair[0]), value(pair[1])] else {
                return false;
            };
            *byte = high << 4 | low;
            true
        })
}

/// The bytes of lower-case digits, two per byte; `None` for any other text.
#[must_use]
pub fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; digits.len() / 2];
    unhex_into(digits, &mut bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_lower_case_pairs_are_read() {
        assert_eq!(hex(&[0, 0x5f, 0xff]), "005fff");
        assert_eq!(unhex(b"005fff"), Some(vec![0, 0x5f, 0xff]));
        for wrong in ["0", "0F", "g0", "0 ", "+f", "é"] {
            assert_eq!(unhex(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(!unhex_into(b"00", &mut [0; 2]) && !unhex_into(b"0000", &mut [0; 1]));
    }

    proptest! {
        #[test]
        fn digits_read_back(bytes in any::<Vec<u8>>()) {
            let digits = hex(&bytes);
            let mut pushed = b"x".to_vec();
            push_hex(&mut pushed, &bytes);
            prop_assert_eq!(&pushed[1..], digits.as_bytes());
            prop_assert_eq!(unhex(digits.as_bytes()), Some(bytes));
        }
    }
}
