//! Forward over row-major windows of a few columns, whatever their height and steps.
//!
//! Bound by memory in f32 (on 64×64×112×112 on an H200 0.91 of the copy rate of 1×2 two columns apart, 1.00 of 3×1 two rows apart), in 16 bits and where windows overlap
//! much by instructions (0.79 of 1×2 in bf16, 0.79 and 0.45 of 3×3 two rows and a column apart).

use cuda_std::prelude::*;

use super::Maximum;
use crate::spans::{BLOCK, BLOCKS, MOST_WINDOWS, Rows, Span, Spans, Wanted, all, four_of, of_outputs, windows};
use crate::window::{Nchw, Position, Window};

/// As [`max_pool_forward`](super::max_pool_forward), by [spans](crate::spans), of windows of `COLUMNS` columns, `STRIDE` columns apart, padded by `PADDING`
/// columns.
///
/// # Safety
/// The module's, but for the tiling; the window is such, and dilated at most along y; memory begins at multiples of 16 bytes, and `spans` are of the
/// window's outputs, with the launch's grid.
#[kernel(
    block = BLOCK,
    min_blocks = BLOCKS,
    instances(
        T = [f32, f16, bf16],
        (COLUMNS, STRIDE, PADDING) = [
            (1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 2, 0), (3, 1, 1), (3, 2, 1), (4, 4, 0)
        ]
    )
)]
pub unsafe fn max_pool_forward_spans<T: Storage, const COLUMNS: usize, const STRIDE: usize, const PADDING: usize>(
    x: Global<T>,
    y: GlobalMut<T>,
    indices: Option<GlobalMut<u8>>,
    window: Window<Nchw>,
    spans: Spans,
) {
    let (place, windows) = (spans.place(window.output[0], thread::block_idx_x()), windows(size_of::<T>(), STRIDE));
    let column = place.number * windows as u32;
    let top = (place.row * window.stride[0]).wrapping_sub(window.padding[0]);
    // Minus infinity wins over nothing: where all are such, the first that is inside of the image.
    let first_row = window.first_inside(0, place.row).position * COLUMNS as u32;
    let first = [0, 1, 2, 3, 4, 5, 6, 7].map(|w| {
        let first = PADDING.saturating_sub(w * STRIDE) as u32;
        first_row + if column == 0 { first } else { 0 }
    });
    let mut found = Found::<COLUMNS, STRIDE> { windows, first, found: first.map(Maximum::of_nothing) };
    // SAFETY: the caller's; the plane, the row and the outputs exist.
    unsafe {
        let x = x.offset(window.input_plane(place.plane));
        let wanted = Wanted {
            x,
            size: window.input,
            first: top,
            step: window.dilation[0],
            count: window.size[0],
            column: column * STRIDE as u32,
            around: of_outputs(windows, COLUMNS, STRIDE, PADDING),
            outside: T::from_f32(f32::NEG_INFINITY),
        };
        spans.each(&wanted, &mut found);
        let found = found.found;
        let (width, output) = (window.output[1], window.output_plane(place.plane));
        let at = (output + place.row as usize * width as usize + column as usize, [column, width]);
        let values = found.map(|maximum| maximum.value.to_bits());
        let vectors = |at, four| y.store4(at, four_of::<T>(four));
        let single = |at, bits| y.store(at, T::from_f32(f32::from_bits(bits)));
        spans.store(&place, at, (windows, all(values)), vectors, single);
        if let Some(indices) = indices {
            let positions = found.map(|maximum| maximum.position);
            let vectors = |at, four: [u32; 4]| indices.store4(at, Vec4::from(four.map(u8::narrow)));
            let single = |at, bits| indices.store(at, u8::narrow(bits));
            spans.store(&place, at, (windows, all(positions)), vectors, single);
        }
    }
}

/// The maxima of a thread's windows, and of each the position that wins where all are minus infinity.
struct Found<const COLUMNS: usize, const STRIDE: usize> {
    windows: usize,
    first: [u32; MOST_WINDOWS],
    found: [Maximum; MOST_WINDOWS],
}

impl<T: Storage, const COLUMNS: usize, const STRIDE: usize> Rows<T> for Found<COLUMNS, STRIDE> {
    #[device_inline]
    fn take(&mut self, row: u32, span: Span<T>) {
        let position = row * COLUMNS as u32;
        unrolled!(J in [0 1 2 3] { if J < COLUMNS { unrolled!(W in [0 1 2 3 4 5 6 7] { if W < self.windows {
            let value = span[W * STRIDE + J].to_f32();
            self.found[W] = if row == 0 && J == 0 {
                Maximum { value, position: self.first[W] }
            } else {
                self.found[W].or(value, position + J as u32)
            };
        } }); } });
    }
}
