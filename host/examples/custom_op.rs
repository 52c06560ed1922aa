//! An op of your own: `y = x * sigmoid(beta * x)` with a `beta` to be learnt, swish (Ramachandran et al., arXiv 1710.05941).
//! `cargo run --release --example custom_op --features emulator` checks and trains it; `docs/your-own-op.md` explains it.

use self::kernels::{BLOCK, SwishBackward, SwishForward};
use cuda_std::launch::LaunchDims;
use ferrolayer::device::{KernelModule, for_storage, tiles};
use ferrolayer::nn::{Apply, Dense, Layer, Mode, Optimiser, Sequential, Sgd, SoftmaxCrossEntropy};
use ferrolayer::op::{Backward, Inputs, Names, Op};
use ferrolayer::{Device, Float, Out, Real, Result, Tensor, bf16, check, ops, testing};

/// What runs on the GPU. Buffers hold `n` elements (`beta` one, `parts` one a warp), and the grid has a thread for each.
mod kernels {
    use cuda_std::prelude::*;

    pub const BLOCK: u32 = 256;

    #[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
    pub unsafe fn swish_forward<T: Storage>(x: Global<T>, beta: Global<f32>, y: GlobalMut<T>, n: u64) {
        let i = thread::block_idx_x() as usize * BLOCK as usize + thread::thread_idx_x() as usize;
        let there = (i as u64) < n;
        // SAFETY: nothing is loaded or stored past `n`.
        unsafe {
            let x = x.load_if(there, i, T::from_f32(0.0)).to_f32();
            y.store_if(there, i, T::from_f32(x / (1.0 + float::exp(-beta.load(0) * x))));
        }
    }

    #[kernel(block = BLOCK, instances(T = [f32, f16, bf16]))]
    pub unsafe fn swish_backward<T: Storage>(
        x: Global<T>,
        beta: Global<f32>,
        dy: Global<T>,
        dx: Option<GlobalMut<T>>,
        keep: f32,
        parts: GlobalMut<f32>,
        n: u64,
    ) {
        let i = thread::block_idx_x() as usize * BLOCK as usize + thread::thread_idx_x() as usize;
        let there = (i as u64) < n;
        // SAFETY: nothing is loaded or stored past `n`, nor `dx` read where nothing of it is kept.
        unsafe {
            let load = |from: Global<T>, there| from.load_if(there, i, T::from_f32(0.0)).to_f32();
            let (x, beta, dy) = (load(x, there), beta.load(0), load(dy, there));
            let s = 1.0 / (1.0 + float::exp(-beta * x));
            if let Some(dx) = dx {
                let old = load(dx.as_global(), there && keep != 0.0);
                dx.store_if(there, i, T::from_f32(dy * s * (1.0 + beta * x * (1.0 - s)) + keep * old));
            }
            let sum = warp::reduce_sum(dy * (x * s) * (x * (1.0 - s)));
            parts.store_if(there && warp::lane_id() == 0, i / 32, sum);
        }
    }
}

static KERNELS: KernelModule = KernelModule::new(include_str!("custom_op.sm_80.ptx"));

#[derive(Clone, Copy, Debug)]
struct Swish;

impl<T: Real> Op<T> for Swish {
    type State = ();
    type Saved = Tensor<T>;

    fn names(&self) -> Names {
        Names::new("swish", &["x"], &["beta"])
    }

    fn forward(&self, _: &mut (), inputs: Inputs<'_, T>, mode: Mode) -> Result<(Tensor<T>, Option<Tensor<T>>)> {
        const OP: &str = "swish.forward";
        let ([x], [beta]) = inputs.exactly(OP)?;
        check::parameter(OP, "beta", beta, x, &[1])?;
        let (mut y, n) = (x.empty_like()?, x.len());
        match x.device() {
            Device::Cpu(cpu) => {
                let (beta, one) = (beta.host()?[0], T::Compute::of(1.0));
                cpu.map(y.host_mut()?, 0.0, [x.host()?], |[x]| x / (one + (-beta * x).exp()));
            }
            Device::Gpu(gpu) => for_storage!(T as S, OP, "x", gpu, {
                let (x, beta, y) = (x.gpu::<S>(OP, "x")?, beta.gpu(OP, "beta")?, y.gpu_mut::<S>(OP, "y")?);
                let kernel = SwishForward { x, beta, y, n: n as u64 };
                // SAFETY: `y` is like `x`, `beta` of one element, and the grid covers `n`.
                unsafe { KERNELS.launch(gpu, LaunchDims::new(tiles(n, BLOCK), BLOCK), kernel) }
            })?,
            Device::Shapes => {}
        }
        Ok((y, mode.keep(|| x.clone())))
    }

    fn backward(&self, _: &mut (), call: Backward<'_, T, Tensor<T>>) -> Result<()> {
        const OP: &str = "swish.backward";
        let (x, dy, n) = (call.saved, call.dy, call.saved.len());
        let ([beta], [dx], [dbeta]) = call.exactly(OP)?;
        check::like(OP, "dy", dy, x)?;
        check::gradient(OP, "dx", &dx, x)?;
        check::gradient(OP, "dbeta", &dbeta, beta)?;
        match x.device() {
            Device::Cpu(cpu) => {
                let (x, dy, beta, one) = (x.host()?, dy.host()?, beta.host()?[0], T::Compute::of(1.0));
                let s = |x: T::Compute| (one + (-beta * x).exp()).recip();
                let slope = |x| s(x) * (one + beta * x * (one - s(x)));
                cpu.map_into(dx, [x, dy], |[x, dy]| dy * slope(x))?;
                cpu.sum_into(dbeta, [x, dy], |[x, dy]| dy * (x * s(x)) * (x * (one - s(x))))?;
            }
            Device::Gpu(gpu) => {
                let (warps, beta) = (n.div_ceil(32), beta.gpu(OP, "beta")?);
                let mut parts = gpu.workspace(warps)?;
                for_storage!(T as S, OP, "x", gpu, {
                    let (x, dy) = (x.gpu::<S>(OP, "x")?, dy.gpu::<S>(OP, "dy")?);
                    let (dx, keep) = Out::gpu(dx, OP, "dx")?;
                    let kernel = SwishBackward { x, beta, dy, dx, keep, parts: &mut parts.as_slice_mut(), n: n as u64 };
                    // SAFETY: `dy` and `dx` are like `x`, and `parts` holds an element for each warp.
                    unsafe { KERNELS.launch(gpu, LaunchDims::new(tiles(n, BLOCK), BLOCK), kernel) }
                })?;
                ops::sum_parts(OP, gpu, parts.as_slice(), [1, 1, warps], dbeta)?;
            }
            Device::Shapes => {}
        }
        Ok(())
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpu = Device::cpu();
    let (x, beta) = (testing::normal(&cpu, 1, &[5, 13])?, Tensor::full(&cpu, &[1], 1.5)?);
    let inputs = Inputs { data: &[&x], parameters: &[&beta] };
    testing::gradcheck(&Swish, inputs)?;
    println!("gradients: those of central differences");
    for gpu in testing::gpus() {
        testing::compare_devices::<f32, _>(&Swish, inputs, [&cpu, &gpu])?;
        testing::compare_devices::<bf16, _>(&Swish, inputs, [&cpu, &gpu])?;
        println!("{gpu}: as the CPU");
    }
    let device = Device::auto();
    let mut model = Sequential::new()
        .then(Dense::builder(2, 8).seed(1).build(&device)?)
        .then(Apply::new(Swish, vec![Tensor::full(&device, &[1], 1.0f32)?])?)
        .then(Dense::builder(8, 2).seed(2).build(&device)?);
    let (mut loss, mut optimiser) = (SoftmaxCrossEntropy::new(), Sgd::new(0.5).momentum(0.9));
    let x = Tensor::from_slice(&device, &[4, 2], &[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?;
    let labels = Tensor::from_slice(&device, &[4], &[0, 1, 1, 0])?;
    for step in 0..20 {
        model.zero_grad();
        let value = loss.forward(&model.forward(&x, Mode::Train)?, &labels, Mode::Train)?.to_vec()?[0];
        model.backward_parameters(&loss.backward()?)?;
        optimiser.step(&mut model)?;
        println!("step {step:2}: loss {value:.4}");
    }
    Ok(())
}
