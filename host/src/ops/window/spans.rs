//! Launches by spans: of windows that are not as high as they are wide, or small and one apart; and windows of one column.

use kernels::spans::Spans;
use kernels::window::{Nchw, Window};

use super::Windows;
use crate::Layout;

/// Rows of windows, which a thread has one after another.
pub(crate) const MOST_ROWS_OF_SPANS: u32 = 8;
/// Columns of windows that there are kernels for, at most, of all but Gaussians.
const MOST_COLUMNS: u32 = 4;
/// Rows of windows of f32 from which on planes' columns as channels take less time.
const FEW_ROWS: usize = 4;

impl Windows {
    /// The same windows where they have a column each, over row-major planes whose rows are whole vectors of 16 bytes, of elements of so many bytes: planes'
    /// columns are the channels of an image of one column, and last, whose kernels take less time for such, forward. Of f32 windows of few rows go by
    /// spans.
    pub fn by_columns(self, bytes: usize) -> Self {
        if bytes == size_of::<f32>() && self.window.size[0] < FEW_ROWS { self } else { self.columns_last(bytes) }
    }

    /// The same backward, of windows that do not overlap; and where they do, if `gathered`, of 16 bits.
    pub fn by_columns_backward(self, bytes: usize, gathered: bool) -> Self {
        let apart = self.window.size[0] <= self.window.stride[0];
        if apart || gathered && bytes == 2 { self.columns_last(bytes) } else { self }
    }

    fn columns_last(self, bytes: usize) -> Self {
        let [n, c] = self.batch;
        let ([height, width], of_output) = (self.input, self.output[0]);
        let along = [self.window.size[1], self.window.stride[1], self.window.padding[1]];
        if self.layout != Layout::RowMajor || along != [1, 1, 0] || width == 1 || !(width * bytes).is_multiple_of(16) {
            return self;
        }
        let Some(batch) = n.checked_mul(c) else { return self };
        let dilation = [self.window.dilation[0], 1];
        Self {
            window: super::Window { dilation, ..self.window },
            batch: [batch, width],
            input: [height, 1],
            output: [of_output, 1],
            layout: Layout::ChannelsLast,
        }
    }
}

/// What a launch by spans of the windows of outputs takes, of elements of so many bytes and windows that no other kernel takes less time for: not
/// square ones, and others if they are `wanted`.
pub(crate) fn spans_of_outputs(window: &Window<Nchw>, bytes: usize, wanted: bool) -> Option<(Spans, u32)> {
    if has_few(window) && (wanted || is_oblong(window)) { Spans::of_outputs(window, bytes) } else { None }
}

/// The same over inputs.
pub(crate) fn spans_of_inputs(window: &Window<Nchw>, bytes: usize, wanted: bool) -> Option<(Spans, u32)> {
    if has_few(window) && (wanted || is_oblong(window)) { Spans::of_inputs(window, bytes) } else { None }
}

/// Whether windows have as few rows and columns as there are kernels for, or take no longer.
fn has_few(window: &Window<Nchw>) -> bool {
    window.size[0] <= MOST_ROWS_OF_SPANS && window.size[1] <= MOST_COLUMNS
}

/// Whether windows are squares of 2×2 one apart, of which no other kernel shares what they load.
pub(crate) fn are_twos(window: &Window<Nchw>) -> bool {
    (window.size, window.stride) == ([2; 2], [1; 2])
}

/// Whether windows are not squares, or not as far apart or padded both ways.
pub(crate) fn is_oblong(window: &Window<Nchw>) -> bool {
    let differ = |pair: [u32; 2]| pair[0] != pair[1];
    differ(window.size) || differ(window.stride) || differ(window.padding) || differ(window.dilation)
}

/// Runs a block with `$columns`, `$stride` and `$padding` as the kernels' parameters for such a window, of which there are kernels; with `more`
/// those that Gaussians alone have, too.
macro_rules! for_spans {
    ($window:expr => $($rest:tt)*) => {
        $crate::ops::window::for_spans!(
            @ $window => $($rest)*; (1, 1, 0) (2, 1, 0) (2, 1, 1) (2, 2, 0) (3, 1, 1) (3, 2, 1); (4, 4, 0)
        )
    };
    ($window:expr, more => $($rest:tt)*) => {
        $crate::ops::window::for_spans!(
            @ $window => $($rest)*;
            (1, 1, 0) (2, 1, 0) (2, 1, 1) (2, 2, 0) (3, 1, 1) (3, 2, 1) (4, 4, 0) (5, 1, 2); (5, 2, 2)
        )
    };
    (@ $window:expr => $columns:ident, $stride:ident, $padding:ident, $body:block;
     $(($c:literal, $s:literal, $p:literal))*; ($last_c:literal, $last_s:literal, $last_p:literal)) => {
        match [$window.size[1], $window.stride[1], $window.padding[1]] {
            $([$c, $s, $p] => {
                const $columns: usize = $c;
                const $stride: usize = $s;
                const $padding: usize = $p;
                $body
            })*
            // The last that there is.
            _ => {
                const $columns: usize = $last_c;
                const $stride: usize = $last_s;
                const $padding: usize = $last_p;
                $body
            }
        }
    };
}
pub(crate) use for_spans;
