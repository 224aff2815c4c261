//! Edits as splices: a byte range is replaced, all bytes outside it stay identical.

use std::ops::{Deref, Range};

/// The most edits that are stored without an allocation.
const FEW: usize = 3;
/// The most bytes of a replacement that are stored without an allocation.
const SHORT: usize = 30;

/// Replacements of byte ranges of one frame, in order and without overlaps.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    few: [Edit; FEW],
    count: usize,
    /// All edits, if they are more than [`FEW`].
    many: Vec<Edit>,
}

/// One replacement.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// The replaced range; empty for an insertion.
    pub span: Range<usize>,
    /// The replacement.
    pub with: With,
}

/// The replacement of a range.
#[derive(Debug, Clone)]
pub struct With(ReplacementText);

#[derive(Debug, Clone)]
enum ReplacementText {
    Short(u8, [u8; SHORT]),
    Long(Vec<u8>),
}

impl Default for With {
    fn default() -> With {
        With(ReplacementText::Short(0, [0; SHORT]))
    }
}

impl Deref for With {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            ReplacementText::Short(length, bytes) => &bytes[..usize::from(*length)],
            ReplacementText::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for With {
    fn from(from: &[u8]) -> With {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..from.len()) {
            Some(short) => {
                short.copy_from_slice(from);
                With(ReplacementText::Short(from.len() as u8, bytes))
            }
            None => With(ReplacementText::Long(from.to_vec())),
        }
    }
}

impl From<Vec<u8>> for With {
    fn from(bytes: Vec<u8>) -> With {
        With(ReplacementText::Long(bytes))
    }
}

impl From<&str> for With {
    fn from(text: &str) -> With {
        With::from(text.as_bytes())
    }
}

impl From<String> for With {
    fn from(text: String) -> With {
        With::from(text.into_bytes())
    }
}

/// The number in digits.
impl From<u64> for With {
    fn from(mut number: u64) -> With {
        let mut digits = [b'0'; 20];
        let mut from = digits.len();
        loop {
            from -= 1;
            digits[from] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return With::from(&digits[from..]);
            }
        }
    }
}

impl PartialEq for Edits {
    fn eq(&self, other: &Edits) -> bool {
        let is_same =
            |(one, other): (&Edit, &Edit)| one.span == other.span && *one.with == *other.with;
        self.count == other.count && self.iter().zip(other.iter()).all(is_same)
    }
}

impl Eq for Edits {}

impl Edits {
    /// No edit at all.
    pub fn new() -> Edits {
        Edits::default()
    }

    fn all(&self) -> &[Edit] {
        if self.count > FEW {
            &self.many
        } else {
            &self.few[..self.count]
        }
    }

    /// True if the frame stays unchanged.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Replaces `span`. Insertions at the same place stay in the order of the calls.
    ///
    /// # Panics
    /// In debug builds, if the range overlaps one that is already replaced: two rules would edit
    /// the same bytes.
    pub fn replace(&mut self, span: Range<usize>, with: impl Into<With>) {
        let all = self.all();
        let is_last = all
            .last()
            .is_none_or(|last| last.span.end <= span.start && last.span.start < span.start);
        let index = if is_last {
            all.len()
        } else {
            all.partition_point(|edit| {
                (edit.span.start, edit.span.end) <= (span.start, span.end.max(span.start))
            })
        };
        debug_assert!(
            index == 0 || all[index - 1].span.end <= span.start,
            "edits overlap"
        );
        debug_assert!(
            index == all.len() || span.end <= all[index].span.start,
            "edits overlap"
        );
        let edit = Edit {
            span,
            with: with.into(),
        };
        if self.count < FEW {
            self.few[index..=self.count].rotate_right(1);
            self.few[index] = edit;
        } else {
            if self.count == FEW {
                self.many.extend(self.few.iter_mut().map(std::mem::take));
            }
            self.many.insert(index, edit);
        }
        self.count += 1;
    }

    /// Inserts at `at`.
    pub fn insert(&mut self, at: usize, with: impl Into<With>) {
        self.replace(at..at, with);
    }

    /// Adds edits that were made against a part of the frame beginning at `at`.
    pub fn append_at(&mut self, at: usize, part: Edits) {
        let edits = part
            .few
            .into_iter()
            .take(part.count)
            .filter(|_| part.count <= FEW);
        for Edit { span, with } in edits.chain(part.many) {
            self.replace(span.start + at..span.end + at, with);
        }
    }

    /// The edits in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Edit> {
        self.all().iter()
    }

    /// The length of a frame of `length` bytes after all edits.
    pub fn edited_length(&self, length: usize) -> usize {
        self.all()
            .iter()
            .fold(length, |sum, edit| sum + edit.with.len() - edit.span.len())
    }

    /// Calls `piece` with each run of the result: `Ok` for a range of the frame that stays, `Err`
    /// for a replacement.
    pub fn pieces<'a>(
        &'a self,
        length: usize,
        mut piece: impl FnMut(Result<Range<usize>, &'a [u8]>),
    ) {
        let mut at = 0;
        for edit in self.all() {
            if at < edit.span.start {
                piece(Ok(at..edit.span.start));
            }
            if !edit.with.is_empty() {
                piece(Err(&edit.with));
            }
            at = edit.span.end;
        }
        if at < length {
            piece(Ok(at..length));
        }
    }

    /// The edited frame.
    pub fn apply(&self, frame: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.edited_length(frame.len()));
        self.pieces(frame.len(), |piece| match piece {
            Ok(range) => out.extend_from_slice(&frame[range]),
            Err(with) => out.extend_from_slice(with),
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keeps_order_whatever_the_order_of_asking() {
        let mut edits = Edits::new();
        edits.replace(6..11, "there");
        edits.insert(11, "!");
        edits.replace(0..5, "Hi");
        edits.insert(11, "?");
        assert_eq!(edits.apply(b"hello world"), b"Hi there!?");
        assert_eq!(edits.edited_length(11), 10);
    }

    #[test]
    fn parts_count_from_their_own_start() {
        let mut part = Edits::new();
        part.replace(0..1, "x");
        let mut edits = Edits::new();
        edits.append_at(2, part);
        assert_eq!(edits.apply(b"abc"), b"abx");
    }

    proptest! {
        #[test]
        fn everything_outside_is_identical(frame in proptest::collection::vec(any::<u8>(), 0..200),
                                           cuts in proptest::collection::vec((0usize..200, 0usize..8, ".{0,6}"), 0..8)) {
            let mut edits = Edits::new();
            let mut expected = Vec::new();
            let mut at = 0;
            let mut sorted = cuts.clone();
            sorted.sort_by_key(|cut| cut.0);
            for (start, length, with) in sorted {
                let start = start.max(at).min(frame.len());
                let end = (start + length).min(frame.len());
                expected.extend_from_slice(&frame[at..start]);
                expected.extend_from_slice(with.as_bytes());
                edits.replace(start..end, with);
                at = end;
            }
            expected.extend_from_slice(&frame[at..]);
            prop_assert_eq!(edits.edited_length(frame.len()), expected.len());
            prop_assert_eq!(edits.apply(&frame), expected);
        }
    }
}
