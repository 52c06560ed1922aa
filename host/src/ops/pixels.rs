//! How CPU versions go over the windows of images whose channels are neighbours: a pixel of outputs at a time, some of its
//! channels at once, for which what is made of a window stays in registers.

use std::ops::Range;

use super::window::Windows;

/// The part of a pixel's window that is inside the image.
pub(crate) struct Pixel<'a, T> {
    /// The rows of the input, each as a whole.
    pub lines: &'a [&'a [T]],
    /// The positions in the window, down and right.
    pub positions: [Range<usize>; 2],
    /// Where the first column's elements begin in each of the rows, and the elements from column to column.
    columns: [usize; 2],
}

impl<T> Pixel<'_, T> {
    /// The position to the right of each column, and where its elements begin in a row.
    #[inline(always)]
    pub fn columns(&self) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let [first, step] = self.columns;
        self.positions[1].clone().enumerate().map(move |(number, position)| (position, first + number * step))
    }
}

impl Windows {
    /// Calls `f` with the number and the window of each pixel of one row of the output (counted over all images), of which
    /// `lines` are the rows of the input that are inside the image.
    #[inline(always)]
    pub fn for_each_pixel<T>(&self, lines: &[&[T]], row: usize, mut f: impl FnMut(usize, &Pixel<'_, T>)) {
        let (rows, pixel) = (self.positions_inside(0, row % self.output[0]), self.pixel());
        for column in 0..self.output[1] {
            let inside = self.positions_inside(1, column);
            // Where none is, there is no coordinate.
            let first = if inside.is_empty() { 0 } else { self.coordinate(1, column, inside.start) * pixel };
            let positions = [rows.clone(), inside];
            f(column, &Pixel { lines, positions, columns: [first, self.window.dilation[1] * pixel] });
        }
    }
}

/// The first of each `BLOCK` of so many neighbours, at least one block. The last ones overlap those before them where they are no
/// whole block: nothing is left to do one by one.
#[inline(always)]
pub(crate) fn blocks<const BLOCK: usize>(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(BLOCK).map(move |first| first.min(count - BLOCK))
}

#[cfg(test)]
mod tests {
    use crate::ops::avg_pool::{self, Divisor};
    use crate::ops::{Window, max_pool};
    use crate::{Device, Element, Layout, Out, Real, Result, Tensor, bf16, f16};

    /// Numbers without a pattern, some alike, of which a few are NaN or infinite.
    fn values<T: Real>(len: usize) -> Vec<T> {
        let value = |i: usize| match i * 7919 % 1009 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            value => (value % 97) as f64 / 31.0 - 1.5,
        };
        (0..len).map(|i| T::of(value(i))).collect()
    }

    /// Channels that are neighbours give what planes give, to the bit: all of a few, or some at once, whole blocks or not.
    fn layouts_agree<T: Real>() -> Result<()> {
        let windows = [
            Window::new([3, 3]).stride([2, 2]).padding([1, 1]),
            Window::new([2, 3]).stride([2, 1]).ceil_mode(true),
            Window::new([7, 5]).stride([1, 1]).padding([3, 2]),
            Window::new([3, 7]).stride([2, 2]).padding([1, 3]),
            Window::new([3, 2]).dilation([2, 3]),
            Window::new([2, 2]).stride([2, 3]),
        ];
        for channels in [2, 3, 4, 7, 8, 9, 31, 32, 33, 70] {
            let shape = [2, channels, 9, 11];
            let x = Tensor::from_vec(&Device::cpu(), &shape, values::<T>(shape.iter().product()))?;
            for window in &windows {
                let [planes, pixels] =
                    [Layout::RowMajor, Layout::ChannelsLast].map(|layout| results(&x, window, layout));
                for (pass, (planes, pixels)) in planes?.into_iter().zip(pixels?).enumerate() {
                    assert!(planes == pixels, "result {pass} of {channels} channels, {window:?}");
                }
            }
        }
        Ok(())
    }

    /// The bits of what passes give whose inputs are in a layout: maxima, their places, maxima alone, and where gradients of
    /// the maxima go; for windows without dilation averages by both divisors, and the gradients of these, added to `x`.
    fn results<T: Real>(x: &Tensor<T>, window: &Window, layout: Layout) -> Result<Vec<Vec<u64>>> {
        fn bits<E: Element>(tensor: &Tensor<E>) -> Result<Vec<u64>> {
            Ok(tensor.to_layout(Layout::RowMajor)?.to_vec()?.into_iter().map(Element::bits).collect())
        }
        let x = x.to_layout(layout)?;
        let max_pool::Output { y, indices } = max_pool::forward(&x, window)?;
        let places = max_pool::flat_indices(&indices, window, x.shape())?;
        let mut results = vec![bits(&y)?, bits(&places)?, bits(&max_pool::forward_inference(&x, window)?)?];
        let [mut dx, mut sums] = [x.empty_like()?, Tensor::zeros(&Device::cpu(), x.shape())?.to_layout(layout)?];
        max_pool::backward(&y, &indices, window, x.shape(), Out::write(&mut dx))?;
        max_pool::backward(&y, &indices, window, x.shape(), Out::add(&mut sums))?;
        results.push(bits(&dx)?);
        assert!(results.last() == Some(&bits(&sums)?), "written and added to zeros, {window:?}");
        if window.dilation == [1, 1] {
            for divisor in [Divisor::default(), Divisor { count_include_pad: false, ..Divisor::default() }] {
                let y = avg_pool::forward(&x, window, &divisor)?;
                let mut dx = x.to_layout(layout)?;
                avg_pool::backward(&y, window, &divisor, x.shape(), Out::add(&mut dx))?;
                results.extend([bits(&y)?, bits(&dx)?]);
            }
        }
        Ok(results)
    }

    #[test]
    fn layouts_agree_f32() -> Result<()> {
        layouts_agree::<f32>()
    }

    #[test]
    fn layouts_agree_16_bits() -> Result<()> {
        layouts_agree::<f16>()?;
        layouts_agree::<bf16>()
    }
}
