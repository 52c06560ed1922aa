use kernels::window::Position;

use super::{Backward, for_indices};
use crate::device::{Cpu, OnCpu};
use crate::ops::window::{Windows, for_each_band};
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

fn gradient<T: Real, P: Position>(windows: &Windows, dy: &[T], indices: &[P], dx: &mut [T], beta: f64) {
    let (steps, width, pixel) = (steps(windows), windows.input[1], windows.pixel());
    let (output_height, output_line) = (windows.output[0], windows.output_line());
    let ([stride_down, stride_right], [above, left]) = (windows.window.stride, windows.window.padding);
    // A band has one owner, which scatters in the outputs' order: the sums are the same for any number of threads.
    for_each_band(dx, windows, beta, |plane, rows, dx| {
        for row in windows.outputs_over(0, &rows) {
            let first = (plane * output_height + row) * output_line;
            let (dy, indices) = (&dy[first..][..output_line], &indices[first..][..output_line]);
            for (column, (dy, indices)) in dy.chunks_exact(pixel).zip(indices.chunks_exact(pixel)).enumerate() {
                for (channel, (dy, index)) in dy.iter().zip(indices).enumerate() {
                    let Some((down, right)) = steps.get(index.widen() as usize) else { continue };
                    // What lies before the band or the image wraps round to far after it.
                    let y = (row * stride_down + down).wrapping_sub(above + rows.start);
                    let x = (column * stride_right + right).wrapping_sub(left);
                    if y < rows.len() && x < width {
                        dx[(y * width + x) * pixel + channel] += dy.widen();
                    }
                }
            }
        }
    });
}

/// From the window's first position to each, row-major: rows down and columns right.
fn steps(windows: &Windows) -> Vec<(usize, usize)> {
    let ([height, width], [down, right]) = (windows.window.size, windows.window.dilation);
    (0..height).flat_map(|i| (0..width).map(move |j| (i * down, j * right))).collect()
}
