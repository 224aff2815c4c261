//! Edits are splices: a byte range is replaced, everything outside it is identical.

use std::ops::Range;

/// Replacements of byte ranges of one frame, kept in their order and apart from one another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    edits: Vec<Edit>,
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; empty for an insertion.
    pub span: Range<usize>,
    /// By what.
    pub with: Vec<u8>,
}

impl Edits {
    /// No edit at all.
    pub fn new() -> Edits {
        Edits::default()
    }

    /// Whether the frame stays as it is.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Replaces `span`. Insertions at one place keep the order in which they were asked for.
    ///
    /// # Panics
    /// In debug builds, if the range overlaps one that is already replaced: two rules would own the same bytes.
    pub fn replace(&mut self, span: Range<usize>, with: impl Into<Vec<u8>>) {
        let index = self
            .edits
            .partition_point(|edit| (edit.span.start, edit.span.end) <= (span.start, span.end.max(span.start)));
        debug_assert!(
            index == 0 || self.edits[index - 1].span.end <= span.start,
            "edits overlap"
        );
        debug_assert!(
            index == self.edits.len() || span.end <= self.edits[index].span.start,
            "edits overlap"
        );
        self.edits.insert(
            index,
            Edit {
                span,
                with: with.into(),
            },
        );
    }

    /// Inserts at `at`.
    pub fn insert(&mut self, at: usize, with: impl Into<Vec<u8>>) {
        self.replace(at..at, with);
    }

    /// Adds edits that were made against a part of the frame beginning at `at`.
    pub fn append_at(&mut self, at: usize, part: Edits) {
        for Edit { span, with } in part.edits {
            self.replace(span.start + at..span.end + at, with);
        }
    }

    /// The edits in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Edit> {
        self.edits.iter()
    }

    /// The length of a frame of `length` bytes after all edits.
    pub fn edited_length(&self, length: usize) -> usize {
        self.edits
            .iter()
            .fold(length, |sum, edit| sum + edit.with.len() - edit.span.len())
    }

    /// Calls `piece` with each run of the result: `Ok` a range of the frame that stays, `Err` a replacement.
    pub fn pieces<'a>(&'a self, length: usize, mut piece: impl FnMut(Result<Range<usize>, &'a [u8]>)) {
        let mut at = 0;
        for edit in &self.edits {
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
