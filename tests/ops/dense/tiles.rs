//! The kernels of f32 arithmetic by each of their tiles: at sizes that the emulated grid can run the op would choose the smallest.

use cuda_std::element::Storage;
use cuda_std::launch::{Launch, LaunchDims};
use ferrolayer::device::tiles;
use kernels::dense::{DEPTH, DenseDw, DenseDx, DenseFinish, DenseForward, IDENTITY, PRELU_EACH, Shape, block};

use super::launches::{Forward, OP, buffer, finish, gpu};
use super::tf32::whole;
use super::*;

/// More than a tile each way, with rows of a multiple of four elements and not, whole and split with a short last part.
pub fn match_f64<T: Real<Compute = f32> + Storage, const SIDE: u32>(device: &Device) -> Outcome
where
    for<'a> DenseForward<'a, T, SIDE>: Launch,
    for<'a> DenseDx<'a, T, SIDE>: Launch,
    for<'a> DenseDw<'a, T, SIDE>: Launch,
    for<'a> DenseFinish<'a, T>: Launch,
{
    for (seed, (rows, columns, depth, splits)) in
        [(2, 5, 19, 1), (1, 8, 24, 2), (3, 72, 17, 2), (4, 4, 131, 1), (4, 4, 150, 2)].into_iter().enumerate()
    {
        let (rows, columns) = (SIDE as usize + rows, SIDE as usize + columns);
        let depth_per_split = u32::try_from(depth)?.div_ceil(splits).next_multiple_of(DEPTH);
        let shape = Shape { rows: rows as u32, columns: columns as u32, depth: depth as u32, depth_per_split };
        forward::<T, SIDE>(device, shape, splits, seed as u64)?;
        sums::<T, SIDE>(device, shape, splits, seed as u64)?;
    }
    Ok(())
}

/// Whole numbers of f32, whose products and sums are exact, bit for bit: every remainder of the depth, of rows and columns many, at most one
/// tile more than one; whole, and split with a last part that is short.
pub fn exact<const SIDE: u32>(device: &Device) -> Outcome
where
    for<'a> DenseForward<'a, f32, SIDE>: Launch,
    for<'a> DenseDx<'a, f32, SIDE>: Launch,
    for<'a> DenseDw<'a, f32, SIDE>: Launch,
{
    // The slices of small tiles are two eights deep.
    for depth in 1..=4 * DEPTH + 1 {
        let across = |step: u32| 1 + (depth * step) % (SIDE + 9);
        let splits = 1 + depth % 3;
        let depth_per_split = depth.div_ceil(splits).next_multiple_of(DEPTH);
        let shape = Shape { rows: across(7), columns: across(13), depth, depth_per_split };
        let splits = depth.div_ceil(depth_per_split);
        for layout in [Layout::Forward, Layout::Dx, Layout::Dw] {
            exact_as::<SIDE>(device, shape, splits, layout)?;
        }
    }
    Ok(())
}

/// Which operands have their depth innermost: both, the left one, none.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Forward,
    Dx,
    Dw,
}

fn exact_as<const SIDE: u32>(device: &Device, shape: Shape, splits: u32, layout: Layout) -> Outcome
where
    for<'a> DenseForward<'a, f32, SIDE>: Launch,
    for<'a> DenseDx<'a, f32, SIDE>: Launch,
    for<'a> DenseDw<'a, f32, SIDE>: Launch,
{
    let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(|size| size as usize);
    let a = whole(device, &if layout == Layout::Dw { [depth, rows] } else { [rows, depth] }, 1000)?;
    let b = whole(device, &if layout == Layout::Forward { [columns, depth] } else { [depth, columns] }, 3)?;
    let mut out = Tensor::full(device, &[rows, columns], f32::NAN)?;
    let mut room = Tensor::full(device, &[splits as usize, rows, columns], f32::NAN)?;
    {
        let parts = if splits == 1 { None } else { Some(room.gpu_mut::<f32>(OP, "parts")? as _) };
        let (a, b, into) = (buffer(&a)?, buffer(&b)?, out.gpu_mut::<f32>(OP, "out")?);
        let (dims, gpu, refused) = (dims::<SIDE>(shape, splits), gpu(device), None);
        // SAFETY: whole tensors of the shapes that the kernels ask for, as many parts as splits, and a grid that covers the product.
        unsafe {
            match layout {
                Layout::Forward => {
                    let (z, b_of_columns, alpha, activation) = (None, None, None, IDENTITY);
                    let kernel = DenseForward::<f32, SIDE> {
                        x: a,
                        w: b,
                        y: into,
                        z,
                        b: b_of_columns,
                        alpha,
                        parts,
                        refused,
                        shape,
                        activation,
                    };
                    gpu.launch(dims, kernel)?;
                }
                Layout::Dx => {
                    let kernel = DenseDx::<f32, SIDE> { dz: a, w: b, dx: into, parts, refused, shape, beta: 0.0 };
                    gpu.launch(dims, kernel)?;
                }
                Layout::Dw => {
                    let kernel = DenseDw::<f32, SIDE> { dz: a, x: b, dw: into, parts, refused, shape, beta: 0.0 };
                    gpu.launch(dims, kernel)?;
                }
            }
        }
    }
    finish(device, (shape, splits), &room, &mut out, 0.0, None)?;
    let (a, b, out) = (a.to_vec()?, b.to_vec()?, out.to_vec()?);
    for (at, &sum) in out.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let left = |k: usize| if layout == Layout::Dw { a[k * rows + row] } else { a[row * depth + k] };
        let right = |k: usize| if layout == Layout::Forward { b[column * depth + k] } else { b[k * columns + column] };
        let expected: f32 = (0..depth).map(|k| left(k) * right(k)).sum();
        if sum.to_bits() != (expected + 0.0).to_bits() {
            let what = format!("{layout:?} of {shape:?} in {splits} by tiles of {SIDE}");
            return Err(format!("{what}: {sum} at {row}, {column}, not {expected}").into());
        }
    }
    Ok(())
}

fn dims<const SIDE: u32>(shape: Shape, splits: u32) -> LaunchDims {
    LaunchDims::new([tiles(shape.rows as usize, SIDE), tiles(shape.columns as usize, SIDE), splits], block(SIDE))
}

fn forward<T: Real<Compute = f32> + Storage, const SIDE: u32>(
    device: &Device,
    shape: Shape,
    splits: u32,
    seed: u64,
) -> Outcome
where
    for<'a> DenseForward<'a, T, SIDE>: Launch,
    for<'a> DenseFinish<'a, T>: Launch,
{
    let [n, o, i] = [shape.rows, shape.columns, shape.depth].map(|size| size as usize);
    let draw = |salt, shape: &[usize]| normal_tensor::<T>(device, salt + seed, shape);
    let (x, w, b) = (draw(0, &[n, i]), draw(10, &[o, i]), draw(20, &[o]));
    let alpha = normal_tensor::<f32>(device, 30 + seed, &[o]);
    let (mut y, mut z) = (Tensor::<T>::empty(device, &[n, o])?, Tensor::<T>::empty(device, &[n, o])?);
    let mut parts = Tensor::<f32>::empty(device, &[splits as usize, n, o])?;
    let kernel = DenseForward::<T, SIDE> {
        x: buffer(&x)?,
        w: buffer(&w)?,
        y: y.gpu_mut::<T>(OP, "y")?,
        z: Some(z.gpu_mut::<T>(OP, "z")?),
        b: Some(buffer(&b)?),
        alpha: Some(buffer(&alpha)?),
        parts: if splits == 1 { None } else { Some(parts.gpu_mut::<f32>(OP, "parts")?) },
        refused: None,
        shape,
        activation: PRELU_EACH,
    };
    // SAFETY: whole tensors of the shapes that the kernel asks for, as many parts as splits, and a grid that covers the
    // product.
    unsafe { gpu(device).launch(dims::<SIDE>(shape, splits), kernel)? };
    let of_forward = Forward { z: &mut z, b: &b, alpha: &alpha };
    finish(device, (shape, splits), &parts, &mut y, 0.0, Some(of_forward))?;

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
fn sums<T: Real + Storage, const SIDE: u32>(device: &Device, shape: Shape, splits: u32, seed: u64) -> Outcome
where
    for<'a> DenseDx<'a, T, SIDE>: Launch,
    for<'a> DenseDw<'a, T, SIDE>: Launch,
    for<'a> DenseFinish<'a, T>: Launch,
{
    let [rows, columns, depth] = [shape.rows, shape.columns, shape.depth].map(|size| size as usize);
    let beta = 0.5;
    let right = normal_tensor::<T>(device, 50 + seed, &[depth, columns]);
    let old = normal_tensor::<T>(device, 60 + seed, &[rows, columns]);
    for transposed in [false, true] {
        let left_shape = if transposed { [depth, rows] } else { [rows, depth] };
        let left = normal_tensor::<T>(device, 40 + seed, &left_shape);
        let mut out = old.clone();
        let mut room = Tensor::<f32>::empty(device, &[splits as usize, rows, columns])?;
        let into = out.gpu_mut::<T>(OP, "out")?;
        let (dz, other) = (buffer(&left)?, buffer(&right)?);
        let parts = if splits == 1 { None } else { Some(room.gpu_mut::<f32>(OP, "parts")? as _) };
        // SAFETY: whole tensors of the shapes that the kernels ask for, as many parts as splits, and a grid that covers
        // the product.
        unsafe {
            if transposed {
                let kernel = DenseDw::<T, SIDE> { dz, x: other, dw: into, parts, refused: None, shape, beta };
                gpu(device).launch(dims::<SIDE>(shape, splits), kernel)?;
            } else {
                let kernel = DenseDx::<T, SIDE> { dz, w: other, dx: into, parts, refused: None, shape, beta };
                gpu(device).launch(dims::<SIDE>(shape, splits), kernel)?;
            }
        }
        finish(device, (shape, splits), &room, &mut out, beta, None)?;

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
