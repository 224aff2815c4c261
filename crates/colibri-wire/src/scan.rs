//! One pass over a message: checks that it is JSON, and records the places of its outer members.
//!
//! The results are spans, which can be copied and stored. The pass accepts a text only if it is
//! sure. All other texts (another value than an object, more members or levels than there is room
//! for, invalid JSON) are left to [`super::Json::parse`], which also describes the fault.

use colibri_json::string_stops;

/// The members that a tape has room for.
const MAX_MEMBERS: usize = 32;
/// The most levels.
const MAX_LEVELS: usize = 63;

/// A member of an object, as places in the text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScannedMember {
    /// The key, with its quotes.
    pub(crate) key: (u32, u32),
    pub(crate) value: (u32, u32),
    /// The index after the entries inside the value.
    pub(crate) after: u8,
}

/// The room for entries.
pub(crate) type ScannedMembers = [ScannedMember; MAX_MEMBERS];

/// The places of a message's outer members. A tape is created once and used for one message after
/// the other.
#[derive(Debug)]
pub struct Tape {
    entries: ScannedMembers,
    count: usize,
}

impl Default for Tape {
    fn default() -> Tape {
        Tape {
            entries: [ScannedMember::default(); MAX_MEMBERS],
            count: 0,
        }
    }
}

impl Tape {
    /// The levels whose members are recorded: envelope, `params` or `result`, `_meta` or
    /// `arguments`.
    pub(crate) const NOTED: usize = 3;

    /// The entries, and their number.
    pub(crate) fn entries(&self) -> (&ScannedMembers, u8) {
        (&self.entries, self.count as u8)
    }

    /// Reads a text. Returns the place of its object, or `None` if the pass does not accept the
    /// text.
    pub(crate) fn read(&mut self, text: &str) -> Option<(usize, usize)> {
        self.count = 0;
        u32::try_from(text.len()).ok()?;
        let mut pass = Pass {
            bytes: text.as_bytes(),
            at: 0,
        };
        if pass.next()? != b'{' {
            return None;
        }
        let start = pass.at;
        self.walk(&mut pass)?;
        let end = pass.at;
        pass.next().is_none().then_some((start, end))
    }

    fn walk(&mut self, pass: &mut Pass<'_>) -> Option<()> {
        // One bit per open level, the innermost last: 1 for an object.
        let mut objects = 1u64;
        let mut level = 1;
        // The levels whose members are recorded: objects from the message inwards, without a gap.
        let mut noted = 1;
        let mut open = [0; Tape::NOTED + 1];
        let mut opened = true;
        pass.at += 1;
        loop {
            let in_object = objects & 1 == 1;
            let close = if in_object { b'}' } else { b']' };
            let mut byte = pass.next()?;
            if byte == close {
                pass.at += 1;
                level -= 1;
                objects >>= 1;
                if level == 0 {
                    return Some(());
                }
                noted = noted.min(level);
                if noted == level {
                    self.close(open[level], pass.at);
                }
                opened = false;
                continue;
            }
            if !opened {
                if byte != b',' {
                    return None;
                }
                pass.at += 1;
                byte = pass.next()?;
            }
            if in_object {
                if byte != b'"' {
                    return None;
                }
                let key = pass.at;
                pass.string()?;
                let key = (key as u32, pass.at as u32);
                if pass.next()? != b':' {
                    return None;
                }
                pass.at += 1;
                byte = pass.next()?;
                if noted == level {
                    let entry = self.entries.get_mut(self.count)?;
                    *entry = ScannedMember {
                        key,
                        value: (pass.at as u32, 0),
                        after: 0,
                    };
                    open[level] = self.count;
                    self.count += 1;
                }
            }
            match byte {
                b'{' | b'[' => {
                    let object = byte == b'{';
                    if object && noted == level && level < Tape::NOTED {
                        noted += 1;
                    }
                    level += 1;
                    if level > MAX_LEVELS {
                        return None;
                    }
                    objects = objects << 1 | u64::from(object);
                    pass.at += 1;
                    opened = true;
                    continue;
                }
                b'"' => pass.string()?,
                b'-' | b'0'..=b'9' => pass.number()?,
                b't' => pass.word(b"true")?,
                b'f' => pass.word(b"false")?,
                b'n' => pass.word(b"null")?,
                _ => return None,
            }
            if in_object && noted == level {
                self.close(open[level], pass.at);
            }
            opened = false;
        }
    }

    /// Ends the value of an entry here.
    fn close(&mut self, index: usize, end: usize) {
        let entry = &mut self.entries[index];
        entry.value.1 = end as u32;
        entry.after = self.count as u8;
    }
}

struct Pass<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Pass<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is no white space.
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = self.peek()?;
            if byte > b' ' || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let there = self.bytes[self.at..].starts_with(word);
        self.at += word.len();
        there.then_some(())
    }

    /// Reads a string. Most strings end within eight bytes.
    #[inline(always)]
    fn string(&mut self) -> Option<()> {
        let from = self.at + 1;
        if let Some(word) = self.bytes.get(from..).and_then(|rest| rest.first_chunk()) {
            let stops = string_stops(u64::from_le_bytes(*word));
            if stops != 0 {
                let end = from + (stops.trailing_zeros() / 8) as usize;
                if self.bytes[end] == b'"' {
                    self.at = end + 1;
                    return Some(());
                }
            }
        }
        self.long_string()
    }

    /// Reads a longer string, at first eight bytes at a time: the start of a vector search takes
    /// longer.
    #[inline(never)]
    fn long_string(&mut self) -> Option<()> {
        const FEW: usize = 96;
        let bytes = self.bytes;
        let mut at = self.at + 1;
        let mut far = at + FEW;
        loop {
            if let Some(word) = bytes.get(at..at + 8).and_then(|word| word.first_chunk()) {
                let stops = string_stops(u64::from_le_bytes(*word));
                if stops == 0 {
                    at += 8;
                    if at < far {
                        continue;
                    }
                    at += long(bytes.get(at..)?)?;
                } else {
                    at += (stops.trailing_zeros() / 8) as usize;
                }
            } else {
                let rest = bytes.get(at..)?;
                at += rest
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
            }
            match bytes[at] {
                b'"' => {
                    self.at = at + 1;
                    return Some(());
                }
                b'\\' => match bytes.get(at + 1)? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                    b'u' => {
                        let digits = bytes.get(at + 2..at + 6)?;
                        if !digits.iter().all(u8::is_ascii_hexdigit) {
                            return None;
                        }
                        at += 6;
                    }
                    _ => return None,
                },
                _ => return None,
            }
            far = at + FEW;
        }
    }

    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > from).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }
}

/// The number of bytes of a long string before its end or its first escape. `None` if there is
/// neither, or a control character comes before.
fn long(rest: &[u8]) -> Option<usize> {
    let found = memchr::memchr2(b'"', b'\\', rest)?;
    let has_control = rest[..found]
        .iter()
        .fold(false, |control, byte| control | (*byte < b' '));
    (!has_control).then_some(found)
}
