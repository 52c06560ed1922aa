//! Which rows and threads a block takes: what is legal, what follows from it, and a model that ranks.
//!
//! Legal is what shared memory, the grid and a block's threads hold. A candidate is a number of rows a thread and of such runs
//! beside each other; the planes of a block, its threads and its shared memory follow. Its worth is a product of shares, each
//! 1 at best: of the bytes moved only once, of the rows that are there, of the blocks that a multiprocessor has room for, of a
//! block's bytes, and by [`Weights`] of what its threads do.

use cuda_std::prelude::*;

use super::{BandLaunch, Bands, Block, THREADS};
use crate::window::Divider;

/// Bytes of shared memory of a block, at most: what needs no leave of the driver.
pub(super) const MOST_BYTES: u64 = 48 * 1024;
/// Bytes of shared memory of a multiprocessor, at most.
const MULTIPROCESSOR_BYTES: u64 = 227 * 1024;
/// Bytes from which on a multiprocessor has room for fewer blocks than it has threads for.
const ROOM_BYTES: f64 = 26.0 * 1024.0;
/// Bytes that are worth a block: below, its start and its end take longer than what it moves.
const WORTH_BYTES: f64 = 20.0 * 1024.0;
/// Blocks along y, at most.
const MOST_BLOCKS: u32 = 65_535;

/// What a band of so many rows costs.
pub(super) struct Costs<C: Fn(u64) -> u64, S: Fn(u64, u64) -> u64> {
    pub(super) planes: u32,
    /// Rows of a plane.
    pub(super) height: u32,
    /// Bytes of a plane that any pass moves.
    pub(super) plane_bytes: u64,
    /// Bytes of shared memory of a block, at most.
    pub(super) most_bytes: u64,
    /// Bytes that a block moves for as many rows.
    pub(super) moved: C,
    /// Bytes of shared memory for as many rows of each of as many planes.
    pub(super) shared: S,
}

/// What counts in the choice of a block's threads: found by measuring it for each kind of kernel (docs/perf/log.md).
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// Rows that a thread takes one after another, at most.
    pub(super) most_run: u32,
    /// Rows of a band, at most.
    pub(super) most_rows: u32,
    /// What a thread does once, in rows of its run.
    pub(super) once: f64,
    /// What a block gains by many threads, of 1: they work while others of it wait.
    pub(super) many: f64,
    /// Threads that a multiprocessor should have at work, where instructions bound the pass.
    pub(super) at_work: u32,
    /// Whether the threads of all planes of a block count together.
    pub(super) together: bool,
}

impl Weights {
    /// Of kernels that are bound by their instructions.
    pub(super) const HEAVY: Self =
        Self { most_run: 8, most_rows: u32::MAX, once: 1.5, many: 0.0, at_work: 0, together: false };

    /// Of kernels that sum with weights, elements of so many bytes and `again` rows that the run before did.
    pub(super) fn weighted(bytes: usize, again: f64) -> Self {
        Self { most_run: 32, once: 0.5 + again, at_work: 1024, ..Self::light(bytes, 0.0) }
    }

    /// Of kernels that do little with an element of so many bytes, and `again` a row that the run before did. Where elements
    /// have four bytes, memory all but hides what a thread does once.
    pub(super) fn light(bytes: usize, again: f64) -> Self {
        let once = if bytes < 4 { 0.5 + again } else { 0.05 };
        Self { most_run: 14, most_rows: u32::MAX, once, many: 0.05, at_work: 0, together: true }
    }
}

impl<C: Fn(u64) -> u64, S: Fn(u64, u64) -> u64> Costs<C, S> {
    /// How good bands of so many rows are, 1 at best: bytes that are moved twice, rows that are not there, room for other
    /// blocks, and what a block is worth; none where a band has no room.
    pub(super) fn worth(&self, rows: u32) -> Option<f64> {
        let bands = u64::from(self.height.div_ceil(rows));
        let shared = (self.shared)(rows.into(), 1);
        if shared > self.most_bytes || bands > MOST_BLOCKS.into() {
            return None;
        }
        let moved = (self.moved)(rows.into());
        let once = self.plane_bytes as f64 / (bands * moved).max(self.plane_bytes) as f64;
        let there = f64::from(self.height) / (bands * u64::from(rows)) as f64;
        let room = (ROOM_BYTES / shared as f64).min(1.0);
        let large = if rows == self.height { 1.0 } else { (moved as f64 / WORTH_BYTES).min(1.0) };
        Some(once * (0.5 + 0.5 * there) * (0.5 + 0.5 * room) * (0.2 + 0.8 * large))
    }

    /// The planes of a block: `most` where they are whole and small enough.
    fn depth(&self, rows: u32, most: u32) -> u32 {
        let enough = |depth: u64| (self.shared)(rows.into(), depth) as f64 <= ROOM_BYTES / 2.0;
        let mut depth = 1;
        if rows == self.height {
            while depth < most.min(self.planes) && enough(u64::from(depth) + 1) {
                depth += 1;
            }
        }
        depth
    }

    /// The blocks, with the planes of each.
    pub(super) fn block(&self, rows: u32, most: u32) -> (Block, [u32; 3], u32) {
        let depth = self.depth(rows, most);
        let (deep, bands) = (self.planes.div_ceil(depth), self.height.div_ceil(rows));
        let planes_last = u32::from(deep <= MOST_BLOCKS);
        let grid = if planes_last == 1 { [bands, deep, 1] } else { [deep, bands, 1] };
        let shared = (self.shared)(rows.into(), depth.into()) as u32;
        (Block { planes: self.planes, depth, height: self.height, rows, planes_last }, grid, shared)
    }
}

impl Bands {
    /// Of all runs of rows and groups of runs that have room, those that cost least.
    pub(super) fn new<C: Fn(u64) -> u64, S: Fn(u64, u64) -> u64>(
        width: u32,
        weights: Weights,
        costs: &Costs<C, S>,
    ) -> Option<(Self, BandLaunch)> {
        let columns = width.min(THREADS);
        let mut best: Option<(f64, u32, u32)> = None;
        for run in 1..=weights.most_run.min(costs.height) {
            for groups in 1..=(THREADS / columns).min(costs.height.div_ceil(run)) {
                let rows = (run * groups).min(costs.height);
                if rows > weights.most_rows {
                    break;
                }
                let Some(worth) = costs.worth(rows) else { continue };
                let depth = if weights.together { costs.depth(rows, THREADS / (columns * groups)) } else { 1 };
                let threads = (columns * groups * depth).next_multiple_of(warp::WARP_SIZE);
                let at_work = f64::from(columns * groups * depth) / f64::from(threads);
                let once = f64::from(run) / (f64::from(run) + weights.once);
                let many = 1.0 - weights.many * (1.0 - f64::from(threads) / f64::from(THREADS));
                let shared = (costs.shared)(rows.into(), 1);
                let resident = (MULTIPROCESSOR_BYTES / shared.max(1)) as f64 * f64::from(threads);
                let enough = (resident / f64::from(weights.at_work.max(1))).min(1.0);
                let worth = worth * (0.5 + 0.5 * at_work) * once * many * (0.5 + 0.5 * enough);
                if best.is_none_or(|(of_best, ..)| worth > of_best) {
                    best = Some((worth, run, groups));
                }
            }
        }
        let (_, run, groups) = best?;
        let (block, grid, shared) = costs.block((run * groups).min(costs.height), THREADS / (columns * groups));
        let threads = (columns * groups * block.depth).next_multiple_of(warp::WARP_SIZE);
        let [by_run, by_groups, by_columns] = [run, groups, columns].map(Divider::new);
        let bands = Self { block, width, run, groups, by_run, by_groups, by_columns };
        Some((bands, BandLaunch { grid, block: [threads, 1, 1], shared }))
    }
}
