//! A pass of a case as something to run: its inputs are made and it is bound to them.

mod dense;
mod elementwise;
mod pooling;
mod training;

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;

use ferrolayer::{Compute, DType, Device, Layout, Real, Result, Tensor, bf16, f16};

use crate::case::{Case, Pass};
use crate::timing::copied;

/// Queues one run of a pass, on the set of inputs with this number (modulo their count).
pub type Run = Box<dyn FnMut(usize) -> Result<()>>;

/// Makes inputs: so many sets, in a layout.
pub struct Inputs {
    pub device: Device,
    pub sets: usize,
    pub layout: Layout,
    noise: Noise,
}

/// Random numbers that were made for one pass, for the next that wants as many of their type: making gigabytes of them
/// takes seconds.
#[derive(Default)]
pub struct Noise(RefCell<VecDeque<Made>>);

/// A tensor of some type.
struct Made {
    bytes: usize,
    tensor: Box<dyn Any>,
}

impl Noise {
    /// Bytes kept at most: the largest input of a series of sizes, and the smaller ones.
    const KEPT: usize = 12 << 30;

    /// Numbers between -1 and 1 of no pattern.
    fn get<T: Real>(&self, device: &Device, len: usize) -> Result<Tensor<T>> {
        let mut kept = self.0.borrow_mut();
        let mut found = kept.iter().filter_map(|made| made.tensor.downcast_ref::<Tensor<T>>());
        if let Some(tensor) = found.find(|tensor| tensor.len() == len) {
            return Ok(tensor.clone());
        }
        let block: Vec<T> = noise(len.min(1 << 20));
        let mut values = Vec::with_capacity(len);
        while values.len() < len {
            values.extend_from_slice(&block[..block.len().min(len - values.len())]);
        }
        let tensor = Tensor::from_vec(device, &[len], values)?;
        let bytes = len * size_of::<T>();
        while kept.iter().map(|made| made.bytes).sum::<usize>() + bytes > Self::KEPT && kept.pop_back().is_some() {}
        kept.push_front(Made { bytes, tensor: Box::new(tensor.clone()) });
        Ok(tensor)
    }

    /// Forgets all, for their memory.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

/// A linear congruential generator's high bits.
fn noise<T: Real>(len: usize) -> Vec<T> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        T::of(f64::from(state >> 8) / f64::from(1 << 23) - 1.0)
    };
    (0..len).map(|_| next()).collect()
}

impl Inputs {
    pub fn new(device: &Device, sets: usize, layout: Layout, noise: Noise) -> Self {
        Self { device: device.clone(), sets, layout, noise }
    }

    /// What was kept for the next pass.
    pub fn into_noise(self) -> Noise {
        self.noise
    }

    /// Random numbers of a shape, each set in memory of its own; what is no image is row-major.
    pub fn random<T: Real>(&self, shape: &[usize]) -> Result<Vec<Tensor<T>>> {
        let tensor = self.noise.get::<T>(&self.device, shape.iter().product())?.reshape(shape)?;
        let tensor = if shape.len() == 4 { tensor.to_layout(self.layout)? } else { tensor };
        (0..self.sets).map(|_| copied(&tensor)).collect()
    }

    /// Room for results, one for each set.
    fn room<T: Real>(&self, like: &Tensor<T>) -> Result<Vec<Tensor<T>>> {
        (0..self.sets).map(|_| like.empty_like()).collect()
    }

    /// One number, or one for each channel.
    fn full<T: Compute>(&self, shape: &[usize], value: f64) -> Result<Tensor<T>> {
        Tensor::full(&self.device, shape, T::of(value))
    }

    /// Results live until as many others have been made: their memory is not written again while the cache holds it.
    fn kept<T>(&self) -> Kept<T> {
        Kept { results: VecDeque::with_capacity(self.sets + 1), most: self.sets }
    }
}

/// The latest results.
struct Kept<T> {
    results: VecDeque<T>,
    most: usize,
}

impl<T> Kept<T> {
    fn keep(&mut self, result: T) {
        self.results.push_back(result);
        if self.results.len() > self.most {
            self.results.pop_front();
        }
    }
}

/// A pass of a case, with its inputs.
pub fn bind(inputs: &Inputs, case: &Case, pass: Pass, dtype: DType) -> Result<Run> {
    match dtype {
        DType::F16 => of_type::<f16>(inputs, case, pass),
        DType::Bf16 => of_type::<bf16>(inputs, case, pass),
        _ => match case.op.as_str() {
            "exp" => elementwise::exp(inputs, case, pass),
            "softmax_cross_entropy" => training::softmax_cross_entropy(inputs, case, pass),
            "sgd" => training::sgd(inputs, case),
            "adam" => training::adam(inputs, case),
            _ => of_type::<f32>(inputs, case, pass),
        },
    }
}

fn of_type<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    match case.op.as_str() {
        "relu" => elementwise::relu::<T>(inputs, case, pass),
        "swish" => elementwise::swish::<T>(inputs, case, pass),
        "add2" => elementwise::add2::<T>(inputs, case),
        "scale_add" => elementwise::scale_add::<T>(inputs, case, pass),
        "prelu" => elementwise::prelu::<T>(inputs, case, pass),
        "permute" => elementwise::permute::<T>(inputs, case),
        "copy" => elementwise::copy::<T>(inputs, case),
        "max_pool" => pooling::max::<T>(inputs, case, pass),
        "avg_pool" => pooling::average::<T>(inputs, case, pass),
        "stochastic_pool" => pooling::stochastic::<T>(inputs, case, pass),
        "gaussian_pool" => pooling::gaussian::<T>(inputs, case, pass),
        "dense" => dense::bind::<T>(inputs, case, pass),
        op => unreachable!("{op} is no op of the list, or has no kernel of this type"),
    }
}
