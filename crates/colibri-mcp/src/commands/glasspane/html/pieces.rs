//! Numbers of calls by owner and piece of time. Pieces grow as the time does that they cover, so
//! that an hour is seen as closely as a day, and their number is bounded.

use std::collections::BTreeMap;

/// The most pieces that the time from the first call to the last is cut into.
const MAX_PIECES: u64 = 288;
/// Lengths of a piece of time, in seconds. People can read each off an axis, and each but the last
/// is a part of the next.
const STEPS: [u64; 12] = [
    1, 5, 15, 60, 300, 900, 3600, 10_800, 21_600, 86_400, 604_800, 31_536_000,
];

/// The outcome of a call, by its place in the numbers of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanOutcome {
    /// It went well.
    Ok,
    /// It went wrong at the server or the tool.
    Failed,
    /// Colibri did not let it pass.
    Refused,
}

/// Numbers of calls by the beginning of a piece of time, in milliseconds, and by their owner.
#[derive(Debug, Default)]
pub(super) struct CallPieces {
    /// The place of the present length among [`STEPS`].
    level: usize,
    cells: BTreeMap<(u64, u64), [u64; 3]>,
}

impl CallPieces {
    /// The length of a piece, milliseconds.
    pub(super) fn step(&self) -> u64 {
        STEPS[self.level] * 1000
    }

    /// Counts a call.
    pub(super) fn add(&mut self, at: u64, owner: u64, outcome: SpanOutcome) {
        let step = self.step();
        self.cells.entry((at - at % step, owner)).or_default()[outcome as usize] += 1;
        while self.level + 1 < STEPS.len() && self.length() / self.step() > MAX_PIECES {
            self.level += 1;
            let step = self.step();
            for ((begin, owner), numbers) in std::mem::take(&mut self.cells) {
                let cell = self.cells.entry((begin - begin % step, owner)).or_default();
                for (sum, number) in cell.iter_mut().zip(numbers) {
                    *sum += number;
                }
            }
        }
    }

    /// The beginning of the first piece.
    pub(super) fn first(&self) -> Option<u64> {
        self.cells.keys().next().map(|(begin, _)| *begin)
    }

    fn length(&self) -> u64 {
        let last = self.cells.keys().next_back().map_or(0, |(begin, _)| *begin);
        last - self.first().unwrap_or(last) + self.step()
    }

    /// The beginning, the owner and the numbers of each cell, in order.
    pub(super) fn cells(&self) -> impl Iterator<Item = (u64, u64, [u64; 3])> {
        let cell = |((begin, owner), numbers): (&(u64, u64), &[u64; 3])| (*begin, *owner, *numbers);
        self.cells.iter().map(cell)
    }

    /// Forgets the calls of an owner.
    pub(super) fn forget(&mut self, owner: u64) {
        self.cells.retain(|(_, of), _| *of != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_with_the_time_and_no_call_is_lost() {
        for (i, step) in STEPS.windows(2).take(10).enumerate() {
            assert_eq!(step[1] % step[0], 0, "{i}");
        }
        let mut pieces = CallPieces::default();
        let noon = 1_795_262_400_000;
        for minute in 0..60 {
            pieces.add(noon + minute * 60_000, 0, SpanOutcome::Ok);
        }
        assert_eq!(
            (pieces.step(), pieces.first()),
            (15_000, Some(noon)),
            "an hour"
        );
        for hour in 0..24 {
            pieces.add(noon - hour * 3_600_000, 1, SpanOutcome::Refused);
        }
        assert_eq!(pieces.step(), 300_000, "a day");
        for year in 0..200 {
            pieces.add(year * 31_536_000_000, 2, SpanOutcome::Failed);
        }
        assert!(pieces.length() / pieces.step() <= MAX_PIECES);
        let sum = |owner: u64| {
            let cells = pieces.cells().filter(|(_, of, _)| *of == owner);
            cells.flat_map(|(_, _, numbers)| numbers).sum::<u64>()
        };
        assert_eq!([0, 1, 2].map(sum), [60, 24, 200]);
        pieces.forget(2);
        assert_eq!(pieces.cells().filter(|(_, of, _)| *of == 2).count(), 0);
    }
}
