//! The CPU as a device.

use std::sync::Arc;

use rayon::prelude::*;

use super::allocator::{Allocation, Allocator};
use super::convert::{accumulate, map_all, map_all_in_place};
use super::memory::{HostMemory, vec_of};
use super::tasks::Tasks;
use crate::{Element, Out, Real, Result};

/// This machine's processor. Passes run on rayon's threads, or on those of [`run_on`](super::run_on), and are done when the call
/// returns.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    poison: bool,
    memory: Allocation,
}

impl Cpu {
    /// The CPU.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, filling outputs with [`Element::POISON`](crate::Element::POISON) before a pass writes them, so that an
    /// element that a pass leaves out is seen.
    pub fn poisoning() -> Self {
        Self { poison: true, ..Self::default() }
    }

    /// The same, with the memory of tensors made here from `allocator`.
    pub fn with_allocator(allocator: Arc<dyn Allocator>) -> Self {
        Self { memory: Allocation::Shared(allocator), ..Self::default() }
    }

    /// The same, from an allocator that is never dropped, of which no references are counted.
    pub fn with_static_allocator(allocator: &'static dyn Allocator) -> Self {
        Self { memory: Allocation::Static(allocator), ..Self::default() }
    }

    /// Whether outputs are poisoned.
    pub fn poisons(&self) -> bool {
        self.poison
    }

    /// Memory for a dense tensor, to be written before it is read.
    pub(crate) fn allocate<T: Element>(&self, shape: &[usize], strides: &[usize]) -> Result<HostMemory<T>> {
        match self.memory.get() {
            Some(allocator) => HostMemory::of_allocator(allocator, shape, strides),
            None => {
                let value = if self.poison { T::POISON } else { T::default() };
                Ok(HostMemory::Own(vec_of(value, shape.iter().product())?))
            }
        }
    }

    /// Memory that holds `values`, in the order in which they are in memory.
    pub(crate) fn hold<T: Element>(&self, shape: &[usize], strides: &[usize], values: Vec<T>) -> Result<HostMemory<T>> {
        if self.memory.get().is_none() {
            return Ok(HostMemory::Own(values));
        }
        let mut memory = self.allocate(shape, strides)?;
        memory.as_mut_slice().copy_from_slice(&values);
        Ok(memory)
    }
}

/// There is one CPU: whether outputs are poisoned, or whose their memory is, makes it no other device.
impl PartialEq for Cpu {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Elements that one task takes: long enough to hide the task's cost, short enough to spread over the threads.
const CHUNK: usize = 16 * 1024;

impl Cpu {
    /// `out[i] = f(inputs[..][i]) + beta * out[i]` for every `i`, over all threads; with `beta = 0`, `out` is not read.
    ///
    /// # Panics
    /// When an input is not as long as `out`.
    pub fn map<T: Real, const N: usize>(
        &self,
        out: &mut [T],
        beta: f64,
        inputs: [&[T]; N],
        f: impl Fn([T::Compute; N]) -> T::Compute + Sync,
    ) {
        for input in inputs {
            assert_eq!(input.len(), out.len(), "inputs and output are of one length");
        }
        let beta = T::Compute::of(beta);
        out.par_chunks_mut(CHUNK).enumerate().run(1, |(chunk, out)| {
            let inputs = inputs.map(|input| &input[chunk * CHUNK..][..out.len()]);
            map_all(out, beta, inputs, &f);
        });
    }

    /// [`Cpu::map`] into a gradient, where it is asked for.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when `out` is not on the CPU.
    ///
    /// # Panics
    /// As [`Cpu::map`].
    pub fn map_into<T: Real, const N: usize>(
        &self,
        out: Option<Out<'_, T>>,
        inputs: [&[T]; N],
        f: impl Fn([T::Compute; N]) -> T::Compute + Sync,
    ) -> Result<()> {
        let Some(Out { tensor, beta }) = out else { return Ok(()) };
        self.map(tensor.host_mut()?, beta, inputs, f);
        Ok(())
    }

    /// The sum of all `f(inputs[..][i])` into a gradient of one element, where it is asked for; over all threads, in `f64`,
    /// and in an order that does not depend on their number.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when `out` is not on the CPU.
    ///
    /// # Panics
    /// When the inputs are not of one length, or `out` is not of one element.
    pub fn sum_into<T: Real, const N: usize>(
        &self,
        out: Option<Out<'_, T::Compute>>,
        inputs: [&[T]; N],
        f: impl Fn([T::Compute; N]) -> T::Compute + Sync,
    ) -> Result<()> {
        let Some(Out { tensor, beta }) = out else { return Ok(()) };
        let len = inputs.first().map_or(0, |input| input.len());
        assert!(inputs.iter().all(|input| input.len() == len), "inputs are of one length");
        assert_eq!(tensor.len(), 1, "one sum");
        let of_chunk = |chunk: usize| {
            let end = len.min((chunk + 1) * CHUNK);
            (chunk * CHUNK..end).map(|i| f(inputs.map(|input| input[i].widen())).f64()).sum()
        };
        let sums: Vec<f64> = (0..len.div_ceil(CHUNK)).into_par_iter().map(of_chunk).gather(1);
        let sum = T::Compute::of(sums.iter().sum());
        accumulate(&mut tensor.host_mut()?[0], sum, T::Compute::of(beta));
        Ok(())
    }

    /// `out[i] = f(out[i])` for every `i`, over all threads.
    pub fn map_in_place<T: Real>(&self, out: &mut [T], f: impl Fn(T::Compute) -> T::Compute + Sync) {
        out.par_chunks_mut(CHUNK).run(1, |out| map_all_in_place(out, &f));
    }
}
