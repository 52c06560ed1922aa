//! Tensors that share memory, and memory that overlaps.

use cuda_std::launch::{DeviceMemory, LaunchDims, MemorySpace};
use ferrolayer::device::Gpu;
use ferrolayer::ops::{add2, permute, prelu, relu};
use ferrolayer::testing::normal;
use ferrolayer::{Device, Out};
use kernels::relu::{BLOCK, ReluForward};

use crate::support::{Outcome, Trial, assert_error, assert_same_bits, on_cpu, on_each_gpu};

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("contract::sharing::outputs_that_are_clones", || outputs_that_are_clones(&Device::cpu())),
        on_cpu("contract::sharing::an_output_that_is_an_input", || an_output_that_is_an_input(&Device::cpu())),
        on_cpu("contract::sharing::a_view_and_its_tensor", || a_view_and_its_tensor(&Device::cpu())),
        on_cpu("contract::sharing::a_launch_refuses_overlapping_memory", a_launch_refuses_overlapping_memory),
    ];
    tests.extend(on_each_gpu("contract::sharing::outputs_that_are_clones", outputs_that_are_clones));
    tests.extend(on_each_gpu("contract::sharing::an_output_that_is_an_input", an_output_that_is_an_input));
    tests.extend(on_each_gpu("contract::sharing::a_view_and_its_tensor", a_view_and_its_tensor));
    tests
}

/// Each output of a call gets memory of its own, and what it should hold.
fn outputs_that_are_clones(device: &Device) -> Outcome {
    let dy = normal::<f32>(device, 1, &[1025])?;
    let old = normal::<f32>(device, 2, &[1025])?;
    let (mut da, mut db) = (old.clone(), old.clone());
    add2::backward(&dy, Some(Out::write(&mut da)), Some(Out::add(&mut db)))?;
    assert_same_bits("da", &da, &dy)?;
    assert_same_bits("db", &db, &add2::forward(&dy, &old)?)?;
    assert_same_bits("the clones' original", &old, &normal(device, 2, &[1025])?)
}

/// The output is a clone of the input whose gradient it is, or of `dy`.
fn an_output_that_is_an_input(device: &Device) -> Outcome {
    let (x, dy) = (normal::<f32>(device, 1, &[5, 3, 7])?, normal::<f32>(device, 2, &[5, 3, 7])?);
    let alpha = normal::<f32>(device, 3, &[3])?;
    let mut expected = x.empty_like()?;
    let mut dalpha = alpha.empty_like()?;
    prelu::backward(&x, &alpha, &dy, Some(Out::write(&mut expected)), Some(Out::write(&mut dalpha)))?;
    for shared in [&x, &dy] {
        let (mut dx, mut again) = (shared.clone(), alpha.clone());
        prelu::backward(&x, &alpha, &dy, Some(Out::write(&mut dx)), Some(Out::write(&mut again)))?;
        assert_same_bits("dx", &dx, &expected)?;
        assert_same_bits("dalpha", &again, &dalpha)?;
    }
    assert_same_bits("x", &x, &normal(device, 1, &[5, 3, 7])?)?;
    assert_same_bits("dy", &dy, &normal(device, 2, &[5, 3, 7])?)
}

/// A permuted view is read and its tensor's clone written by one call, and the reverse.
fn a_view_and_its_tensor(device: &Device) -> Outcome {
    let x = normal::<f32>(device, 1, &[4, 6])?;
    let before = x.to_vec()?;
    let turned = x.clone().permute(&[1, 0])?;
    let y = relu::forward(&turned)?;
    let mut copy = x.clone().reshape(&[6, 4])?;
    permute::copy(&turned, &mut copy)?;
    assert_eq!(copy.to_vec()?, turned.to_vec()?);
    let mut in_place = turned.clone();
    relu::forward_in_place(&mut in_place)?;
    assert_same_bits("in place", &in_place, &y)?;
    // Both have the same order in memory, the gradient is a view of the output.
    let mut dx = y.clone();
    relu::backward(&y, &turned, Out::write(&mut dx))?;
    assert_same_bits("dx", &dx, &y)?;
    assert_eq!((x.to_vec()?, turned.to_vec()?.len()), (before, 24));
    Ok(())
}

/// Memory that was not made by this library: nothing else can overlap.
struct Foreign {
    address: u64,
    len: usize,
}

// SAFETY: the test's buffers, which live in host memory until it ends.
unsafe impl DeviceMemory<f32> for Foreign {
    fn address(&self) -> u64 {
        self.address
    }
    fn len(&self) -> usize {
        self.len
    }
    fn space(&self) -> MemorySpace {
        MemorySpace::Host
    }
}

fn a_launch_refuses_overlapping_memory() -> Outcome {
    let gpu = Gpu::emulated();
    let memory = gpu.upload(&[1.0f32; 16])?;
    let part = |first: u64, len| Foreign { address: DeviceMemory::<f32>::address(&memory) + 4 * first, len };
    let launch = |x: &Foreign, y: &mut Foreign| {
        let n = y.len as u64;
        // SAFETY: both parts hold `n` elements of `memory`, and one block covers them.
        unsafe { gpu.launch(LaunchDims::new(1, BLOCK), ReluForward::<f32> { x: Some(x), y, n }) }
    };
    let said = "relu_forward_f32: y is written, and has memory in common with x";
    assert_error(launch(&part(0, 8), &mut part(4, 8)), said)?;
    assert_error(launch(&part(4, 8), &mut part(0, 8)), said)?;
    assert_error(launch(&part(0, 16), &mut part(4, 4)), said)?;
    Ok(launch(&part(0, 8), &mut part(8, 8))?)
}
