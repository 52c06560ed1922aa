//! What both devices need to know of a pass: its sizes, and which windows are cut off at the image's edges.

use std::ops::Range;

use super::{Normalize, Window};
use crate::{Layout, Result};

/// A checked pass.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The op's name, for errors.
    pub op: &'static str,
    /// The order in memory of all images.
    pub layout: Layout,
    pub batch: usize,
    pub channels: usize,
    /// Gaussians for each feature map.
    pub kernels: usize,
    /// Sets of parameters: one, or one for each channel.
    pub sets: usize,
    /// Whether each Gaussian has two variances.
    pub per_axis: bool,
    pub window: Window,
    /// Vertical and horizontal.
    pub axes: [Axis; 2],
}

/// A window's way along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    pub image: usize,
    pub output: usize,
    pub size: usize,
    pub stride: usize,
    pub padding: usize,
    /// Outputs before this one have windows that begin before the image.
    pub leading: usize,
    /// Outputs from here on have windows that end after the image; those between `leading` and here lie inside it.
    pub trailing: usize,
    /// Whether positions outside the image count.
    normalize: Normalize,
}

/// Both axes of a window that has been checked except for its sizes.
pub fn axes(op: &'static str, window: &Window, normalize: Normalize, image: [usize; 2]) -> Result<[Axis; 2]> {
    let output = window.output_size(op, image)?;
    Ok([0, 1].map(|i| Axis::new(image[i], output[i], window.size[i], window.stride[i], window.padding[i], normalize)))
}

impl Plan {
    pub fn output_shape(&self) -> [usize; 4] {
        [self.batch, self.channels * self.kernels, self.axes[0].output, self.axes[1].output]
    }

    /// Images, one for each channel of each element of the batch.
    pub fn planes(&self) -> usize {
        self.batch * self.channels
    }

    /// Gaussians: sets of parameters times those of each.
    pub fn gaussians(&self) -> usize {
        self.sets * self.kernels
    }

    /// Variances of each Gaussian.
    pub fn variances(&self) -> usize {
        if self.per_axis { 2 } else { 1 }
    }

    /// The set of parameters that plane number `plane` has.
    pub fn set(&self, plane: usize) -> usize {
        if self.sets == 1 { 0 } else { plane % self.channels }
    }
}

impl Axis {
    fn new(image: usize, output: usize, size: usize, stride: usize, padding: usize, normalize: Normalize) -> Self {
        let leading = padding.div_ceil(stride).min(output);
        let first_cut = (image + padding).checked_sub(size).map_or(0, |room| room / stride + 1);
        let trailing = first_cut.clamp(leading, output);
        Self { image, output, size, stride, padding, leading, trailing, normalize }
    }

    /// Outputs with a vector of weights of their own before and after those that share one: windows that are cut off
    /// in the same way have the same weights, and where all positions count no window is cut off.
    pub fn shared(&self) -> Range<usize> {
        match self.normalize {
            Normalize::Window => 0..self.output,
            Normalize::Valid => self.leading..self.trailing,
        }
    }

    /// How many vectors of weights there are.
    pub fn cases(&self) -> usize {
        let shared = self.shared();
        shared.start + 1 + self.output - shared.end
    }

    /// The vector of weights of an output: those before [`Axis::shared`], the shared one, those after.
    pub fn case(&self, output: usize) -> usize {
        let shared = self.shared();
        output.min(shared.start) + (output + 1).saturating_sub(shared.end)
    }

    /// The positions that count for a vector of weights.
    pub fn counted(&self, case: usize) -> Range<usize> {
        let shared = self.shared();
        match case {
            c if c < shared.start => self.inside(c),
            c if c == shared.start => 0..self.size,
            c => self.inside(c - shared.start - 1 + shared.end),
        }
    }

    /// The positions of an output's window that lie in the image: at least one.
    pub fn inside(&self, output: usize) -> Range<usize> {
        let begin = output * self.stride;
        self.padding.saturating_sub(begin)..self.size.min(self.image + self.padding - begin)
    }

    /// The outputs whose windows do not lie in the image.
    pub fn cut_off(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.leading).chain(self.trailing..self.output)
    }

    /// The pixels that the windows of some outputs cover.
    pub fn source(&self, outputs: &Range<usize>) -> Range<usize> {
        let end = (outputs.end - 1) * self.stride + self.size;
        (outputs.start * self.stride).saturating_sub(self.padding)..end.saturating_sub(self.padding).min(self.image)
    }

    /// The outputs whose windows cover any of some pixels.
    pub fn covering_any(&self, pixels: &Range<usize>) -> Range<usize> {
        self.covering(pixels.start).start..self.covering(pixels.end - 1).end
    }

    /// The outputs whose windows cover a pixel.
    pub fn covering(&self, pixel: usize) -> Range<usize> {
        let end = ((pixel + self.padding) / self.stride + 1).min(self.output);
        let begin = (pixel + self.padding + 1).saturating_sub(self.size).div_ceil(self.stride);
        begin.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way of cutting, against the definition position by position.
    #[test]
    fn cases_are_the_ways_in_which_windows_are_cut_off() {
        for (image, size, stride, padding, ceil_mode) in [
            (9, 3, 1, 1, false),
            (9, 5, 2, 2, false),
            (4, 7, 1, 3, false),
            (10, 4, 3, 0, true),
            (3, 8, 2, 4, true),
            (11, 2, 5, 1, false),
            (1, 1, 1, 0, false),
        ] {
            let window = Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]).ceil_mode(ceil_mode);
            let [valid, _] = axes("test", &window, Normalize::Valid, [image; 2]).unwrap();
            let [whole, _] = axes("test", &window, Normalize::Window, [image; 2]).unwrap();
            assert_eq!(whole.cases(), 1);
            let mut covering = vec![vec![]; image];
            for output in 0..valid.output {
                let inside: Vec<usize> =
                    (0..size).filter(|i| (padding..image + padding).contains(&(output * stride + i))).collect();
                assert!(!inside.is_empty());
                assert_eq!(valid.inside(output).collect::<Vec<_>>(), inside);
                assert!(valid.case(output) < valid.cases());
                assert_eq!(valid.counted(valid.case(output)), valid.inside(output));
                assert_eq!((whole.case(output), whole.counted(0)), (0, 0..size));
                let in_image = inside.len() == size;
                assert_eq!((valid.leading..valid.trailing).contains(&output), in_image);
                for i in inside {
                    covering[output * stride + i - padding].push(output);
                }
            }
            for (pixel, expected) in covering.iter().enumerate() {
                assert_eq!(&valid.covering(pixel).collect::<Vec<_>>(), expected);
            }
            for outputs in (0..valid.output).flat_map(|first| (first + 1..=valid.output).map(move |end| first..end)) {
                let covered = |pixel: &usize| covering[*pixel].iter().any(|output| outputs.contains(output));
                let source = valid.source(&outputs);
                assert!((0..image).filter(covered).all(|pixel| source.contains(&pixel)) && source.end <= image);
            }
            for pixels in (0..image).flat_map(|first| (first + 1..=image).map(move |end| first..end)) {
                let outputs = valid.covering_any(&pixels);
                assert!(pixels.clone().all(|pixel| covering[pixel].iter().all(|output| outputs.contains(output))));
                assert!(outputs.end <= valid.output);
            }
        }
    }
}
