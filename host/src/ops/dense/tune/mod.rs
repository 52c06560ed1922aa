//! Products measured on the GPU at hand, and the fastest ways kept in a table: for those who want what the model leaves.
//!
//! How a product is cut up (tiles, clusters, parts of the depth, tensor cores or not) is chosen by a model that knows the H200
//! (`docs/perf/dense.md` says how well). Nothing is measured while a program runs unless it asks: [`tune`] measures every way
//! that there is to make each of the given products, and a [`Table`] of the fastest is a file of some lines of JSON. A program
//! that has [applied](Table::apply) it, or is started with `FERROLAYER_DENSE_TABLE=FILE`, makes these products that way, all others as the
//! model says. `FERROLAYER_EXPLAIN=1` says of each launch which it was.
//!
//! ```no_run
//! use ferrolayer::ops::dense::Precision;
//! use ferrolayer::ops::dense::tune::{Problem, Table, tune};
//! use ferrolayer::{DType, device::Gpu};
//!
//! let gpu = Gpu::new(0)?;
//! // Forward, dx and dw of a layer of 512 rows, 4096 inputs and 11008 outputs.
//! let layer = Problem::layer(512, 4096, 11_008, DType::Bf16, Precision::default());
//! tune(&gpu, &layer, |entry, _| println!("{}: {} {:.1} µs", entry.problem, entry.choice, entry.us))?.write("h200.jsonl")?;
//!
//! // In the program that is to be fast:
//! Table::read("h200.jsonl")?.apply(&gpu)?;
//! # Ok::<(), ferrolayer::Error>(())
//! ```
//!
//! A table is of one kind of GPU and of one state of the kernels, and says so: another is refused, as is one that names a way
//! that there is not. The environment's is then left alone, with a line on standard error that says why.
//!
//! **Bits.** Two runs with one table give the same bits, as two without one do. With another table, or none, sums may be added
//! in another order, and f32 products may be made by parts or not, within what their [`Precision`] allows.

#[doc(hidden)]
pub mod fit;
pub(super) mod in_use;
mod measure;
mod table;

use std::fmt::{Display, Formatter};
use std::str::FromStr;

pub use self::measure::tune;
pub use self::table::{Entry, Table};
use super::plan::Question;
use super::{Precision, Sizes};
use crate::device::Gpu;
use crate::{DType, Error, Result};

/// Names a table in the environment.
pub const VARIABLE: &str = "FERROLAYER_DENSE_TABLE";

/// One of the layer's products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// `x · wᵀ`
    Forward,
    /// `dz · w`
    Dx,
    /// `dzᵀ · x`
    Dw,
}

impl Product {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Dx, Self::Dw];

    /// `forward`, `dx` or `dw`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Dx => "dx",
            Self::Dw => "dw",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// A product of given sizes and types.
///
/// What else a pass does hardly changes which way is the fastest, and is no part of it: a bias, an activation, whether `beta` adds to what
/// was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Which of the layer's.
    pub product: Product,
    /// `N`, the rows of `x`.
    pub batch: usize,
    /// `I`
    pub inputs: usize,
    /// `O`
    pub outputs: usize,
    /// Of `x` and `w`: f32, f16 or bf16.
    pub dtype: DType,
    /// Of f32; other types have one way, the default.
    pub precision: Precision,
}

impl Problem {
    const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

    /// All products of a layer.
    pub fn layer(batch: usize, inputs: usize, outputs: usize, dtype: DType, precision: Precision) -> [Self; 3] {
        let precision = if dtype == DType::F32 { precision } else { Precision::default() };
        Product::ALL.map(|product| Self { product, batch, inputs, outputs, dtype, precision })
    }

    /// The names of all ways to make it on this GPU, in no order.
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes of 0 or of 2³¹ and more, and for other types.
    pub fn choices(&self, gpu: &Gpu) -> Result<Vec<String>> {
        self.check()?;
        let all = self.question(gpu.hopper_multiprocessors().is_some()).all();
        Ok(all.iter().map(ToString::to_string).collect())
    }

    fn sizes(&self) -> Sizes {
        Sizes { batch: self.batch, inputs: self.inputs, outputs: self.outputs }
    }

    fn question(&self, hopper: bool) -> Question {
        self.sizes().question(hopper, self.dtype, self.precision, self.product)
    }

    fn check(&self) -> Result<()> {
        let Self { batch, inputs, outputs, dtype, .. } = *self;
        let wrong = |argument, got: String, expected: &str| {
            Err(Error::Argument { op: "dense.tune", argument, got, expected: expected.into() })
        };
        if [batch, inputs, outputs].iter().any(|size| !(1..1 << 31).contains(size)) {
            return wrong("problem", format!("[{batch}, {inputs}] and [{outputs}, {inputs}]"), "sizes of 1 to 2³¹ - 1");
        }
        if !Self::DTYPES.contains(&dtype) {
            return wrong("dtype", dtype.to_string(), "f32, f16 or bf16");
        }
        Ok(())
    }
}

/// As in `forward bf16 512x4096x11008`: rows, inputs, outputs.
impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { product, batch, inputs, outputs, dtype, precision } = self;
        write!(f, "{} {dtype} {batch}x{inputs}x{outputs}", product.name())?;
        if *dtype == DType::F32 { write!(f, " {}", precision.name()) } else { Ok(()) }
    }
}

/// As it is displayed.
impl FromStr for Problem {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = || {
            let mut words = text.split(' ');
            let product = Product::named(words.next()?)?;
            let dtype = words.next().and_then(|name| Self::DTYPES.into_iter().find(|dtype| dtype.name() == name))?;
            let sizes: Vec<usize> = words.next()?.split('x').map(|size| size.parse().ok()).collect::<Option<_>>()?;
            let [batch, inputs, outputs] = sizes[..].try_into().ok()?;
            let precision = match dtype {
                DType::F32 => {
                    words.next().and_then(|name| Precision::ALL.into_iter().find(|known| known.name() == name))?
                }
                _ => Precision::default(),
            };
            words.next().is_none().then_some(Self { product, batch, inputs, outputs, dtype, precision })
        };
        let problem = parsed().ok_or_else(|| Error::Argument {
            op: "dense.tune",
            argument: "problem",
            got: format!("{text:?}"),
            expected: "a product, a type, and rows, inputs and outputs, as in forward bf16 512x4096x11008".into(),
        })?;
        problem.check()?;
        Ok(problem)
    }
}
