use std::hint::select_unpredictable;
use std::ops::Range;

use kernels::window::Position;
use multiversion::multiversion;

use super::{Backward, for_indices};
use crate::device::{Cpu, OnCpu, rounding, widened};
use crate::ops::planes::Gradient;
use crate::ops::rows::for_each_band;
use crate::ops::window::{Window, Windows};
use crate::{Real, Result};

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (dy, dx, beta) = (self.dy.host()?, self.dx.tensor.host_mut()?, self.dx.beta);
        if !dx.is_empty() {
            for_indices!(self.indices, indices as P => gradient(&self.windows, dy, indices.host()?, dx, beta));
        }
        Ok(())
    }
}

/// Elements of a pixel, and positions of a window, from which on and up to which it is quicker to ask of all a pixel's
/// elements whether they came from a position, for each position, than of each from which it came.
const LARGE_PIXEL: usize = 8;
const SMALL_WINDOW: usize = 16;

fn gradient<T: Real, P: Position>(windows: &Windows, dy: &[T], indices: &[P], dx: &mut [T], beta: f64) {
    let (zero, beta) = (T::Compute::of(0.0), T::Compute::of(beta));
    if let Some(planes) = windows.whole_planes() {
        // Added to zero as elsewhere: a minus zero becomes one.
        return planes.fill(dy, indices, dx, beta, |dy, index| Gradient {
            all: zero,
            one: Some((index.widen() as usize, zero + dy)),
        });
    }
    let steps = Steps::new(windows);
    // A band has one owner, which scatters in the outputs' order: the sums are the same for any number of threads.
    if beta == zero && T::as_compute(dy).is_none() && are_apart(&windows.window) {
        return for_each_band(dx, windows, |(wide, dy_room): &mut (Vec<_>, Vec<T>), plane, rows, dx| {
            dx.fill(T::narrow(zero));
            let outputs = steps.outputs(plane, &rows);
            // NaNs become the one that all results have.
            let wide = widened(&dy[outputs.clone()], wide);
            dy_room.resize(wide.len(), T::narrow(zero));
            T::narrow_all(wide, dy_room);
            let dy = |row: Range<usize>| &dy_room[row.start - outputs.start..row.end - outputs.start];
            steps.of_rows(plane, rows, dx, indices, dy, |dx, dy, chosen| *dx = select_unpredictable(chosen, dy, *dx));
        });
    }
    for_each_band(dx, windows, |[dx_room, dy_room]: &mut [Vec<_>; 2], plane, rows, dx| {
        rounding(dx, beta, dx_room, |dx| {
            dx.fill(zero);
            let outputs = steps.outputs(plane, &rows);
            let dy = widened(&dy[outputs.clone()], dy_room);
            let dy = |row: Range<usize>| &dy[row.start - outputs.start..row.end - outputs.start];
            steps.of_rows(plane, rows, dx, indices, dy, |dx, dy, chosen| *dx += if chosen { dy } else { zero });
        });
    });
}

/// Whether no two windows have an element of the input in common: nothing is added up then, and nothing need be converted.
fn are_apart(window: &Window) -> bool {
    (0..2).all(|axis| window.dilation[axis] * (window.size[axis] - 1) < window.stride[axis])
}

/// One row of outputs into some rows of inputs, all channels of a pixel at once.
#[multiversion(targets("x86_64+avx2"))]
fn spread<E: Copy, P: Position>(
    windows: &Windows,
    row: usize,
    dy: &[E],
    indices: &[P],
    rows: &Range<usize>,
    dx: &mut [E],
    put: impl Fn(&mut E, E, bool),
) {
    let (pixel, width, lines) = (windows.pixel(), windows.input[1], windows.positions_inside(0, row));
    for (column, (dy, indices)) in dy.chunks_exact(pixel).zip(indices.chunks_exact(pixel)).enumerate() {
        let columns = windows.positions_inside(1, column);
        for i in lines.clone() {
            let y = windows.coordinate(0, row, i);
            if !rows.contains(&y) {
                continue;
            }
            for j in columns.clone() {
                let position = (i * windows.window.size[1] + j) as u32;
                let first = ((y - rows.start) * width + windows.coordinate(1, column, j)) * pixel;
                for (dx, (dy, index)) in dx[first..][..pixel].iter_mut().zip(dy.iter().zip(indices)) {
                    put(dx, *dy, index.widen() == position);
                }
            }
        }
    }
}

/// Where the positions of the windows are.
struct Steps<'a> {
    windows: &'a Windows,
    pixel: usize,
    /// From a window's first position to each, row-major: rows down and columns right.
    steps: Vec<[usize; 2]>,
    /// The same in elements.
    elements: Vec<usize>,
    /// The columns of outputs whose windows lie between the image's left and right edges.
    inside: Range<usize>,
}

impl<'a> Steps<'a> {
    fn new(windows: &'a Windows) -> Self {
        let ([height, width], [down, right]) = (windows.window.size, windows.window.dilation);
        let (pixel, line) = (windows.pixel(), windows.input_line());
        let steps: Vec<_> = (0..height).flat_map(|i| (0..width).map(move |j| [i * down, j * right])).collect();
        let elements = steps.iter().map(|[down, right]| down * line + right * pixel).collect();
        let (from_first, to_last) = (windows.outputs_at(1, 0), windows.outputs_at(1, width - 1));
        Self { windows, pixel, steps, elements, inside: from_first.start..to_last.end.max(from_first.start) }
    }

    /// The elements of a plane's outputs whose windows are over these rows of its inputs.
    fn outputs(&self, plane: usize, rows: &Range<usize>) -> Range<usize> {
        let (height, line) = (self.windows.output[0], self.windows.output_line());
        let outputs = self.windows.outputs_over(0, rows);
        (plane * height + outputs.start) * line..(plane * height + outputs.end) * line
    }

    /// Some rows of a plane's inputs. `dy` has what some of the outputs give, and `put` adds that to an element of `dx`, if
    /// the last argument says so.
    #[inline(always)]
    fn of_rows<'b, E: Copy + 'b, P: Position>(
        &self,
        plane: usize,
        rows: Range<usize>,
        dx: &mut [E],
        indices: &[P],
        dy: impl Fn(Range<usize>) -> &'b [E],
        put: impl Fn(&mut E, E, bool) + Copy,
    ) {
        let (windows, line) = (self.windows, self.windows.output_line());
        let by_positions = self.pixel >= LARGE_PIXEL && windows.window.positions() <= SMALL_WINDOW;
        for row in windows.outputs_over(0, &rows) {
            let first = (plane * windows.output[0] + row) * line;
            let (dy, indices) = (dy(first..first + line), &indices[first..][..line]);
            if by_positions {
                spread(windows, row, dy, indices, &rows, dx, put);
                continue;
            }
            let cut_off = |columns: Range<usize>, dx: &mut [_]| {
                for column in columns {
                    let pixel = column * self.pixel..(column + 1) * self.pixel;
                    self.scatter_cut_off([row, column], &dy[pixel.clone()], &indices[pixel], &rows, dx, put);
                }
            };
            let [begin, end] = [self.inside.start, self.inside.end].map(|column| column * self.pixel);
            cut_off(0..self.inside.start, dx);
            let first = self.first([row, self.inside.start], &rows);
            self.scatter(first, &dy[begin..end], &indices[begin..end], dx, put);
            cut_off(self.inside.end..windows.output[1], dx);
        }
    }

    /// From the first element of these rows to that of an output's window, which lies between the image's left and right
    /// edges; what lies before these rows wraps round.
    fn first(&self, [row, column]: [usize; 2], rows: &Range<usize>) -> usize {
        let Window { stride, padding, .. } = self.windows.window;
        let y = (row * stride[0]).wrapping_sub(padding[0] + rows.start);
        let x = (column * stride[1]).wrapping_sub(padding[1]);
        y.wrapping_mul(self.windows.input[1]).wrapping_add(x).wrapping_mul(self.pixel)
    }

    /// Outputs of neighbouring windows that lie between the image's left and right edges, the first of them from `first` on.
    fn scatter<E: Copy, P: Position>(
        &self,
        first: usize,
        dy: &[E],
        indices: &[P],
        dx: &mut [E],
        put: impl Fn(&mut E, E, bool),
    ) {
        // What lies above or below these rows is not in `dx`. An index that forward never gives may pass the window's last
        // position: then it names none.
        let mut add = |begin: usize, dy: &E, index: &P| {
            if let Some(place) = self.elements.get(index.widen() as usize)
                && let Some(dx) = dx.get_mut(begin.wrapping_add(*place))
            {
                put(dx, *dy, true);
            }
        };
        let step = self.windows.window.stride[1] * self.pixel;
        if self.pixel == 1 {
            let mut begin = first;
            for (dy, index) in dy.iter().zip(indices) {
                add(begin, dy, index);
                begin = begin.wrapping_add(step);
            }
            return;
        }
        for (column, (dy, indices)) in dy.chunks_exact(self.pixel).zip(indices.chunks_exact(self.pixel)).enumerate() {
            let begin = first.wrapping_add(column * step);
            for (channel, (dy, index)) in dy.iter().zip(indices).enumerate() {
                add(begin.wrapping_add(channel), dy, index);
            }
        }
    }

    /// The outputs, one of each channel, of a window that passes the image's left or right edge.
    fn scatter_cut_off<E: Copy, P: Position>(
        &self,
        [row, column]: [usize; 2],
        dy: &[E],
        indices: &[P],
        rows: &Range<usize>,
        dx: &mut [E],
        put: impl Fn(&mut E, E, bool),
    ) {
        let ([stride_down, stride_right], [above, left]) = (self.windows.window.stride, self.windows.window.padding);
        let width = self.windows.input[1];
        for (channel, (dy, index)) in dy.iter().zip(indices).enumerate() {
            let Some([down, right]) = self.steps.get(index.widen() as usize) else { continue };
            // What lies before these rows or the image wraps round to far after it.
            let y = (row * stride_down + down).wrapping_sub(above + rows.start);
            let x = (column * stride_right + right).wrapping_sub(left);
            if y < rows.len() && x < width {
                put(&mut dx[(y * width + x) * self.pixel + channel], *dy, true);
            }
        }
    }
}
