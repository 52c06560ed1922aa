//! What `tests/vectors` holds: cases, their inputs, which are made anew from a seed, and what PyTorch gave for them.
//!
//! The format, and why inputs are not stored, is in `tests/vectors/README.md`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use ferrolayer::{Compute, Device, Element, Tensor};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::Deserialize;

use super::{dense, elementwise, loss, optimisers, pooling};
use crate::support::{Failed, Outcome};

// Part of the binary, so that a bundle of it runs where there is no repository.
static CASES: &str = include_str!("../../vectors/cases.jsonl");
static OUTPUTS: &[u8] = include_bytes!("../../vectors/outputs.safetensors");

/// All cases and all numbers.
pub struct Vectors {
    pub cases: Vec<Case>,
    f32: Vec<f32>,
    f64: Vec<f64>,
}

/// A case, and where its outputs are.
pub struct Case {
    /// Its line in `cases.jsonl`, from 1 on.
    pub number: usize,
    /// That line: all of the case's parameters.
    pub line: &'static str,
    pub op: Op,
    seed: u64,
    outputs: BTreeMap<String, Stored>,
}

struct Stored {
    shape: Vec<usize>,
    range: Range<usize>,
}

/// A line of `cases.jsonl`.
#[derive(Deserialize)]
struct Line {
    #[serde(flatten)]
    op: Op,
    seed: u64,
    outputs: BTreeMap<String, Vec<usize>>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    MaxPool(pooling::Max),
    AvgPool(pooling::Average),
    GaussianPool(pooling::Gaussian),
    StochasticPool(pooling::Stochastic),
    Prelu(elementwise::Prelu),
    Relu(elementwise::Relu),
    Add2(elementwise::Add2),
    ScaleAdd(elementwise::ScaleAdd),
    Exp(elementwise::Exp),
    Dense(dense::Dense),
    SoftmaxCrossEntropy(loss::SoftmaxCrossEntropy),
    Sgd(optimisers::Sgd),
    Adam(optimisers::Adam),
}

impl Vectors {
    /// Reads them, once.
    pub fn get() -> Result<&'static Self, Failed> {
        static VECTORS: OnceLock<Result<Vectors, String>> = OnceLock::new();
        VECTORS.get_or_init(Self::read).as_ref().map_err(Failed::from)
    }

    fn read() -> Result<Self, String> {
        let file = SafeTensors::deserialize(OUTPUTS).map_err(|error| format!("outputs.safetensors: {error}"))?;
        let tensor = |name: &str, dtype: Dtype| match file.tensor(name) {
            Ok(view) if view.dtype() == dtype => Ok(view.data()),
            Ok(view) => Err(format!("outputs.safetensors: {name} holds {:?}, expected {dtype:?}", view.dtype())),
            Err(error) => Err(format!("outputs.safetensors: {name}: {error}")),
        };
        let f32 = tensor("f32", Dtype::F32)?.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let f64 = tensor("f64", Dtype::F64)?.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let mut vectors = Self { cases: vec![], f32, f64 };
        let mut end = 0;
        for (number, line) in (1..).zip(CASES.lines()) {
            let Line { op, seed, outputs } =
                serde_json::from_str(line).map_err(|error| format!("cases.jsonl, line {number}: {error}: {line}"))?;
            let mut place = |shape: Vec<usize>| {
                let begin = end;
                end += shape.iter().product::<usize>();
                Stored { shape, range: begin..end }
            };
            let outputs = outputs.into_iter().map(|(name, shape)| (name, place(shape))).collect();
            vectors.cases.push(Case { number, line, op, seed, outputs });
        }
        match (vectors.f32.len(), vectors.f64.len()) {
            lengths if lengths == (end, end) => Ok(vectors),
            (f32, f64) => Err(format!("the cases have {end} outputs, outputs.safetensors {f32} in f32, {f64} in f64")),
        }
    }
}

/// What an input's elements are drawn from; `values` in `generate.py` says the same.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Evenly from -4 to 4.
    Plain,
    /// Five values, so that equals and zeros of both signs are the rule.
    Ties,
    /// A few NaN, infinities, zeros of both signs and subnormal numbers among others.
    Special,
    /// Many of these: windows with more than one.
    Hostile,
    Subnormal,
    /// Over twenty orders of magnitude.
    Wide,
    /// Up to 64 and down to -64, 40 and -40 among them.
    Exponents,
    /// From 2^-10 to about 32.
    Variances,
}

/// A type that vectors are stored in.
pub trait Scalar: Compute {
    const NAME: &str;
    /// Of the mantissa, the hidden one included.
    const DIGITS: u32;
    /// The smallest subnormal number.
    const SMALLEST: f64;

    fn outputs(vectors: &Vectors) -> &[Self];
}

impl Scalar for f32 {
    const NAME: &str = "f32";
    const DIGITS: u32 = f32::MANTISSA_DIGITS;
    const SMALLEST: f64 = f32::from_bits(1) as f64;

    fn outputs(vectors: &Vectors) -> &[Self] {
        &vectors.f32
    }
}

impl Scalar for f64 {
    const NAME: &str = "f64";
    const DIGITS: u32 = f64::MANTISSA_DIGITS;
    const SMALLEST: f64 = f64::from_bits(1);

    fn outputs(vectors: &Vectors) -> &[Self] {
        &vectors.f64
    }
}

/// 64 random bits for each element of input number `tensor` (`bits` in `generate.py`).
fn bits(seed: u64, tensor: u64, len: usize) -> impl Iterator<Item = u64> {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    // The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
    let mix = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let stream = mix(seed.wrapping_add(GOLDEN.wrapping_mul(tensor + 1)));
    (1..=len as u64).map(move |i| mix(stream.wrapping_add(GOLDEN.wrapping_mul(i))))
}

/// An element of an input: what `values` in `generate.py` makes of the same bits. All of it is exact.
fn value<T: Scalar>(kind: Kind, h: u64) -> T {
    let number = (h >> (64 - T::DIGITS)) as f64 * 2f64.powi(3 - T::DIGITS as i32) - 4.0;
    let low = h & 0xFF;
    let subnormal = ((h >> 43) as f64 - 2f64.powi(20)) * T::SMALLEST;
    T::of(match (kind, low) {
        (Kind::Plain, _) => number,
        (Kind::Ties, _) => [-1.0, -0.0, 0.0, 0.5, 1.0][((h >> 32) % 5) as usize],
        (Kind::Subnormal, _) | (Kind::Special, 28..36) | (Kind::Hostile, 160..176) => subnormal,
        (Kind::Special, 0..4) | (Kind::Hostile, 0..48) => f64::NAN,
        (Kind::Special, 4..8) | (Kind::Hostile, 48..72) => f64::INFINITY,
        (Kind::Special, 8..12) | (Kind::Hostile, 72..128) => f64::NEG_INFINITY,
        (Kind::Special, 12..20) | (Kind::Hostile, 128..144) => -0.0,
        (Kind::Special, 20..28) | (Kind::Hostile, 144..160) => 0.0,
        (Kind::Special | Kind::Hostile, _) => number,
        (Kind::Wide, _) => number * 2f64.powi((low % 64) as i32 - 32),
        (Kind::Exponents, 0..16) => 40.0,
        (Kind::Exponents, 16..32) => -40.0,
        (Kind::Exponents, _) => number * 16.0,
        (Kind::Variances, _) => (number.abs() + 2f64.powi(-6)) * 2f64.powi((low % 8) as i32 - 4),
    })
}

/// An input, on the CPU to reckon with and on the device under test.
pub struct Input<T: Scalar> {
    pub host: Vec<T>,
    pub tensor: Tensor<T>,
}

/// A case in one type on one device.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    pub case: &'a Case,
    pub vectors: &'a Vectors,
    pub device: &'a Device,
}

impl Trial<'_> {
    /// Input number `tensor`.
    pub fn input<T: Scalar>(&self, kind: Kind, tensor: u64, shape: &[usize]) -> Result<Input<T>, Failed> {
        let host: Vec<T> =
            bits(self.case.seed, tensor, shape.iter().product()).map(|bits| value::<T>(kind, bits)).collect();
        let tensor = Tensor::from_slice(self.device, shape, &host)?;
        Ok(Input { host, tensor })
    }

    /// Classes, as input number `tensor`.
    pub fn labels(&self, tensor: u64, len: usize, classes: usize) -> Vec<u32> {
        bits(self.case.seed, tensor, len).map(|bits| (bits % classes as u64) as u32).collect()
    }

    /// The shape that PyTorch's output has.
    pub fn shape(&self, output: &str) -> Result<&[usize], Failed> {
        Ok(&self.stored(output)?.shape)
    }

    /// PyTorch's output.
    pub fn expected<T: Scalar>(&self, output: &str) -> Result<&[T], Failed> {
        Ok(&T::outputs(self.vectors)[self.stored(output)?.range.clone()])
    }

    fn stored(&self, output: &str) -> Result<&Stored, Failed> {
        self.case.outputs.get(output).ok_or_else(|| format!("cases.jsonl gives no output {output}").into())
    }

    /// The elements of `got`, when it has the shape of PyTorch's output.
    pub fn elements<E: Element>(&self, output: &str, got: &Tensor<E>) -> Result<Vec<E>, Failed> {
        match self.shape(output)? {
            shape if shape == got.shape() => Ok(got.to_vec()?),
            shape => Err(format!("{output}: shape {:?}, expected {shape:?}", got.shape()).into()),
        }
    }

    /// Fails unless `got` is PyTorch's output, to within the rounding of sums of `terms` terms, whose magnitudes come to
    /// `magnitudes`.
    pub fn close<T: Scalar>(&self, output: &str, got: &Tensor<T>, terms: usize, magnitudes: &[f64]) -> Outcome {
        self.close_to(output, got, self.expected(output)?, terms, magnitudes)
    }

    /// [`Trial::close`] to something else than PyTorch's output, of the same shape.
    pub fn close_to<T: Scalar>(
        &self,
        output: &str,
        got: &Tensor<T>,
        expected: &[T],
        terms: usize,
        magnitudes: &[f64],
    ) -> Outcome {
        let got = self.elements(output, got)?;
        Ok(ferrolayer::testing::assert_close(output, &got, expected, terms, magnitudes)?)
    }

    /// Fails unless every element of `got` has the bits of PyTorch's output; one NaN is as good as another.
    pub fn exact<T: Scalar>(&self, output: &str, got: &Tensor<T>) -> Outcome {
        self.exact_to(output, got, self.expected(output)?)
    }

    /// [`Trial::exact`] to something else than PyTorch's output, of the same shape.
    pub fn exact_to<T: Scalar>(&self, output: &str, got: &Tensor<T>, expected: &[T]) -> Outcome {
        let got = self.elements(output, got)?;
        let same = |a: &T, b: &T| a.bits() == b.bits() || a.is_nan() && b.is_nan();
        match got.iter().zip(expected).position(|(got, expected)| !same(got, expected)) {
            None => Ok(()),
            Some(i) => Err(format!("{output}: element {i} is {:?}, expected {:?}", got[i], expected[i]).into()),
        }
    }
}
