//! The window that pooling ops slide over an image, with PyTorch's rules for sizes and edges.

mod abreast;
mod choices;
mod explained;
mod falling;
mod shares;
mod spans;
mod vectors;

use std::marker::PhantomData;
use std::ops::Range;

use crate::{Element, Error, Layout, Result, Tensor, check};
use kernels::window::{Nchw, Nhwc, Order};

pub(crate) use abreast::{Lying, Row};
pub(crate) use choices::{Choice, FEW_AVERAGED, FEW_PICKED, apart, elements, is_little, is_little_backward};
pub(crate) use explained::{BY_SPANS, Kernels};
pub(crate) use falling::{Falling, is_much, of_packs, turned};
pub(crate) use shares::{for_shares, shares};
pub(crate) use spans::{MOST_ROWS_OF_SPANS, are_twos, for_spans, is_oblong, spans_of_inputs, spans_of_outputs};
pub(crate) use vectors::{for_meshes, for_vectors, forward_vectors};

/// Size, stride, padding and dilation of a two-dimensional window, each as `[vertical, horizontal]`.
///
/// ```
/// use ferrolayer::ops::Window;
///
/// let window = Window::new([3, 3]).stride([2, 2]).padding([1, 1]);
/// assert_eq!(window.output_size("example", [112, 112]).unwrap(), [56, 56]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Positions in the window.
    pub size: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Positions outside the image, on each side, at which windows may begin and end; at most half the window.
    pub padding: [usize; 2],
    /// Steps between the window's positions.
    pub dilation: [usize; 2],
    /// Whether a last window that begins inside the image or its first padding, and ends past the last padding, counts.
    pub ceil_mode: bool,
}

impl Window {
    /// A window whose stride is its size, with no padding and no dilation.
    pub fn new(size: [usize; 2]) -> Self {
        Self { size, stride: size, padding: [0, 0], dilation: [1, 1], ceil_mode: false }
    }

    /// Sets the steps between windows.
    #[must_use]
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// Sets the padding.
    #[must_use]
    pub fn padding(mut self, padding: [usize; 2]) -> Self {
        self.padding = padding;
        self
    }

    /// Sets the steps between the window's positions.
    #[must_use]
    pub fn dilation(mut self, dilation: [usize; 2]) -> Self {
        self.dilation = dilation;
        self
    }

    /// Sets whether an incomplete last window counts.
    #[must_use]
    pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
        self.ceil_mode = ceil_mode;
        self
    }

    /// The number of positions in the window.
    pub fn positions(&self) -> usize {
        self.size[0].saturating_mul(self.size[1])
    }

    /// The output's height and width for an image of this height and width.
    ///
    /// # Errors
    /// [`Error::Argument`] when size, stride or dilation is zero, or the padding more than half the window;
    /// [`Error::Shape`] when no window fits.
    pub fn output_size(&self, op: &'static str, image: [usize; 2]) -> Result<[usize; 2]> {
        for (argument, values) in [("window", self.size), ("stride", self.stride), ("dilation", self.dilation)] {
            if values.contains(&0) {
                return Err(Error::Argument {
                    op,
                    argument,
                    got: format!("{values:?}"),
                    expected: "at least 1 each way".into(),
                });
            }
        }
        if (0..2).any(|axis| self.padding[axis] > self.size[axis] / 2) {
            return Err(Error::Argument {
                op,
                argument: "padding",
                got: format!("{:?}", self.padding),
                expected: format!("at most half the window {:?}", self.size),
            });
        }
        let mut output = [0; 2];
        for axis in 0..2 {
            output[axis] = self.outputs_along(axis, image[axis]).ok_or_else(|| Error::Shape {
                op,
                argument: "x",
                got: image.to_vec(),
                expected: format!("a height and a width that a window {:?} fits into", self.size),
            })?;
        }
        Ok(output)
    }

    /// Fails where there are steps between the window's positions; `why` says who has none.
    pub(crate) fn check_undilated(&self, op: &'static str, why: &str) -> Result<()> {
        if self.dilation == [1, 1] {
            return Ok(());
        }
        let (got, expected) = (format!("{:?}", self.dilation), format!("[1, 1]: {why}"));
        Err(Error::Argument { op, argument: "dilation", got, expected })
    }

    /// From the window's first position to its last, both counted; `None` when that passes `usize`.
    fn extent(&self, axis: usize) -> Option<usize> {
        self.dilation[axis].checked_mul(self.size[axis] - 1)?.checked_add(1)
    }

    /// Windows along one axis, as `torch.nn.functional` counts them (`pooling_output_shape` in ATen).
    fn outputs_along(&self, axis: usize, length: usize) -> Option<usize> {
        let extent = self.extent(axis)?;
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let padded = length.checked_add(2 * padding)?;
        let slack = padded.checked_sub(extent);
        // PyTorch rounds towards minus infinity: with ceil_mode an image smaller than the window may still get one.
        let steps = match (slack, self.ceil_mode) {
            (Some(slack), false) => slack / stride,
            (Some(slack), true) => slack.div_ceil(stride),
            (None, true) if extent - padded < stride => 0,
            (None, _) => return None,
        };
        let mut outputs = steps + 1;
        if self.ceil_mode && (outputs - 1) * stride >= length + padding {
            outputs -= 1;
        }
        (outputs > 0).then_some(outputs)
    }
}

/// The windows over a batch of images: the geometry that a pooling pass has checked.
///
/// A *plane* is what has its rows of pixels one after another in memory: a channel of an image, or, with the channels
/// last, the whole image, whose pixels then have as many elements as there are channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub window: Window,
    /// Images and channels.
    pub batch: [usize; 2],
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Of input and output.
    pub layout: Layout,
}

impl Windows {
    /// The windows over an input of this shape, `[N, C, H, W]`, in this layout.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of dimensions or a zero other than the batch's; as [`Window::output_size`].
    pub fn new(
        op: &'static str,
        argument: &'static str,
        shape: &[usize],
        layout: Layout,
        window: &Window,
    ) -> Result<Self> {
        match *shape {
            [n, c, h, w] if c > 0 && h > 0 && w > 0 => {
                let output = window.output_size(op, [h, w])?;
                Ok(Self { window: *window, batch: [n, c], input: [h, w], output, layout })
            }
            _ => Err(Error::Shape {
                op,
                argument,
                got: shape.to_vec(),
                expected: "[N, C, H, W] with no zero but for N".into(),
            }),
        }
    }

    /// The windows over an input.
    ///
    /// # Errors
    /// As [`Windows::new`]; [`Error::Layout`] for a layout that pooling has no kernels for.
    pub fn over<T: Element>(op: &'static str, x: &Tensor<T>, window: &Window) -> Result<Self> {
        let windows = Self::new(op, "x", x.shape(), Layout::RowMajor, window)?;
        Ok(Self { layout: check::image_layout(op, "x", x)?, ..windows })
    }

    /// The same windows with the layout of a backward pass, after checking the gradients.
    ///
    /// It is `dy`'s. Where `dy` has one pixel or one channel and so every layout, it is `dx`'s.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Device`] and [`Error::Layout`] for gradients that do not go together.
    pub fn of_gradients<T: Element>(self, op: &'static str, dy: &Tensor<T>, dx: &Tensor<T>) -> Result<Self> {
        let [n, c] = self.batch;
        let [h, w] = self.input;
        check::shape(op, "dy", dy, &self.output_shape())?;
        check::device(op, "dx", dx, dy)?;
        check::shape(op, "dx", dx, &[n, c, h, w])?;
        let layout = match dx.layout() {
            Some(layout) if check::in_layout(op, "dy", dy, layout).is_ok() => layout,
            _ => check::image_layout(op, "dy", dy)?,
        };
        check::in_layout(op, "dx", dx, layout)?;
        Ok(Self { layout, ..self })
    }

    /// The shape of the output.
    pub fn output_shape(&self) -> [usize; 4] {
        [self.batch[0], self.batch[1], self.output[0], self.output[1]]
    }

    /// Memory for an output.
    ///
    /// # Errors
    /// As [`Tensor::empty_in`].
    pub fn empty_output<T: Element>(&self, device: &crate::Device) -> Result<Tensor<T>> {
        Tensor::empty_in(device, &self.output_shape(), self.layout)
    }

    /// Elements from a pixel to the next in its row.
    pub fn pixel(&self) -> usize {
        match self.layout {
            Layout::RowMajor => 1,
            Layout::ChannelsLast => self.batch[1],
        }
    }

    /// Elements of a row of the input.
    pub fn input_line(&self) -> usize {
        self.input[1].saturating_mul(self.pixel())
    }

    /// Elements of a row of the output.
    pub fn output_line(&self) -> usize {
        self.output[1].saturating_mul(self.pixel())
    }

    /// What a kernel needs of them; `L` is the layout's [`for_order`].
    ///
    /// # Errors
    /// [`Error::Shape`] when a row, the number of planes or the reach of a window passes the kernels' 32-bit numbers.
    pub fn launch<L: Order>(&self, op: &'static str) -> Result<kernels::window::Window<L>> {
        let Window { size, stride, padding, dilation, .. } = self.window;
        let planes = self.batch[0] * self.batch[1] / self.pixel();
        let too_large = |got: Vec<usize>| Error::Shape {
            op,
            argument: "x",
            got,
            expected: "fewer than 2^31 elements a row, in fewer than 2^31 planes, and a window smaller than that"
                .into(),
        };
        let narrow = |pair: [usize; 2]| match pair.map(i32::try_from) {
            [Ok(a), Ok(b)] => Ok([a as u32, b as u32]),
            _ => Err(too_large(pair.to_vec())),
        };
        narrow([self.input_line(), self.output_line()])?;
        for (axis, length) in self.input.into_iter().enumerate() {
            // The furthest that a kernel's position gets, counted from the padding's begin.
            let extent = self.window.extent(axis).unwrap_or(usize::MAX);
            let reach = (length + 2 * padding[axis]).saturating_add(extent).saturating_add(stride[axis]);
            i32::try_from(reach).map_err(|_| too_large(vec![length, extent]))?;
        }
        let [planes, channels] = narrow([planes, self.pixel()])?;
        Ok(kernels::window::Window {
            planes,
            channels,
            input: narrow(self.input)?,
            output: narrow(self.output)?,
            size: narrow(size)?,
            stride: narrow(stride)?,
            padding: narrow(padding)?,
            dilation: narrow(dilation)?,
            order: PhantomData,
        })
    }

    /// The outputs along `axis` whose window has its `position` inside the image.
    pub fn outputs_at(&self, axis: usize, position: usize) -> Range<usize> {
        let Window { stride, padding, dilation, .. } = self.window;
        let offset = position * dilation[axis];
        let first = padding[axis].saturating_sub(offset).div_ceil(stride[axis]);
        let end = (self.input[axis] + padding[axis]).saturating_sub(offset).div_ceil(stride[axis]);
        let end = end.min(self.output[axis]);
        first.min(end)..end
    }

    /// The positions along `axis` of an output's window that are inside the image; where none is, an empty range at the
    /// first whose coordinate is not negative.
    pub fn positions_inside(&self, axis: usize, output: usize) -> Range<usize> {
        let Window { size, stride, padding, dilation, .. } = self.window;
        let begin = output * stride[axis];
        let first = padding[axis].saturating_sub(begin).div_ceil(dilation[axis]);
        let end = (self.input[axis] + padding[axis] - begin).div_ceil(dilation[axis]).min(size[axis]);
        first..end.max(first)
    }

    /// The input's coordinate along `axis` at a `position` of an output's window.
    ///
    /// Only for positions inside the image.
    pub fn coordinate(&self, axis: usize, output: usize, position: usize) -> usize {
        output * self.window.stride[axis] + position * self.window.dilation[axis] - self.window.padding[axis]
    }

    /// The outputs along `axis` whose windows reach into `inputs`; with dilation also some that step over them.
    pub fn outputs_over(&self, axis: usize, inputs: &Range<usize>) -> Range<usize> {
        let (stride, padding) = (self.window.stride[axis], self.window.padding[axis]);
        let extent = self.window.dilation[axis] * (self.window.size[axis] - 1) + 1;
        let first = (inputs.start + padding + 1).saturating_sub(extent).div_ceil(stride);
        let end = (inputs.end + padding).div_ceil(stride).min(self.output[axis]);
        first.min(end)..end
    }
}

/// Runs a block with `$order` as the type by which kernels know a layout.
macro_rules! for_order {
    ($layout:expr => $order:ident, $body:expr) => {
        match $layout {
            $crate::Layout::RowMajor => {
                type $order = kernels::window::Nchw;
                $body
            }
            $crate::Layout::ChannelsLast => {
                type $order = kernels::window::Nhwc;
                $body
            }
        }
    };
}
pub(crate) use for_order;

/// Runs a block, which returns, with the size and the stride of a row-major window as constants, and what a launch by bands of
/// outputs takes, if it is one of these sizes and strides.
macro_rules! for_slide {
    ($window:expr, $bytes:expr, [$($a:literal / $b:literal)*]
        => $size:ident, $stride:ident, $found:pat, $body:block) => {
        $($crate::ops::window::for_slide!(@ $window, $bytes => $size = $a, $stride = $b, $found, $body);)*
    };
    (@ $window:expr, $bytes:expr => $size:ident = $a:literal, $stride:ident = $b:literal, $found:pat, $body:block) => {
        if $window.size == [$a, $a]
            && $window.stride == [$b, $b]
            && let Some($found) = $crate::ops::window::Choice::Outputs.of(&$window, &[$bytes])
        {
            const $size: usize = $a;
            const $stride: usize = $b;
            $body
        }
    };
}
pub(crate) use for_slide;

/// Runs a block, which returns, with the size and the padding of a window of stride 2 as constants, and what a launch by bands or
/// by patches takes, if there are kernels for such and `found`, which is asked for no other window, is some.
macro_rules! for_padded {
    ($window:expr, $found:expr => $size:ident: $type:ty, $padding:ident, $pattern:pat, $body:block) => {
        $crate::ops::window::for_padded!(@ $window, $found => $size: $type = 2, $padding = 0, $pattern, $body);
        $crate::ops::window::for_padded!(@ $window, $found => $size: $type = 3, $padding = 0, $pattern, $body);
        $crate::ops::window::for_padded!(@ $window, $found => $size: $type = 3, $padding = 1, $pattern, $body);
    };
    (@ $window:expr, $found:expr
        => $size:ident: $type:ty = $a:literal, $padding:ident = $b:literal, $pattern:pat, $body:block) => {
        if $window.stride == [2, 2]
            && $window.size == [$a, $a]
            && $window.padding == [$b, $b]
            && let Some($pattern) = $found
        {
            const $size: $type = $a;
            const $padding: u32 = $b;
            $body
        }
    };
}
pub(crate) use for_padded;

/// Runs a block, which returns, with the size of a row-major window as a constant and what a launch by pieces takes, if these take least time:
/// of elements with so many bytes, which are added up or not.
macro_rules! for_apart {
    ($window:expr, $bytes:expr, $added:literal => $size:ident, $pattern:pat, $body:block) => {
        if let Some($pattern) = $crate::ops::window::apart(&$window, $bytes, $added) {
            $crate::ops::window::for_apart!(@ $window, $size, $body; 2 3 4 5 6 7 8);
        }
    };
    (@ $window:expr, $size:ident, $body:block; $($a:literal)*) => {
        match $window.size[1] {
            $($a => {
                const $size: u32 = $a;
                $body
            })*
            _ => {}
        }
    };
}
pub(crate) use for_apart;

/// Runs a block, which returns, with the stride of a row-major window and its whole groups of as many rows and columns as constants, if
/// there are kernels for such.
macro_rules! for_groups {
    ($window:expr => $stride:ident, $groups:ident, $body:block) => {
        $crate::ops::window::for_groups!(@ $window, $stride = 2, $groups = 2, $body);
        $crate::ops::window::for_groups!(@ $window, $stride = 2, $groups = 3, $body);
        $crate::ops::window::for_groups!(@ $window, $stride = 3, $groups = 2, $body);
        $crate::ops::window::for_groups!(@ $window, $stride = 3, $groups = 3, $body);
        $crate::ops::window::for_groups!(@ $window, $stride = 4, $groups = 2, $body);
        $crate::ops::window::for_groups!(@ $window, $stride = 4, $groups = 3, $body);
    };
    (@ $window:expr, $stride:ident = $a:literal, $groups:ident = $b:literal, $body:block) => {
        if $window.dilation == [1, 1] && $window.stride == [$a, $a] && $window.size.map(|size| size / $a) == [$b, $b] {
            const $stride: usize = $a;
            const $groups: usize = $b;
            $body
        }
    };
}
pub(crate) use for_groups;

/// As [`for_groups`], with what a launch by columns takes, if these have room; zeros stand for all other windows.
macro_rules! for_columns {
    ($window:expr, $bands:expr => $stride:ident, $groups:ident, $found:pat, $body:block) => {
        if let Some($found) = $bands {
            $crate::ops::window::for_groups!($window => $stride, $groups, $body);
            const $stride: usize = 0;
            const $groups: usize = 0;
            $body
        }
    };
}
pub(crate) use for_columns;

/// The window, if its channels are not the last.
pub(crate) fn row_major<L: Order>(window: &kernels::window::Window<L>) -> Option<kernels::window::Window<Nchw>> {
    (!L::CHANNELS_LAST).then(|| window.in_order())
}

/// The window, if its channels are the last.
pub(crate) fn channels_last<L: Order>(window: &kernels::window::Window<L>) -> Option<kernels::window::Window<Nhwc>> {
    L::CHANNELS_LAST.then(|| window.in_order())
}

/// The launch's dimensions.
pub(crate) fn band_dims(launch: kernels::band::BandLaunch) -> cuda_std::launch::LaunchDims {
    cuda_std::launch::LaunchDims::new(launch.grid, launch.block).with_shared(launch.shared)
}

#[cfg(test)]
mod tests;
