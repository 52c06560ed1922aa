//! Every op against what PyTorch computes, in f64 and f32, over the stored cases of `tests/vectors`.
//!
//! The other tests compare with formulas that this project wrote down; PyTorch's results were made by others. Where an op
//! is to differ from PyTorch, its check says so, quotes SPEC.md where that speaks of it, and holds the op to that instead;
//! the README beside the vectors lists all such places.

use std::fmt::Write as _;

use ferrolayer::{Device, Real};

use crate::support::{Failed, Outcome, on_cpu, on_each_gpu};

mod dense;
mod elementwise;
mod loss;
mod optimisers;
mod pooling;
mod vectors;

use vectors::{Case, Op, Scalar, Trial, Vectors};

/// One op's case against PyTorch.
trait Check {
    /// Runs the op's passes on the trial's device and compares each result.
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome;
}

/// The ops that are checked.
const OPS: [&str; 13] = [
    "adam",
    "add2",
    "avg_pool",
    "dense",
    "exp",
    "gaussian_pool",
    "max_pool",
    "prelu",
    "relu",
    "scale_add",
    "sgd",
    "softmax_cross_entropy",
    "stochastic_pool",
];

pub fn tests() -> Vec<crate::support::Trial> {
    let mut tests = vec![on_cpu("oracle::has_at_least_2000_cases", has_at_least_2000_cases)];
    for op in OPS {
        let name = format!("oracle::{op}");
        tests.push(on_cpu(&format!("{name}::f64"), move || check::<f64>(&Device::cpu(), op)));
        tests.push(on_cpu(&format!("{name}::f32"), move || check::<f32>(&Device::cpu(), op)));
        tests.extend(on_each_gpu(&name, move |gpu| check::<f32>(gpu, op)));
    }
    tests
}

fn has_at_least_2000_cases() -> Outcome {
    let cases = &Vectors::get()?.cases;
    let checked = cases.iter().filter(|case| OPS.contains(&case.op.name())).count();
    if checked < 2000 {
        return Err(format!("{checked} of {} cases are checked", cases.len()).into());
    }
    match OPS.iter().find(|op| !cases.iter().any(|case| case.op.name() == **op)) {
        None => Ok(()),
        Some(op) => Err(format!("there is no case of {op}").into()),
    }
}

/// Checks all cases of an op, and names those that fail, the first few in full.
fn check<T: Scalar>(device: &Device, op: &str) -> Outcome {
    const SHOWN: usize = 5;
    let vectors = Vectors::get()?;
    let cases: Vec<&Case> = vectors.cases.iter().filter(|case| case.op.name() == op).collect();
    let failed: Vec<(&Case, Failed)> = cases
        .iter()
        .filter_map(|&case| case.op.check::<T>(&Trial { case, vectors, device }).err().map(|error| (case, error)))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    let mut report =
        format!("{op}, {}, {device}: {} of {} cases differ from PyTorch", T::NAME, failed.len(), cases.len());
    for (case, error) in failed.iter().take(SHOWN) {
        let message = error.message().unwrap_or("failed");
        write!(report, "\ncase {}, {}\n  {message}", case.number, case.line)
            .expect("a string takes all that is written");
    }
    if failed.len() > SHOWN {
        let numbers: Vec<usize> = failed.iter().skip(SHOWN).map(|(case, _)| case.number).collect();
        write!(report, "\nalso cases {numbers:?}").expect("a string takes all that is written");
    }
    Err(report.into())
}

impl Op {
    /// The name of the op's folder.
    fn name(&self) -> &'static str {
        match self {
            Self::MaxPool(_) => "max_pool",
            Self::AvgPool(_) => "avg_pool",
            Self::GaussianPool(_) => "gaussian_pool",
            Self::StochasticPool(_) => "stochastic_pool",
            Self::Prelu(_) => "prelu",
            Self::Relu(_) => "relu",
            Self::Add2(_) => "add2",
            Self::ScaleAdd(_) => "scale_add",
            Self::Exp(_) => "exp",
            Self::Dense(_) => "dense",
            Self::SoftmaxCrossEntropy(_) => "softmax_cross_entropy",
            Self::Sgd(_) => "sgd",
            Self::Adam(_) => "adam",
        }
    }

    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        match self {
            Self::MaxPool(op) => op.check::<T>(trial),
            Self::AvgPool(op) => op.check::<T>(trial),
            Self::GaussianPool(op) => op.check::<T>(trial),
            Self::StochasticPool(op) => op.check::<T>(trial),
            Self::Prelu(op) => op.check::<T>(trial),
            Self::Relu(op) => op.check::<T>(trial),
            Self::Add2(op) => op.check::<T>(trial),
            Self::ScaleAdd(op) => op.check::<T>(trial),
            Self::Exp(op) => op.check::<T>(trial),
            Self::Dense(op) => op.check::<T>(trial),
            Self::SoftmaxCrossEntropy(op) => op.check::<T>(trial),
            Self::Sgd(op) => op.check::<T>(trial),
            Self::Adam(op) => op.check::<T>(trial),
        }
    }
}

/// The magnitude of `f` of each number of an element and the element.
fn magnitudes<T: Real>(values: &[T], f: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    values.iter().enumerate().map(|(i, value)| f(i, value.f64()).abs()).collect()
}
