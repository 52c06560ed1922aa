//! Windows of any size down a column, by groups of rows.
//!
//! Rows in groups of as many as windows are apart: each window is a few whole groups and the first rows of one more. A thread
//! goes down its column and keeps the last groups, so that it takes each input once, whatever the windows, and a few
//! groups for each window. Sums of windows over an input follow the same groups: of a group's rows the first have one window
//! more than the others, so that a thread adds what windows give twice a group.

use super::any::{of_outputs, steps_inside};
use super::{BandLaunch, Bands, Costs, MOST_RUN, staged_bytes};
use crate::window::{Nchw, Window};

/// Whole groups that a thread can keep.
pub const MOST_GROUPS: u32 = 4;

/// Rows of a group, at most.
const MOST_STRIDE: u32 = 4;

/// The stride by which windows are taken [down](down) a column: 0 where a thread cannot keep all groups of a window, or where
/// windows of which each has its own rows have nothing to share.
pub fn stride_down(window: &Window<Nchw>) -> u32 {
    let (size, stride) = (window.size[0], window.stride[0]);
    let fits = size > stride && size / stride <= MOST_GROUPS && stride <= MOST_STRIDE;
    if fits { stride } else { 0 }
}

impl Bands {
    /// Over columns of inputs by rows of outputs, of windows without dilation; an input has `bytes`, and `kept` bytes are left
    /// for each of these.
    pub fn of_columns(window: &Window<Nchw>, bytes: usize, kept: &[usize]) -> Option<(Self, BandLaunch)> {
        Self::new(window.input[1], 4 * MOST_RUN, &of_outputs(window, bytes, kept, 0)?)
    }

    /// Over groups of rows of inputs, if a thread can keep those of a window; an output has `bytes`, and four more are left
    /// for each.
    pub fn of_groups(window: &Window<Nchw>, bytes: usize) -> Option<(Self, BandLaunch)> {
        let groups = window.size[0] / window.stride[0];
        if window.dilation != [1, 1] || !(1..=MOST_GROUPS).contains(&groups) {
            return None;
        }
        let [wide, narrow, bytes] = [window.input[1].into(), window.output[1].into(), bytes as u64];
        let (height, whole) = (u64::from(window.input[0]), u64::from(window.output[0]));
        let (stride, first) = (window.stride[0], window.padding[0] / window.stride[0]);
        let rows = (window.input[0] - 1 + window.padding[0]) / stride + 1 - first;
        let reach = move |rows: u64| whole.min(rows + u64::from(groups));
        let shared = move |rows: u64, depth: u64| {
            let line = depth * reach(rows) * narrow;
            staged_bytes(line * bytes) + staged_bytes(line * size_of::<f32>() as u64)
        };
        let moved = move |rows: u64| (reach(rows) * narrow + rows * u64::from(stride) * wide) * bytes;
        let plane_bytes = (whole * narrow + height * wide) * bytes;
        let costs = Costs { planes: window.planes, height: rows, plane_bytes, moved, shared };
        Self::new(window.input[1], 4 * MOST_RUN, &costs)
    }
}

/// Whole groups of rows of a window, of at most [`MOST_GROUPS`].
#[inline(always)]
pub(crate) fn groups_of(window: &Window<Nchw>, stride: u32) -> u32 {
    let mut groups = 1;
    unrolled!(G in [2 3 4] { if window.size[0] >= G as u32 * stride { groups = G as u32; } });
    groups
}

/// The last groups of a column, one after another.
#[derive(Clone, Copy)]
pub(crate) struct Last<V> {
    groups: [V; MOST_GROUPS as usize],
}

impl<V: Copy> Last<V> {
    #[inline(always)]
    pub(crate) fn new(nothing: V) -> Self {
        Self { groups: [nothing; MOST_GROUPS as usize] }
    }

    /// What is had of so many groups, in order, and of what is below them.
    #[inline(always)]
    pub(crate) fn merged(&self, count: u32, nothing: V, below: V, merge: impl Fn(V, V) -> V) -> V {
        let mut all = nothing;
        // The launch's number: no thread takes another way.
        unrolled!(G in [0 1 2 3] { if count + G as u32 >= MOST_GROUPS { all = merge(all, self.groups[G]); } });
        merge(all, below)
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, group: V) {
        let [_, second, third, fourth] = self.groups;
        self.groups = [second, third, fourth, group];
    }
}

/// Goes down a column of windows: `load(row)` is what is had of a row of inputs, or nothing if it is none that the block has,
/// `merge(above, below)` what is had of both, and `put(row, all)` is called with all of each window in these rows of outputs.
/// Rows are in order. Windows are `STRIDE` apart and of up to [`MOST_GROUPS`] whole groups, or any if that is 0.
#[inline(always)]
pub(crate) fn down<V: Copy, const STRIDE: usize>(
    window: &Window<Nchw>,
    rows: [u32; 2],
    nothing: V,
    load: impl Fn(u32) -> V,
    merge: impl Fn(V, V) -> V,
    put: impl Fn(u32, V),
) {
    // What lies before the image wraps round to far after it.
    let mut input = (rows[0] * window.stride[0]).wrapping_sub(window.padding[0]);
    if STRIDE == 0 {
        let mut row = rows[0];
        while row < rows[1] {
            let [first, end] = steps_inside(window, 0, row);
            let (mut all, mut i) = (nothing, first);
            while i < end {
                all = merge(all, load(input.wrapping_add(i)));
                i += 1;
            }
            put(row, all);
            input = input.wrapping_add(window.stride[0]);
            row += 1;
        }
        return;
    }
    let count = groups_of(window, STRIDE as u32);
    let rest = window.size[0] - count * STRIDE as u32;
    let mut last = Last::new(nothing);
    let (mut group, end) = (rows[0], rows[1] + count);
    while group < end {
        let mut here = [nothing; STRIDE];
        unrolled!(I in [0 1 2 3] { if I < STRIDE { here[I] = load(input.wrapping_add(I as u32)); } });
        let (mut whole, mut begun) = (here[0], nothing);
        unrolled!(I in [1 2 3] {
            if I < STRIDE {
                begun = if rest == I as u32 { whole } else { begun };
                whole = merge(whole, here[I]);
            }
        });
        if group >= rows[0] + count {
            put(group - count, last.merged(count, nothing, begun, &merge));
        }
        last.push(whole);
        input = input.wrapping_add(STRIDE as u32);
        group += 1;
    }
}
