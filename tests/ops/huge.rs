//! Tensors past 2³² elements on a real GPU, looked at where the index in memory passes 2³¹ and 2³².

use ferrolayer::ops::Window;
use ferrolayer::testing::assert_close;
use ferrolayer::{Device, Layout, Real, Tensor};

use crate::support::*;

/// A prime number of elements, so that what lies 2³¹ or 2³² elements on is another, as are a row's or a plane's neighbours.
const PATTERN: usize = 1_000_003;

/// Outputs of a crop, each way.
const OUTPUTS: usize = 6;

/// An input of one element pattern repeated, and windows slid over it in steps of 1, so that the output is as large.
#[derive(Clone, Copy, Debug)]
pub struct Huge {
    pub shape: [usize; 4],
    pub layout: Layout,
    /// The window's height and width.
    pub size: [usize; 2],
}

/// One plane of 4.4e9 elements, and one image of 4.3e9 with its channels last.
pub const LARGEST: [(&str, Huge); 2] = [
    ("plane", Huge { shape: [1, 1, 66_001, 65_999], layout: Layout::RowMajor, size: [3, 3] }),
    ("channels_last", Huge { shape: [1, 64, 8_203, 8_209], layout: Layout::ChannelsLast, size: [2, 3] }),
];

/// The same at sizes for the emulated grid, to see that crops are cut right.
pub const SMALL: [Huge; 2] = [
    Huge { shape: [2, 3, 11, 13], layout: Layout::RowMajor, size: [3, 3] },
    Huge { shape: [2, 5, 9, 12], layout: Layout::ChannelsLast, size: [2, 3] },
];

impl Huge {
    pub fn window(&self) -> Window {
        Window::new(self.size).stride([1, 1])
    }

    pub fn output_shape(&self) -> [usize; 4] {
        let [n, c, h, w] = self.shape;
        [n, c, h + 1 - self.size[0], w + 1 - self.size[1]]
    }

    pub fn input<T: Real>(&self, gpu: &Device) -> ferrolayer::Result<Tensor<T>> {
        self.tensor(gpu, self.shape)
    }

    /// A gradient of the output.
    pub fn output<T: Real>(&self, gpu: &Device) -> ferrolayer::Result<Tensor<T>> {
        self.tensor(gpu, self.output_shape())
    }

    pub fn empty_input<T: Real>(&self, gpu: &Device) -> ferrolayer::Result<Tensor<T>> {
        Tensor::empty_in(gpu, &self.shape, self.layout)
    }

    fn tensor<T: Real>(&self, gpu: &Device, shape: [usize; 4]) -> ferrolayer::Result<Tensor<T>> {
        let (pattern, len): (Vec<T>, _) = ((0..PATTERN).map(element).collect(), shape.iter().product());
        let mut values = Vec::with_capacity(len);
        while values.len() < len {
            values.extend_from_slice(&pattern[..PATTERN.min(len - values.len())]);
        }
        let [n, c, h, w] = shape;
        match self.layout {
            Layout::RowMajor => Tensor::from_vec(gpu, &shape, values),
            Layout::ChannelsLast => Tensor::from_vec(gpu, &[n, h, w, c], values)?.permute(&[0, 3, 1, 2]),
        }
    }

    /// The elements in the order in which they are in memory, which takes no second copy.
    pub fn download<T: Real>(&self, tensor: Tensor<T>) -> ferrolayer::Result<Vec<T>> {
        match self.layout {
            Layout::RowMajor => tensor.to_vec(),
            Layout::ChannelsLast => tensor.permute(&[0, 2, 3, 1])?.to_vec(),
        }
    }

    /// Crops whose first or last outputs are where an index passes 2³¹ or 2³², of the input or of the output; the first
    /// and the last of all.
    pub fn crops(&self) -> Vec<Crop> {
        let mut crops = Vec::new();
        for shape in [self.shape, self.output_shape()] {
            let len: usize = shape.iter().product();
            let limits = [(1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32];
            for place in limits.into_iter().filter(|place| *place < len).chain([0, len - 1]) {
                let [image, channel, row, column] = coordinates(self.layout, shape, place);
                let [.., height, width] = self.output_shape();
                for back in [1, OUTPUTS - 1] {
                    let first = |place: usize, outputs: usize| place.saturating_sub(back).min(outputs - OUTPUTS);
                    let at = [first(row, height), first(column, width)];
                    crops.push(Crop { huge: *self, image, channel, at });
                }
            }
        }
        crops
    }
}

/// The element at this place in memory: a multiple of 1/512 from -4 to below 4, which `f16` holds.
fn element<T: Real>(place: usize) -> T {
    T::of((place % PATTERN * 2_654_435_761 / 128) as f64 % 4096.0 / 512.0 - 4.0)
}

fn place(layout: Layout, shape: [usize; 4], [n, c, h, w]: [usize; 4]) -> usize {
    match layout {
        Layout::RowMajor => ((n * shape[1] + c) * shape[2] + h) * shape[3] + w,
        Layout::ChannelsLast => ((n * shape[2] + h) * shape[3] + w) * shape[1] + c,
    }
}

fn coordinates(layout: Layout, [_, c, h, w]: [usize; 4], place: usize) -> [usize; 4] {
    match layout {
        Layout::RowMajor => [place / (w * h * c), place / (w * h) % c, place / w % h, place % w],
        Layout::ChannelsLast => [place / (c * w * h), place % c, place / (c * w) % h, place / c % w],
    }
}

/// A few outputs of one channel, and the inputs that their windows cover.
#[derive(Clone, Copy, Debug)]
pub struct Crop {
    huge: Huge,
    image: usize,
    channel: usize,
    /// The first output's row and column, and so also the first input's.
    at: [usize; 2],
}

impl Crop {
    fn size(&self) -> [usize; 2] {
        self.huge.size.map(|size| OUTPUTS + size - 1)
    }

    /// The elements that `element` gives for their places in a tensor of this shape, as a tensor on the CPU.
    fn gather<T: Real>(
        &self,
        shape: [usize; 4],
        [height, width]: [usize; 2],
        element: impl Fn(usize) -> T,
    ) -> ferrolayer::Result<Tensor<T>> {
        let at = |i: usize| {
            let (row, column) = (self.at[0] + i / width, self.at[1] + i % width);
            element(place(self.huge.layout, shape, [self.image, self.channel, row, column]))
        };
        Tensor::from_vec(&Device::cpu(), &[1, 1, height, width], (0..height * width).map(at).collect())
    }

    pub fn input<T: Real>(&self) -> ferrolayer::Result<Tensor<T>> {
        self.gather(self.huge.shape, self.size(), element)
    }

    /// Of the gradient of the output.
    pub fn output<T: Real>(&self) -> ferrolayer::Result<Tensor<T>> {
        self.gather(self.huge.output_shape(), [OUTPUTS; 2], element)
    }

    /// The row-major index, in the whole output, of this output of the crop.
    pub fn output_index(&self, output: usize) -> u64 {
        let at = [self.image, self.channel, self.at[0] + output / OUTPUTS, self.at[1] + output % OUTPUTS];
        place(Layout::RowMajor, self.huge.output_shape(), at) as u64
    }

    /// Of what the huge pass gave.
    pub fn of_output<T: Real>(&self, y: &[T]) -> ferrolayer::Result<Tensor<T>> {
        self.gather(self.huge.output_shape(), [OUTPUTS; 2], |place| y[place])
    }

    /// Fails unless the outputs are the same up to the rounding of a sum.
    pub fn assert_output<T: Real>(&self, what: &str, y: &[T], expected: &Tensor<T>) -> Outcome {
        let all = |_: usize, _: usize| true;
        self.assert_close(what, &self.of_output(y)?, expected, all)
    }

    /// Fails unless the gradients of the inputs that only windows of this crop cover are the same up to the rounding of a
    /// sum.
    pub fn assert_interior<T: Real>(&self, what: &str, dx: &[T], expected: &Tensor<T>) -> Outcome {
        let [down, right] = self.huge.size;
        let interior = |row, column| (down - 1..OUTPUTS).contains(&row) && (right - 1..OUTPUTS).contains(&column);
        let got = self.gather(self.huge.shape, self.size(), |place| dx[place])?;
        self.assert_close(what, &got, expected, interior)
    }

    fn assert_close<T: Real>(
        &self,
        what: &str,
        got: &Tensor<T>,
        expected: &Tensor<T>,
        which: impl Fn(usize, usize) -> bool,
    ) -> Outcome {
        let width = got.shape()[3];
        let chosen = |tensor: &Tensor<T>| -> ferrolayer::Result<Vec<T>> {
            let places = tensor.to_vec()?.into_iter().enumerate();
            Ok(places.filter(|(i, _)| which(i / width, i % width)).map(|(_, v)| v).collect())
        };
        let (got, expected, terms) = (chosen(got)?, chosen(expected)?, self.huge.size[0] * self.huge.size[1]);
        let magnitudes = vec![4.0 * terms as f64; got.len()];
        Ok(assert_close(&format!("{what} at {self:?}"), &got, &expected, terms, &magnitudes)?)
    }
}
