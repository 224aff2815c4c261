//! The Merkle tree of RFC 6962 §2.1, over the records of the trail in their order.
//!
//! The tree is never kept whole. What grows it is its *frontier*: the roots of the largest complete
//! subtrees, left to right, one for each bit set in the size. Forty lines of hashing are easier to
//! check than a dependency.

use std::collections::HashMap;

use colibri_text::{hex_into, unhex_into};
use sha2::{Digest as _, Sha256};

/// A SHA-256 hash: of a leaf, an inner node or a whole tree.
pub(crate) type Hash = [u8; 32];

/// A hash as 64 lower-case hex digits.
pub(crate) type HexHash = [u8; 64];

/// The digits of a hash.
pub(crate) fn to_hex(hash: &Hash) -> HexHash {
    let mut digits = [0; 64];
    hex_into(hash, &mut digits);
    digits
}

/// The hash of 64 lower-case hex digits; `None` for anything else.
pub(crate) fn from_hex(digits: &[u8]) -> Option<Hash> {
    let mut hash = [0; 32];
    unhex_into(digits, &mut hash).then_some(hash)
}

/// The hash of a leaf: SHA-256(0x00 ‖ data), RFC 6962 §2.1.
pub(crate) fn leaf_hash(data: &[u8]) -> Hash {
    Sha256::new()
        .chain_update([0])
        .chain_update(data)
        .finalize()
        .into()
}

/// The hash of an inner node: SHA-256(0x01 ‖ left ‖ right), RFC 6962 §2.1.
pub(crate) fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut both = [0; 65];
    both[0] = 1;
    both[1..33].copy_from_slice(left);
    both[33..].copy_from_slice(right);
    Sha256::digest(both).into()
}

/// The roots of the largest complete subtrees of a growing tree: all that is needed to append to it
/// and to know its root, whatever its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Default for Frontier {
    /// The empty tree, with room for the peaks of any: appending allocates nothing.
    fn default() -> Self {
        Self {
            size: 0,
            peaks: Vec::with_capacity(u64::BITS as usize),
        }
    }
}

impl Frontier {
    /// Takes up a tree of `size` leaves again from its peaks, largest first. `None` where their
    /// number cannot be right.
    pub(crate) fn resume(size: u64, peaks: &[Hash]) -> Option<Self> {
        (peaks.len() == size.count_ones() as usize).then(|| {
            let mut resumed = Self {
                size,
                ..Self::default()
            };
            resumed.peaks.extend_from_slice(peaks);
            resumed
        })
    }

    /// The number of leaves of the tree.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the largest complete subtrees, largest (leftmost) first.
    pub(crate) fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Appends one leaf, given by its hash.
    pub(crate) fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        let mut level = self.size;
        while level & 1 == 1 {
            if let Some(left) = self.peaks.pop() {
                hash = node_hash(&left, &hash);
            }
            level >>= 1;
        }
        self.peaks.push(hash);
        // A forged state can name as many leaves as a number can.
        self.size = self.size.saturating_add(1);
    }

    /// The root of the tree: MTH(D\[n\]) of RFC 6962 §2.1; of an empty tree the hash of the empty
    /// string.
    pub(crate) fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        match peaks.next() {
            None => Sha256::digest(b"").into(),
            Some(last) => peaks.fold(*last, |right, left| node_hash(left, &right)),
        }
    }
}

/// Part of a tree: what is left of `start` as a frontier, and the leaves from there on. Enough for
/// the audit path of any leaf from `start` on, so that a proof reads one segment, however long the
/// trail is.
#[derive(Debug)]
pub(crate) struct Suffix {
    start: u64,
    leaves: Vec<Hash>,
    peaks: HashMap<(u64, u64), Hash>,
}

impl Suffix {
    /// A suffix without leaves yet, right of `frontier`.
    pub(crate) fn new(frontier: &Frontier) -> Self {
        let mut peaks = HashMap::new();
        let mut at = 0;
        let mut rest = frontier.size;
        for peak in &frontier.peaks {
            let width = 1 << (63 - rest.leading_zeros());
            peaks.insert((at, at + width), *peak);
            at += width;
            rest -= width;
        }
        Self {
            start: frontier.size,
            leaves: Vec::new(),
            peaks,
        }
    }

    /// Appends one leaf, given by its hash.
    pub(crate) fn push(&mut self, leaf: Hash) {
        self.leaves.push(leaf);
    }

    /// The proof that the tree of the first `size` leaves continues the one at the beginning of the
    /// suffix, PROOF(m, D\[n\]) of RFC 6962 §2.1.2. `None` where the suffix does not reach that
    /// far.
    pub(crate) fn growth(&self, size: u64) -> Option<Vec<Hash>> {
        let (mut low, mut high) = (0, size);
        // True while the old tree begins where the range does: its root is known to whoever checks.
        let mut is_known = true;
        let mut path = Vec::new();
        while self.start < high {
            let middle = low + split(high - low);
            if self.start <= middle {
                path.push(self.range(middle, high)?);
                high = middle;
            } else {
                path.push(self.range(low, middle)?);
                low = middle;
                is_known = false;
            }
        }
        if self.start > high {
            return None;
        }
        if !is_known {
            path.push(self.range(low, high)?);
        }
        path.reverse();
        Some(path)
    }

    /// The audit path of leaf `index` in the whole tree up to here, PATH(m, D\[n\]) of RFC 6962
    /// §2.1.1. `None` where the leaf is not in the suffix.
    pub(crate) fn path(&self, index: u64) -> Option<Vec<Hash>> {
        let end = self.start + self.leaves.len() as u64;
        if index < self.start || index >= end {
            return None;
        }
        let (mut low, mut high) = (0, end);
        let mut path = Vec::new();
        while high - low > 1 {
            let middle = low + split(high - low);
            if index < middle {
                path.push(self.range(middle, high)?);
                high = middle;
            } else {
                path.push(self.range(low, middle)?);
                low = middle;
            }
        }
        path.reverse();
        Some(path)
    }

    fn range(&self, low: u64, high: u64) -> Option<Hash> {
        if let Some(peak) = self.peaks.get(&(low, high)) {
            return Some(*peak);
        }
        if high - low == 1 {
            return self
                .leaves
                .get(usize::try_from(low.checked_sub(self.start)?).ok()?)
                .copied();
        }
        let middle = low + split(high - low);
        Some(node_hash(
            &self.range(low, middle)?,
            &self.range(middle, high)?,
        ))
    }
}

/// The largest power of two smaller than `width`, for `width` > 1.
fn split(width: u64) -> u64 {
    1 << (63 - (width - 1).leading_zeros())
}

/// The root that follows from a leaf and its audit path, RFC 9162 §2.1.3.2. `None` where the path
/// has the wrong length for that index and size.
pub(crate) fn root_from_path(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let (mut node, mut last) = (index, size - 1);
    let mut hash = leaf;
    for sibling in path {
        if last == 0 {
            return None;
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            if node & 1 == 0 {
                while node & 1 == 0 && node != 0 {
                    node >>= 1;
                    last >>= 1;
                }
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

/// True if by this proof a tree of `old` leaves is a beginning of one of `size`, RFC 9162 §2.1.4.2.
pub(crate) fn grows_into(old: u64, old_root: &Hash, size: u64, root: &Hash, path: &[Hash]) -> bool {
    if old == 0 || old == size {
        return path.is_empty() && (old == 0 || old_root == root);
    }
    if old > size {
        return false;
    }
    let mut steps = path.iter();
    let (mut node, mut last) = (old - 1, size - 1);
    while node & 1 == 1 {
        node >>= 1;
        last >>= 1;
    }
    let first = if old.is_power_of_two() {
        Some(old_root)
    } else {
        steps.next()
    };
    let Some(first) = first else { return false };
    let (mut before, mut after) = (*first, *first);
    for step in steps {
        if last == 0 {
            return false;
        }
        if node & 1 == 1 || node == last {
            before = node_hash(step, &before);
            after = node_hash(step, &after);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            after = node_hash(&after, step);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && before == *old_root && after == *root
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MTH as RFC 6962 §2.1 writes it, with no thought of speed: what the code above is tested
    /// against.
    fn naive_root(leaves: &[Vec<u8>]) -> Hash {
        match leaves {
            [] => Sha256::digest(b"").into(),
            [only] => leaf_hash(only),
            _ => {
                let k = split(leaves.len() as u64) as usize;
                node_hash(&naive_root(&leaves[..k]), &naive_root(&leaves[k..]))
            }
        }
    }

    /// PATH as RFC 6962 §2.1.1 writes it.
    fn naive_path(m: usize, leaves: &[Vec<u8>]) -> Vec<Hash> {
        if leaves.len() <= 1 {
            return Vec::new();
        }
        let k = split(leaves.len() as u64) as usize;
        if m < k {
            let mut path = naive_path(m, &leaves[..k]);
            path.push(naive_root(&leaves[k..]));
            path
        } else {
            let mut path = naive_path(m - k, &leaves[k..]);
            path.push(naive_root(&leaves[..k]));
            path
        }
    }

    fn leaves(n: usize) -> Vec<Vec<u8>> {
        (0..n).map(|i| vec![(i * 7) as u8; i % 5]).collect()
    }

    #[test]
    fn known_answers() {
        // The empty tree, and the one-leaf tree over the empty string: SHA-256("") and
        // SHA-256(0x00).
        assert_eq!(
            colibri_text::hex(&Frontier::default().root()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            colibri_text::hex(&leaf_hash(b"")),
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
        );
        // The eight leaves that RFC 6962 implementations share as test data, and the roots of their
        // prefixes.
        let data = [
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        ];
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut frontier = Frontier::default();
        for (leaf, root) in data.iter().zip(roots) {
            let bytes: Vec<u8> = (0..leaf.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&leaf[i..i + 2], 16).unwrap())
                .collect();
            frontier.push(leaf_hash(&bytes));
            assert_eq!(from_hex(root.as_bytes()), Some(frontier.root()));
        }
    }

    #[test]
    fn frontier_and_paths_match_the_definition() {
        for n in 1..70 {
            let data = leaves(n);
            let mut frontier = Frontier::default();
            data.iter().for_each(|leaf| frontier.push(leaf_hash(leaf)));
            assert_eq!(frontier.root(), naive_root(&data), "size {n}");
            for start in [0, 1, n / 3, n / 2, n - 1] {
                let mut before = Frontier::default();
                data[..start]
                    .iter()
                    .for_each(|leaf| before.push(leaf_hash(leaf)));
                let mut suffix = Suffix::new(&before);
                data[start..]
                    .iter()
                    .for_each(|leaf| suffix.push(leaf_hash(leaf)));
                for (index, leaf) in data.iter().enumerate() {
                    let path = suffix.path(index as u64);
                    if index < start {
                        assert_eq!(path, None);
                        continue;
                    }
                    let path = path.unwrap();
                    assert_eq!(
                        path,
                        naive_path(index, &data),
                        "leaf {index} of {n} from {start}"
                    );
                    let root = |i, n, path: &[Hash]| root_from_path(leaf_hash(leaf), i, n, path);
                    assert_eq!(root(index as u64, n as u64, &path), Some(frontier.root()));
                    assert_ne!(
                        root(index as u64 + 1, n as u64, &path),
                        Some(frontier.root())
                    );
                    let mut longer = path.clone();
                    longer.push([0; 32]);
                    assert_eq!(root(index as u64, n as u64, &longer), None);
                    if let Some((_, shorter)) = path.split_last() {
                        assert_eq!(root(index as u64, n as u64, shorter), None);
                    }
                }
            }
        }
    }

    /// PROOF and SUBPROOF as RFC 6962 §2.1.2 writes them.
    fn naive_growth(m: usize, leaves: &[Vec<u8>], is_known: bool) -> Vec<Hash> {
        if m == leaves.len() {
            return if is_known {
                vec![]
            } else {
                vec![naive_root(leaves)]
            };
        }
        let k = split(leaves.len() as u64) as usize;
        let (mut path, other) = if m <= k {
            (naive_growth(m, &leaves[..k], is_known), &leaves[k..])
        } else {
            (naive_growth(m - k, &leaves[k..], false), &leaves[..k])
        };
        path.push(naive_root(other));
        path
    }

    #[test]
    fn growth_is_proved_as_defined_and_of_no_other_tree() {
        for n in 1..40 {
            let data = leaves(n);
            let root = naive_root(&data);
            for m in 1..=n {
                let mut before = Frontier::default();
                data[..m]
                    .iter()
                    .for_each(|leaf| before.push(leaf_hash(leaf)));
                let mut suffix = Suffix::new(&before);
                data[m..]
                    .iter()
                    .for_each(|leaf| suffix.push(leaf_hash(leaf)));
                // Leaves behind the tree that is proved.
                (0..3).for_each(|i| suffix.push([i; 32]));
                let path = suffix.growth(n as u64).unwrap();
                assert_eq!(path, naive_growth(m, &data, true), "{m} of {n}");
                assert_eq!(suffix.growth(m as u64 - 1), None);
                let (old, new) = (m as u64, n as u64);
                let holds = |path: &[Hash]| grows_into(old, &before.root(), new, &root, path);
                assert!(holds(&path) && grows_into(0, &[0; 32], new, &root, &[]));
                assert!(!grows_into(new + 1, &root, new, &root, &path));
                assert!(!holds(&[&path[..], &[[0; 32]]].concat()));
                for at in 0..path.len() {
                    let mut changed = path.clone();
                    changed[at][31] ^= 1;
                    assert!(!holds(&changed) && !holds(&path[1..]) && !holds(&path[..at]));
                }
                let other = [&root[..31], &[root[31] ^ 1]].concat().try_into().unwrap();
                assert!(!grows_into(old, &other, new, &root, &path));
                assert!(!grows_into(old, &before.root(), new, &other, &path));
            }
        }
    }

    #[test]
    fn a_frontier_resumes_only_with_the_right_number_of_peaks() {
        let mut frontier = Frontier::default();
        for i in 0..11_u8 {
            frontier.push(leaf_hash(&[i]));
        }
        assert_eq!(
            Frontier::resume(11, frontier.peaks()),
            Some(frontier.clone())
        );
        assert_eq!(Frontier::resume(12, frontier.peaks()), None);
        assert_eq!(Frontier::resume(0, &[]), Some(Frontier::default()));
    }
}
