//! What pooling ops that pick one position of each window share: which one, [`Indices`], and the backward pass.

mod cpu;
mod gpu;

use super::window::Windows;
use crate::{Device, Error, Layout, Out, Real, Result, Tensor, check};

/// Which position of its window each output came from, row-major in the window: `i * size[1] + j`.
///
/// Of the output's shape and layout; one byte each where that can tell all apart, 256 at most, else two.
#[derive(Clone, Debug)]
pub enum Indices {
    /// For up to 256 different indices.
    U8(Tensor<u8>),
    /// For up to 65536 different indices.
    U16(Tensor<u16>),
}

/// Runs a block with a name for the tensor of indices, and with one for their type.
macro_rules! for_indices {
    ($indices:expr, $name:ident as $position:ident => $body:expr) => {
        match $indices {
            $crate::ops::route::Indices::U8($name) => {
                #[allow(dead_code)]
                type $position = u8;
                $body
            }
            $crate::ops::route::Indices::U16($name) => {
                #[allow(dead_code)]
                type $position = u16;
                $body
            }
        }
    };
}
pub(crate) use for_indices;

impl Indices {
    /// Memory for the indices of an output, of which there are `different` ones.
    pub(crate) fn empty(device: &Device, windows: &Windows, different: usize) -> Result<Self> {
        Ok(match Self::is_wide(different) {
            false => Self::U8(windows.empty_output(device)?),
            true => Self::U16(windows.empty_output(device)?),
        })
    }

    fn is_wide(different: usize) -> bool {
        different > 1 << 8
    }

    /// The shape, which is the output's.
    pub fn shape(&self) -> &[usize] {
        for_indices!(self, indices as P => indices.shape())
    }

    /// Where they are.
    pub fn device(&self) -> &Device {
        for_indices!(self, indices as P => indices.device())
    }

    /// The layout, which is the output's.
    pub(crate) fn layout(&self, op: &'static str) -> Result<Layout> {
        for_indices!(self, indices as P => check::image_layout(op, "indices", indices))
    }

    /// Fails unless these can be the indices of a forward pass over `windows`, of which there are `different` ones.
    pub(crate) fn check(&self, op: &'static str, windows: &Windows, different: usize) -> Result<()> {
        const ARGUMENT: &str = "indices";
        for_indices!(self, indices as P => {
            check::shape(op, ARGUMENT, indices, &windows.output_shape())?;
            check::in_layout(op, ARGUMENT, indices, windows.layout)?;
        });
        let wide = matches!(self, Self::U16(_));
        if wide == Self::is_wide(different) {
            return Ok(());
        }
        let name = |wide| if wide { "u16" } else { "u8" };
        Err(Error::Argument {
            op,
            argument: ARGUMENT,
            got: name(wide).into(),
            expected: format!("{} for a window of {} positions", name(!wide), windows.window.positions()),
        })
    }
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    op: &'static str,
    windows: Windows,
    dy: &'a Tensor<T>,
    indices: &'a Indices,
    dx: Out<'a, T>,
}

/// `dx = sum of dy over the outputs that came from there + beta * dx`, in `dy`'s layout, after checking all but the
/// windows. An index past the window's last position names none.
pub(crate) fn backward<T: Real>(
    op: &'static str,
    windows: Windows,
    different: usize,
    dy: &Tensor<T>,
    indices: &Indices,
    dx: Out<'_, T>,
) -> Result<()> {
    for_indices!(indices, indices as P => check::device(op, "indices", indices, dy)?);
    let windows = windows.of_gradients(op, dy, dx.tensor)?;
    indices.check(op, &windows, different)?;
    dy.device().run(Backward { op, windows, dy, indices, dx })
}
