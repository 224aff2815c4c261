//! Verifying: what is wrong with a trail, where, and how far the promise reaches.
//!
//! One pass over the segments, in constant memory but for the witnessed heads. Every line is
//! checked against the line before it, every seal against the tree, every witnessed head against
//! the record it speaks of. Since the chain has no key, only the last proves that nobody rewrote
//! all of it.

use std::io;
use std::path::Path;

use crate::cosignature::CosignedCheckpoint;
use crate::gap::Gap;
use crate::line::{FORMAT, GENESIS, SegmentLine};
use crate::merkle::{Frontier, HexHash, to_hex};
use crate::read::{LineReader, Read, TrailListing};
use crate::report::{
    Extent, MAX_LISTED, Report, TrailFault, TrailFaultKind, TrailWitness, Voucher,
};
use crate::segment::SegmentName;
use crate::signed_note::{Checkpoint, Verifier};
use crate::state::{StateRecord, carries_state, opens_segment};
use crate::witness::{TrailHead, WitnessedHeads};

/// Verifies the trail in `dir`. With a key, checkpoints are checked against it; the heads are what
/// witnesses saw.
///
/// # Errors
/// Where the directory or a segment cannot be read. What is wrong with the trail itself is in the
/// report.
pub fn verify(
    dir: &Path,
    extent: Extent,
    verifier: Option<&Verifier>,
    heads: &WitnessedHeads,
) -> io::Result<Report> {
    let listing = TrailListing::read(dir)?;
    let mut walk = VerifyWalk {
        verifier,
        heads,
        report: Report::default(),
        place: (None, None),
        head: GENESIS,
        next: 0,
        top: 0,
        tree: Some(Frontier::default()),
        adopt: false,
        after_dropped: false,
        unlinked: false,
        sealed: true,
        previous: None,
        gaps: Vec::new(),
        first: None,
        rewritten: 0,
        noted: false,
    };
    walk.run(dir, &listing)?;
    Ok(walk.finish(extent))
}

struct VerifyWalk<'a> {
    verifier: Option<&'a Verifier>,
    heads: &'a WitnessedHeads,
    report: Report,
    /// Segment and line that are being read.
    place: (Option<String>, Option<u64>),
    /// The hash that the next line must follow.
    head: HexHash,
    /// The number that the next record must have.
    next: u64,
    /// One more than the highest number met.
    top: u64,
    /// The tree; `None` from a fault on until a record tells its state again.
    tree: Option<Frontier>,
    /// The next line is taken as it is: what was before it is not there.
    adopt: bool,
    /// The next line is the first after segments of which only a state is left. Where that segment
    /// was not ended, there were records behind its last seal: the `recovered` record that follows
    /// knows how many.
    after_dropped: bool,
    /// The line before was no good: do not say of the next one that it does not follow.
    unlinked: bool,
    /// True if the last record was a seal.
    sealed: bool,
    /// The last segment with a counted record.
    previous: Option<SegmentName>,
    gaps: Vec<Gap>,
    /// The number of the first record that is there.
    first: Option<u64>,
    rewritten: u64,
    /// True if the daemon's own note agrees.
    noted: bool,
}

impl VerifyWalk<'_> {
    fn fault(&mut self, kind: TrailFaultKind, what: String) {
        let (segment, line) = self.place.clone();
        self.fault_at(segment, line, kind, what);
    }

    fn fault_at(
        &mut self,
        segment: Option<String>,
        line: Option<u64>,
        kind: TrailFaultKind,
        what: String,
    ) {
        self.report.fault_count += 1;
        if self.report.faults.len() < MAX_LISTED {
            self.report.faults.push(TrailFault {
                segment,
                line,
                kind,
                what,
            });
        }
    }

    fn run(&mut self, dir: &Path, listing: &TrailListing) -> io::Result<()> {
        let mut ordinal = self.dropped(dir, listing)?;
        for name in &listing.segments {
            self.place = (Some(name.to_string()), None);
            if name.ordinal == ordinal {
                let what = "two segments have this number".to_owned();
                self.fault(TrailFaultKind::InsertedSegment, what);
            } else if name.ordinal != ordinal + 1 {
                let what = match name.ordinal - ordinal {
                    2 => format!("segment {} is not there", ordinal + 1),
                    _ => format!(
                        "segments {} to {} are not there",
                        ordinal + 1,
                        name.ordinal - 1
                    ),
                };
                self.fault(TrailFaultKind::MissingSegment, what);
                self.adopt = true;
            }
            ordinal = name.ordinal;
            self.segment(
                dir,
                listing,
                *name,
                listing.last.is_none_or(|last| *name >= last),
            )?;
        }
        Ok(())
    }

    /// Checks what is left of dropped segments; returns the ordinal of the last of them.
    fn dropped(&mut self, dir: &Path, listing: &TrailListing) -> io::Result<u64> {
        let first = listing
            .segments
            .first()
            .map_or(u64::MAX, |name| name.ordinal);
        let (mut ordinal, mut size) = (0, 0);
        for name in &listing.dropped {
            self.place = (Some(name.to_string()), None);
            if name.ordinal > first {
                let what = "only its seal is there, but retention drops the oldest segments first"
                    .to_owned();
                self.fault(TrailFaultKind::MissingSegment, what);
                continue;
            }
            if name.ordinal != ordinal + 1 {
                let what = format!("the seal of segment {} is not there", ordinal + 1);
                self.fault(TrailFaultKind::MissingSegment, what);
            }
            ordinal = name.ordinal;
            let mut buffer = Vec::new();
            let mut reader = LineReader::open(&name.seal_path(dir), None)?;
            let whole = reader.next(&mut buffer)? == Read::Line
                && reader.next(&mut Vec::new())? == Read::End;
            let line = if whole {
                SegmentLine::parse(&buffer)
            } else {
                None
            };
            let seal = line.and_then(|line| {
                let (leaf, record) = (line.leaf()?, StateRecord::parse(&line)?);
                let tree = record.tree()?;
                Some((line, leaf, record, tree))
            });
            let Some((line, leaf, record, mut tree)) = seal else {
                let what = "what is left of this dropped segment is not its seal".to_owned();
                self.fault(TrailFaultKind::BadSeal, what);
                continue;
            };
            if record.tree_size != line.n
                || record.tree_size < size
                || record.head.as_bytes() != line.prev
            {
                let what =
                    "the seal of this dropped segment does not fit the one before it".to_owned();
                self.fault(TrailFaultKind::BadSeal, what);
            }
            self.checkpoint(&line, &record);
            size = record.tree_size;
            self.head = *line.hash;
            self.sealed = line.kind == "seal";
            self.previous = Some(*name);
            self.next = line.n.saturating_add(1);
            tree.push(leaf);
            self.tree = Some(tree);
        }
        if ordinal > 0 {
            self.after_dropped = true;
            self.top = self.next;
            let what = format!(
                "{ordinal} segments were dropped and left their seals (retention); their records cannot be checked"
            );
            self.report.notes.push(what);
        }
        Ok(ordinal)
    }

    fn segment(
        &mut self,
        dir: &Path,
        listing: &TrailListing,
        name: SegmentName,
        last: bool,
    ) -> io::Result<()> {
        let torn = listing.torn.get(&name);
        let mut reader = LineReader::open(&name.path(dir), torn.map(|t| t.offset))?;
        let mut buffer = Vec::new();
        let (mut number, mut whole) = (0, true);
        self.report.segments += 1;
        loop {
            let read = reader.next(&mut buffer)?;
            if read == Read::End {
                break;
            }
            number += 1;
            self.place.1 = Some(number);
            if read == Read::Line {
                self.line(&buffer, number == 1);
                if number == 1 {
                    self.previous = Some(name);
                }
            } else if last && torn.is_none() {
                let length = buffer.len();
                self.report.notes.push(format!(
                    "segment {name} ends with {length} bytes of an interrupted write; the next start begins a new segment"
                ));
            } else if torn.is_none() {
                self.fault(
                    TrailFaultKind::TornTail,
                    "the segment ends within a line and nothing after it says why".into(),
                );
                self.unlinked = true;
                self.tree = None;
            } else {
                whole = false;
            }
        }
        let Some(torn) = torn else {
            if !last && !self.sealed {
                self.place.1 = Some(number);
                self.fault(
                    TrailFaultKind::BadLink,
                    "the segment does not end with a seal, and no record says why".into(),
                );
            }
            return Ok(());
        };
        if !whole || reader.offset() < torn.offset {
            self.fault(
                TrailFaultKind::Truncated,
                "the segment is shorter than the record after it says, or has no line end there"
                    .into(),
            );
            return Ok(());
        }
        self.tail(&mut reader, torn.offset, torn.length, number)
    }

    /// Looks at what does not count: whole lines in it must have been a batch that was refused in
    /// the middle.
    fn tail(
        &mut self,
        reader: &mut LineReader,
        offset: u64,
        length: u64,
        mut number: u64,
    ) -> io::Result<()> {
        reader.seek(offset)?;
        let (mut head, mut next) = (self.head, self.next);
        let mut buffer = Vec::new();
        loop {
            number += 1;
            match reader.next(&mut buffer)? {
                Read::Line => {
                    let line = SegmentLine::parse(&buffer).filter(|line| line.leaf().is_some());
                    match line.filter(|line| *line.prev == head && line.n == next) {
                        Some(line) => (head, next) = (*line.hash, line.n.saturating_add(1)),
                        None => {
                            self.place.1 = Some(number);
                            let what = "what follows the last counted record is not the rest of an interrupted write: \
                                        a failing disk, a power failure, or somebody's hand";
                            self.fault(TrailFaultKind::DamagedTail, what.into());
                            return Ok(());
                        }
                    }
                }
                Read::Partial => {}
                Read::End => break,
            }
        }
        let there = reader.offset() - offset;
        if there != length {
            let what = format!(
                "{there} bytes follow the last counted record, the record after it says {length}"
            );
            self.fault(TrailFaultKind::DamagedTail, what);
        }
        Ok(())
    }

    fn line(&mut self, bytes: &[u8], first: bool) {
        let Some(line) = SegmentLine::parse(bytes) else {
            self.fault(
                TrailFaultKind::MalformedLine,
                "not a line of a trail".into(),
            );
            self.unlinked = true;
            self.tree = None;
            self.next = self.next.saturating_add(1);
            self.top = self.top.max(self.next);
            return;
        };
        let leaf = line.leaf();
        let intact = leaf.is_some();
        if !intact {
            self.fault(
                TrailFaultKind::EditedRecord,
                format!("record {} is not what its hash was made of", line.n),
            );
            self.tree = None;
        }
        let recovered = std::mem::take(&mut self.after_dropped)
            && line.kind == "recovered"
            && line.n >= self.next;
        if self.adopt || recovered {
            self.top = self.top.max(line.n);
            self.tree = None;
        } else if line.n != self.next {
            self.out_of_order(&line, intact);
        } else if *line.prev != self.head && !self.unlinked && intact {
            let (kind, what) = if first {
                (
                    TrailFaultKind::BadLink,
                    format!(
                        "record {} does not follow the end of the segment before it",
                        line.n
                    ),
                )
            } else {
                let before = line.n.saturating_sub(1);
                (
                    TrailFaultKind::EditedRecord,
                    format!(
                        "record {} does not follow record {before}: one was replaced",
                        line.n
                    ),
                )
            };
            self.fault(kind, what);
            self.tree = None;
        }
        self.adopt = false;
        self.first.get_or_insert(line.n);
        // After a fault the next line is measured against this one, so that one fault is named
        // once.
        self.unlinked = !intact;
        self.close_gap(line.n);
        self.state(&line, first);
        self.head = *line.hash;
        self.next = line.n.saturating_add(1);
        self.top = self.top.max(self.next);
        self.sealed = line.kind == "seal";
        match (&mut self.tree, leaf) {
            (Some(tree), Some(leaf)) => tree.push(leaf),
            _ => self.tree = None,
        }
        self.witnessed(&line);
        self.cosigned(&line);
    }

    fn out_of_order(&mut self, line: &SegmentLine<'_>, intact: bool) {
        self.tree = None;
        let n = line.n;
        if n >= self.top {
            if n > self.top {
                self.gaps.push(Gap {
                    from: self.top,
                    to: n,
                    place: self.place.clone(),
                });
            }
        } else if self.gaps.iter().any(|gap| gap.has(n)) {
            self.fault(
                TrailFaultKind::ReorderedRecord,
                format!("record {n} does not stand where it was written"),
            );
        } else if intact {
            self.fault(
                TrailFaultKind::InsertedRecord,
                format!("record {n} stands here a second time"),
            );
        }
    }

    fn close_gap(&mut self, n: u64) {
        if let Some(at) = self.gaps.iter().position(|gap| gap.has(n)) {
            let gap = self.gaps.swap_remove(at);
            self.gaps.extend(gap.without(n));
        }
        // A trail with thousands of holes is named well enough by the first of them.
        if self.gaps.len() > MAX_LISTED {
            self.report_gaps();
        }
    }

    fn report_gaps(&mut self) {
        for gap in std::mem::take(&mut self.gaps) {
            let what = gap.to_string();
            self.fault_at(
                gap.place.0,
                gap.place.1,
                TrailFaultKind::MissingRecord,
                what,
            );
        }
    }

    /// Checks a record that tells the state of the trail, and that one stands where one must.
    fn state(&mut self, line: &SegmentLine<'_>, first: bool) {
        let opens = opens_segment(line.kind);
        if opens != first {
            let what = if first {
                "the segment does not begin with its opening record"
            } else {
                "an opening record within a segment"
            };
            self.fault(TrailFaultKind::BadLink, what.into());
        }
        if !carries_state(line.kind) {
            return;
        }
        let Some((record, claimed)) =
            StateRecord::parse(line).and_then(|record| record.tree().map(|tree| (record, tree)))
        else {
            self.fault(
                TrailFaultKind::BadSeal,
                format!("record {} does not tell a state of the trail", line.n),
            );
            self.tree = None;
            return;
        };
        let fits = self.tree.as_ref().is_none_or(|tree| *tree == claimed);
        if !fits || record.tree_size != line.n || record.head.as_bytes() != line.prev {
            self.fault(
                TrailFaultKind::BadSeal,
                format!("record {} does not fit the records before it", line.n),
            );
        }
        if opens && first {
            let previous = self.previous.map(|name| name.to_string());
            if record.format != Some(FORMAT) {
                self.fault(
                    TrailFaultKind::BadLink,
                    format!("the segment does not say that it is of format {FORMAT}"),
                );
            }
            if record.previous != previous && line.n > 0 {
                let named = record.previous.as_deref().unwrap_or("none");
                let what = format!("the segment names {named} as the one before it");
                self.fault(TrailFaultKind::BadLink, what);
            }
        }
        self.checkpoint(line, &record);
        self.tree = Some(claimed);
    }

    fn checkpoint(&mut self, line: &SegmentLine<'_>, record: &StateRecord) {
        if line.kind != "seal" {
            return;
        }
        let note = record.checkpoint.as_deref().unwrap_or_default();
        let opened = match self.verifier {
            Some(verifier) => verifier.open(note),
            None => Checkpoint::parse(note).map(|c| (c.size, c.root)),
        };
        match opened {
            Ok((size, root))
                if size == record.tree_size && to_hex(&root) == record.root.as_bytes() =>
            {
                self.report.checkpoints += u64::from(self.verifier.is_some());
            }
            Ok(_) => self.fault(
                TrailFaultKind::BadCheckpoint,
                "the checkpoint is for another tree than its seal".into(),
            ),
            Err(error) => self.fault(TrailFaultKind::BadCheckpoint, error.to_string()),
        }
    }

    /// Compares the tree with the checkpoints that witnesses signed. One whose tree is not known
    /// agrees with none.
    fn cosigned(&mut self, line: &SegmentLine<'_>) {
        let heads = self.heads;
        let signed =
            |checkpoint: &&CosignedCheckpoint| line.n.checked_add(1) == Some(checkpoint.records);
        for checkpoint in heads.cosigned.iter().filter(signed) {
            match self
                .tree
                .as_ref()
                .map(|tree| tree.root() == checkpoint.root)
            {
                Some(true) => {
                    self.report.cosigned_by.extend(checkpoint.signatures());
                    if self.rewritten == 0 && !checkpoint.by.is_empty() {
                        self.report.promised_records = checkpoint.records;
                    }
                }
                Some(false) => self.rewritten(format!(
                    "a witness signed another tree of {} records",
                    checkpoint.records
                )),
                None => {}
            }
        }
    }

    /// Notes that a witness saw something else; the first time it is a fault.
    fn rewritten(&mut self, what: String) {
        self.rewritten += 1;
        if self.rewritten == 1 {
            self.fault(TrailFaultKind::Rewritten, what);
        }
    }

    /// Compares a record with what others know of it.
    fn witnessed(&mut self, line: &SegmentLine<'_>) {
        let root = self.tree.as_ref().map(Frontier::root);
        let agrees = |head: &TrailHead| {
            to_hex(&head.hash) == *line.hash && root.is_none_or(|root| root == head.root)
        };
        if let Some(noted) = &self.heads.noted
            && line.n.checked_add(1) == Some(noted.records)
        {
            if agrees(noted) {
                self.noted = true;
            } else {
                let what = format!("the daemon noted another head after record {}", line.n);
                self.fault(TrailFaultKind::Rewritten, what);
            }
        }
        let Some(heads) = self.heads.heads.get(&(line.n.saturating_add(1))) else {
            return;
        };
        for head in heads {
            if agrees(head) {
                self.report.witnessed_heads += 1;
                if self.rewritten == 0 {
                    self.report.promised_records = head.records;
                }
            } else {
                self.rewritten(format!(
                    "a witness saw another head after record {}: the trail was written anew somewhere after record {}",
                    line.n, self.report.promised_records
                ));
            }
        }
    }

    fn finish(mut self, extent: Extent) -> Report {
        self.report_gaps();
        let cosigned = self
            .heads
            .cosigned
            .iter()
            .map(|checkpoint| checkpoint.records);
        let seen = self
            .heads
            .heads
            .keys()
            .copied()
            .chain(cosigned)
            .max()
            .unwrap_or(0);
        let noted = self.heads.noted.as_ref().map_or(0, |head| head.records);
        let last = seen.max(noted);
        let who = if seen >= noted {
            "a witness saw"
        } else {
            "the daemon noted"
        };
        let what = format!("{who} {last} records, the trail has {}", self.top);
        match extent {
            Extent::Whole if last > self.top => {
                let (segment, line) = self.place.clone();
                self.fault_at(segment, line, TrailFaultKind::Truncated, what);
            }
            Extent::Archive if last > self.top => self
                .report
                .notes
                .push(format!("{what}: the rest is not archived yet")),
            _ => {}
        }
        if self.report.promised_records > 0 {
            self.report.vouched_by.push(TrailWitness {
                by: Voucher::Witness,
                records: self.report.promised_records,
            });
        }
        if self.noted || self.heads.noted.is_some() && noted == 0 {
            self.report.vouched_by.push(TrailWitness {
                by: Voucher::Note,
                records: noted,
            });
        }
        self.report.first_record = self.first.unwrap_or(self.top);
        self.report.records = self.top;
        self.report.head = String::from_utf8_lossy(&self.head).into_owned();
        self.report.root = self.tree.map(|tree| colibri_text::hex(&tree.root()));
        if self.heads.forged > 0 {
            let forged = self.heads.forged;
            self.report.notes.push(format!(
                "{forged} heads say that they are of this trail but are not signed by its key"
            ));
        }
        if !self.sealed && self.top > 0 && extent == Extent::Whole {
            self.report
                .notes
                .push("the last records are not sealed yet: the daemon runs, or was killed".into());
        }
        self.report
    }
}
