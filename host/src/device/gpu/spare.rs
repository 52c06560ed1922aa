//! Small memory that was freed on a stream, for whoever next asks for as much there.
//!
//! The driver's pool takes longer to give a small piece and to take it back than to queue a launch. What is freed in stream
//! order may be given again in stream order: the work that used it is queued before the work that will. Pieces have the
//! size that was asked for, no more, so that a sanitizer sees every step over their end.

use std::collections::{HashMap, HashSet};

/// Larger pieces are the driver's to keep: their passes take longer than it does.
const MOST_BYTES: usize = 1 << 20;
/// All that is kept, together.
const MOST_KEPT: usize = 32 << 20;

/// The pieces of one stream that nobody has.
#[derive(Debug, Default)]
pub struct Spare {
    by_size: HashMap<usize, Vec<u64>>,
    kept: usize,
    /// What was given while the stream was captured: the graph's, which is not to be given to others.
    captured: HashSet<u64>,
}

impl Spare {
    /// A piece of so many bytes, if there is one.
    pub fn take(&mut self, bytes: usize) -> Option<u64> {
        let address = self.by_size.get_mut(&bytes)?.pop()?;
        self.kept -= bytes;
        Some(address)
    }

    /// Notes that a piece is a captured graph's.
    pub fn is_captured(&mut self, address: u64) {
        self.captured.insert(address);
    }

    /// Keeps a piece that nobody uses any more; whether it does. What is not kept is to be freed.
    #[must_use]
    pub fn keep(&mut self, address: u64, bytes: usize) -> bool {
        let fits = bytes <= MOST_BYTES && self.kept + bytes <= MOST_KEPT;
        if self.captured.remove(&address) || !fits {
            return false;
        }
        self.by_size.entry(bytes).or_default().push(address);
        self.kept += bytes;
        true
    }

    /// All pieces, to be freed.
    pub fn drain(&mut self) -> impl Iterator<Item = u64> {
        self.kept = 0;
        std::mem::take(&mut self.by_size).into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_goes_to_who_asks_for_its_size() {
        let mut spare = Spare::default();
        assert!(spare.keep(0x100, 12) && spare.keep(0x200, 16) && spare.keep(0x300, 12));
        assert_eq!(spare.take(8), None);
        assert_eq!((spare.take(16), spare.take(16)), (Some(0x200), None));
        assert_eq!((spare.take(12), spare.take(12), spare.take(12)), (Some(0x300), Some(0x100), None));
    }

    #[test]
    fn what_is_large_or_too_much_or_a_graphs_is_not_kept() {
        let mut spare = Spare::default();
        assert!(!spare.keep(1, MOST_BYTES + 1));
        spare.is_captured(2);
        assert!(!spare.keep(2, 4));
        assert!(spare.keep(2, 4), "the same address, given again outside of a capture");
        for piece in 0..31 {
            assert!(spare.keep(0x1000 + piece, MOST_BYTES));
        }
        assert!(!spare.keep(3, MOST_BYTES) && spare.keep(3, MOST_BYTES / 2));
        assert_eq!(spare.drain().count(), 33);
        assert_eq!((spare.take(4), spare.drain().count()), (None, 0));
        assert!(spare.keep(3, MOST_BYTES));
    }
}
