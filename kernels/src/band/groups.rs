//! Windows of any size down a column, by groups of rows.
//!
//! Rows in groups of as many as windows are apart: each window is a few whole groups and the first rows of one more. A thread
//! goes down its column and keeps the last groups, so that it takes each input once, whatever the windows, and a few
//! groups for each window. Sums of windows over an input follow the same groups: of a group's rows the first have one window
//! more than the others, so that a thread adds what windows give twice a group.

use cuda_std::device_inline;

use super::any::{of_outputs, steps_inside};
use super::choice::{Costs, MOST_BYTES, Weights};
use super::{BandLaunch, Bands, staged_bytes};
use crate::window::{Nchw, Window};

/// Bytes of shared memory of a block, at most, where rows are long: what every GPU since Ampere gives to those that ask.
const LONG_BYTES: u64 = 96 * 1024;

/// As kernels bound by their instructions, with longer runs.
const WEIGHTS: Weights = Weights { most_run: 32, ..Weights::HEAVY };
/// Of columns: with half as many threads at work windows of 7×7 positions took a fifth longer.
const COLUMNS: Weights = Weights { at_work: 1024, ..WEIGHTS };

/// Columns that the windows of a row reach over, padding and all.
pub fn reached(window: &Window<Nchw>) -> u32 {
    (window.output[1] - 1) * window.stride[1] + window.size[1]
}

impl Bands {
    /// Over the [`reached`] columns by rows of outputs, of windows without dilation; an input has `bytes`, and `kept` bytes are
    /// left for each column of each row.
    pub fn of_columns(window: &Window<Nchw>, bytes: usize, kept: &[usize]) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] {
            return None;
        }
        let costs = of_outputs(window, bytes, kept, 0);
        let of = |costs: &_| Self::new(reached(window), COLUMNS, costs);
        // Where rows are so long that they have no room otherwise, more is asked for.
        of(&costs).or_else(|| of(&Costs { most_bytes: LONG_BYTES, ..costs }))
    }

    /// Over groups of rows of inputs of windows of so many whole ones; an output has `bytes`, and four more are left for each of
    /// `kept` of a row.
    pub fn of_groups(window: &Window<Nchw>, groups: u32, bytes: usize, kept: u32) -> Option<(Self, BandLaunch)> {
        if window.dilation != [1, 1] {
            return None;
        }
        let [wide, narrow, kept, bytes] = [window.input[1], window.output[1], kept, bytes as u32].map(u64::from);
        let (height, whole) = (u64::from(window.input[0]), u64::from(window.output[0]));
        let (stride, first) = (window.stride[0], window.padding[0] / window.stride[0]);
        let rows = (window.input[0] - 1 + window.padding[0]) / stride + 1 - first;
        let reach = move |rows: u64| whole.min(rows + u64::from(groups));
        let shared = move |rows: u64, depth: u64| {
            let lines = depth * reach(rows);
            staged_bytes(lines * narrow * bytes) + staged_bytes(lines * kept * size_of::<f32>() as u64)
        };
        let moved = move |rows: u64| (reach(rows) * narrow + rows * u64::from(stride) * wide) * bytes;
        let plane_bytes = (whole * narrow + height * wide) * bytes;
        let costs = Costs { planes: window.planes, height: rows, plane_bytes, most_bytes: MOST_BYTES, moved, shared };
        Self::new(window.input[1], WEIGHTS, &costs)
    }
}

/// Goes down a column of windows: `load(row, sure)` is what is had of a row of inputs, or nothing if it is none that the block has,
/// which ends before `bound`, unless that is `sure`; `merge(above, below)` is what is had of both, and `put(row, all)` is called
/// with all of each window in these rows of outputs. Rows are in order. Windows are `STRIDE` apart and of `GROUPS` whole groups,
/// or any if these are 0.
#[device_inline]
pub(crate) fn down<V: Copy, const STRIDE: usize, const GROUPS: usize>(
    window: &Window<Nchw>,
    rows: [u32; 2],
    bound: u32,
    nothing: V,
    load: impl Fn(u32, bool) -> V,
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
                all = merge(all, load(input.wrapping_add(i), true));
                i += 1;
            }
            put(row, all);
            input = input.wrapping_add(window.stride[0]);
            row += 1;
        }
        return;
    }
    // What a window has of the group after its whole ones: asked for once, and not for each group.
    let rest = window.size[0] - (GROUPS * STRIDE) as u32;
    if rest == 0 {
        down_by::<V, STRIDE, GROUPS>(input, rows, bound, None, nothing, load, merge, put);
    } else {
        down_by::<V, STRIDE, GROUPS>(input, rows, bound, Some(rest), nothing, load, merge, put);
    }
}

/// As [`down`], from this row of inputs on, of windows that have `rest` rows of one more group.
#[device_inline]
#[allow(clippy::too_many_arguments, reason = "those of `down`, taken apart")]
fn down_by<V: Copy, const STRIDE: usize, const GROUPS: usize>(
    mut input: u32,
    rows: [u32; 2],
    bound: u32,
    rest: Option<u32>,
    nothing: V,
    load: impl Fn(u32, bool) -> V,
    merge: impl Fn(V, V) -> V,
    put: impl Fn(u32, V),
) {
    let sure = bound.saturating_sub(STRIDE as u32 - 1);
    let mut last = [nothing; GROUPS];
    let (mut group, end) = (rows[0], rows[1] + GROUPS as u32);
    while group < end {
        let mut here = [nothing; STRIDE];
        if input < sure {
            unrolled!(I in [0 1 2 3] { if I < STRIDE { here[I] = load(input + I as u32, true); } });
        } else {
            unrolled!(I in [0 1 2 3] { if I < STRIDE { here[I] = load(input.wrapping_add(I as u32), false); } });
        }
        let (mut whole, mut begun) = (here[0], nothing);
        unrolled!(I in [1 2 3] {
            if I < STRIDE {
                begun = if rest == Some(I as u32) { whole } else { begun };
                whole = merge(whole, here[I]);
            }
        });
        if group >= rows[0] + GROUPS as u32 {
            let mut all = last[0];
            unrolled!(G in [1 2] { if G < GROUPS { all = merge(all, last[G]); } });
            put(group - GROUPS as u32, if rest.is_some() { merge(all, begun) } else { all });
        }
        unrolled!(G in [1 2] { if G < GROUPS { last[G - 1] = last[G]; } });
        last[GROUPS - 1] = whole;
        input = input.wrapping_add(STRIDE as u32);
        group += 1;
    }
}

/// Calls `f` with each column of a window, in order, whose groups are those of [`down`] here too.
#[device_inline]
pub(crate) fn across<const STRIDE: usize, const GROUPS: usize>(window: &Window<Nchw>, mut f: impl FnMut(u32)) {
    if STRIDE == 0 {
        let mut j = 0;
        while j < window.size[1] {
            f(j);
            j += 1;
        }
        return;
    }
    // Of the last group, which is not whole, asked for one by one: the launch's, so that no thread takes another way.
    unrolled!(J in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14] {
        if J < STRIDE * GROUPS || J < STRIDE * (GROUPS + 1) - 1 && J < window.size[1] as usize { f(J as u32); }
    });
}
