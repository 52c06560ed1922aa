//! The kernels of the large tiles: at sizes that the emulated grid can run the op would choose the small ones.

use cuda_std::launch::LaunchDims;
use ferrolayer::device::{GpuBuffer, tiles};
use kernels::dense::{
    DEPTH, DenseDwF32T128, DenseDxF32T128, DenseFinishF32, DenseForwardF32T128, FINISH_BLOCK, FINISH_COLUMNS,
    FINISH_ROWS, IDENTITY, LARGE, LARGE_BLOCK, PRELU_EACH, Shape,
};

use super::*;

const OP: &str = "test";

/// More than a tile each way, with rows of a multiple of 16 bytes and not, whole and split with a short last part.
pub fn large_tiles(device: &Device) -> Outcome {
    for (seed, (rows, columns, depth, splits)) in
        [(130, 133, 19, 1), (129, 136, 24, 2), (3, 200, 17, 2)].into_iter().enumerate()
    {
        let depth_per_split = u32::try_from(depth)?.div_ceil(splits).next_multiple_of(DEPTH);
        let shape = Shape { rows: rows as u32, columns: columns as u32, depth: depth as u32, depth_per_split };
        forward(device, shape, splits, seed as u64)?;
        sums(device, shape, splits, seed as u64)?;
    }
    Ok(())
}

fn gpu(device: &Device) -> &Gpu {
    match device {
        Device::Gpu(gpu) => gpu,
        Device::Cpu(_) => unreachable!("a test of GPUs"),
    }
}

fn buffer(tensor: &Tensor<f32>) -> Result<&GpuBuffer<f32>, Failed> {
    Ok(tensor.gpu::<f32>(OP, "input")?)
}

fn dims(shape: Shape, splits: u32) -> LaunchDims {
    LaunchDims::new([tiles(shape.rows as usize, LARGE), tiles(shape.columns as usize, LARGE), splits], LARGE_BLOCK)
}

fn forward(device: &Device, shape: Shape, splits: u32, seed: u64) -> Outcome {
    let [n, o, i] = [shape.rows, shape.columns, shape.depth].map(|size| size as usize);
    let (x, w) = (normal_tensor(device, seed, &[n, i]), normal_tensor(device, 10 + seed, &[o, i]));
    let (b, alpha) = (normal_tensor(device, 20 + seed, &[o]), normal_tensor(device, 30 + seed, &[o]));
    let [mut y, mut z] = [Tensor::<f32>::empty(device, &[n, o])?, Tensor::<f32>::empty(device, &[n, o])?];
    let mut parts = Tensor::<f32>::empty(device, &[splits as usize, n, o])?;
    let (x_buffer, w_buffer, b_buffer, alpha_buffer) = (buffer(&x)?, buffer(&w)?, buffer(&b)?, buffer(&alpha)?);
    let (y_buffer, z_buffer) = (y.gpu_mut::<f32>(OP, "y")?, z.gpu_mut::<f32>(OP, "z")?);
    if splits == 1 {
        let kernel = DenseForwardF32T128 {
            x: x_buffer,
            w: w_buffer,
            y: y_buffer,
            z: Some(z_buffer),
            b: Some(b_buffer),
            alpha: Some(alpha_buffer),
            shape,
            activation: PRELU_EACH,
        };
        // SAFETY: whole tensors of the shapes that the kernel asks for, and a grid that covers the product.
        unsafe { gpu(device).launch(dims(shape, 1), kernel)? };
    } else {
        let kernel = DenseForwardF32T128 {
            x: x_buffer,
            w: w_buffer,
            y: parts.gpu_mut::<f32>(OP, "parts")?,
            z: None,
            b: None,
            alpha: None,
            shape,
            activation: IDENTITY,
        };
        // SAFETY: as above; there are as many parts as splits.
        unsafe { gpu(device).launch(dims(shape, splits), kernel)? };
        let kernel = DenseFinishF32 {
            parts: buffer(&parts)?,
            out: y_buffer,
            z: Some(z_buffer),
            b: Some(b_buffer),
            alpha: Some(alpha_buffer),
            shape,
            splits,
            activation: PRELU_EACH,
            beta: 0.0,
        };
        let grid = [tiles(n, FINISH_ROWS), tiles(o, FINISH_COLUMNS), 1];
        // SAFETY: as above.
        unsafe { gpu(device).launch(LaunchDims::new(grid, FINISH_BLOCK), kernel)? };
    }

    let (x_abs, w_abs, b_abs) = (wide(&x, f64::abs)?, wide(&w, f64::abs)?, wide(&b, f64::abs)?);
    let (x, w, b, alpha) = (wide(&x, same)?, wide(&w, same)?, wide(&b, same)?, wide(&alpha, same)?);
    let exact = dense::forward(&x, &w, Some(&b), Activation::Prelu(&alpha))?;
    let sizes = dense::forward_inference(&x_abs, &w_abs, Some(&b_abs), Activation::Identity)?;
    let steepest = alpha.to_vec()?.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    let sizes = Tensor::from_vec(&Device::cpu(), &[n, o], sizes.to_vec()?.into_iter().map(|s| s * steepest).collect())?;
    let what = |name: &str| format!("{name} of {shape:?} in {splits}");
    check(&what("y"), &y, i + 1, &exact.y, &sizes, None)?;
    let Saved::Prelu { z: exact } = exact.saved else { return Err("PReLU saves z".into()) };
    check(&what("z"), &z, i + 1, &exact, &sizes, None)
}

/// `dx` and `dw` as products of the shape: the same kernels but for how the operands lie.
fn sums(device: &Device, shape: Shape, splits: u32, seed: u64) -> Outcome {
    let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(|size| size as usize);
    let beta = 0.5;
    let right = normal_tensor::<f32>(device, 50 + seed, &[depth, columns]);
    let old = normal_tensor::<f32>(device, 60 + seed, &[rows, columns]);
    for transposed in [false, true] {
        let left_shape = if transposed { [depth, rows] } else { [rows, depth] };
        let left = normal_tensor::<f32>(device, 40 + seed, &left_shape);
        let mut out = old.clone();
        let mut parts = Tensor::<f32>::empty(device, &[splits as usize, rows, columns])?;
        let (target, beta_of_product) = if splits == 1 { (&mut out, beta) } else { (&mut parts, 0.0) };
        let target = target.gpu_mut::<f32>(OP, "out")?;
        let (dz, other) = (buffer(&left)?, buffer(&right)?);
        // SAFETY: whole tensors of the shapes that the kernels ask for, and a grid that covers the product.
        unsafe {
            if transposed {
                let kernel = DenseDwF32T128 { dz, x: other, dw: target, shape, beta: beta_of_product };
                gpu(device).launch(dims(shape, splits), kernel)?;
            } else {
                let kernel = DenseDxF32T128 { dz, w: other, dx: target, shape, beta: beta_of_product };
                gpu(device).launch(dims(shape, splits), kernel)?;
            }
        }
        if splits > 1 {
            let (parts, out, activation) = (buffer(&parts)?, out.gpu_mut::<f32>(OP, "out")?, IDENTITY);
            let kernel = DenseFinishF32 { parts, out, z: None, b: None, alpha: None, shape, splits, activation, beta };
            let grid = [tiles(rows, FINISH_ROWS), tiles(columns, FINISH_COLUMNS), 1];
            // SAFETY: as above; there are as many parts as splits.
            unsafe { gpu(device).launch(LaunchDims::new(grid, FINISH_BLOCK), kernel)? };
        }

        let exact = |f: fn(f64) -> f64| -> Result<Tensor<f64>, Failed> {
            let (left, right) = (wide(&left, f)?, wide(&right, f)?);
            let mut sums = Tensor::zeros(&Device::cpu(), &[rows, columns])?;
            let (left, right, into) = (left.host()?, right.host()?, sums.host_mut()?);
            for (at, sum) in into.iter_mut().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let left = |k: usize| if transposed { left[k * rows + row] } else { left[row * depth + k] };
                *sum = (0..depth).map(|k| left(k) * right[k * columns + column]).sum();
            }
            Ok(sums)
        };
        let name = if transposed { "dw" } else { "dx" };
        check(
            &format!("{name} of {shape:?} in {splits}"),
            &out,
            depth + 1,
            &exact(same)?,
            &exact(f64::abs)?,
            Some((&old, beta.into())),
        )?;
    }
    Ok(())
}
