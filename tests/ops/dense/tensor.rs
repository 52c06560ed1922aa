//! The kernels for tensor cores: each tile bit for bit with inputs whose products and sums are exact, and the op at sizes
//! around tiles.

use cuda_std::arch::sm_80::Half;
use cuda_std::launch::{Launch, LaunchDims};
use kernels::dense::mma::{self, PIECE};
use kernels::dense::{DenseDwMma, DenseDxMma, DenseFinish, DenseForwardMma, PRELU_EACH, Shape};

use super::launches::{Forward, OP, buffer, finish, gpu};
use super::*;

/// Rows, columns and depth, and how many parts of the depth: a part of a tile, tiles and a remainder each way, a depth that
/// ends within a slice, and parts of which the last is short; for 64, more rows of tiles than one group has.
fn shapes(tile: u32) -> &'static [([usize; 3], u32)] {
    match tile {
        64 => &[([1, 8, 8], 1), ([70, 72, 40], 1), ([67, 136, 104], 2), ([64, 64, 128], 1), ([1100, 72, 8], 1)],
        128 => &[([130, 136, 40], 1), ([129, 264, 104], 2), ([16, 16, 328], 1)],
        _ => &[([3, 264, 32], 1), ([136, 520, 168], 2), ([16, 16, 328], 1)],
    }
}

/// All three products, by tiles of this name.
pub fn exact<T: Real<Compute = f32> + Half, const TILE: u32>(device: &Device) -> Outcome
where
    for<'a> DenseForwardMma<'a, T, TILE>: Launch,
    for<'a> DenseDxMma<'a, T, TILE>: Launch,
    for<'a> DenseDwMma<'a, T, TILE>: Launch,
    for<'a> DenseFinish<'a, T>: Launch,
{
    let piece = PIECE as usize;
    for &([rows, columns, depth], splits) in shapes(TILE) {
        // Only what is innermost of an operand has to be whole pieces.
        forward::<T, TILE>(device, [rows, columns, depth], splits)?;
        forward::<T, TILE>(device, [rows, columns - 3, depth], splits)?;
        gradient::<T, TILE>(device, [rows, columns, depth], splits, false)?;
        gradient::<T, TILE>(device, [rows.next_multiple_of(piece), columns, depth - 3], splits, true)?;
    }
    Ok(())
}

fn shape_of([rows, columns, depth]: [usize; 3], splits: u32, tile: u32) -> Shape {
    let depth_per_split = (depth as u32).div_ceil(splits).next_multiple_of(mma::depth(tile));
    Shape { rows: rows as u32, columns: columns as u32, depth: depth as u32, depth_per_split }
}

fn dims(shape: Shape, splits: u32, tile: u32) -> LaunchDims {
    let blocks = shape.rows.div_ceil(mma::rows(tile)) * shape.columns.div_ceil(mma::columns(tile));
    LaunchDims::new([blocks, 1, splits], mma::block(tile)).with_shared(mma::shared_bytes(tile))
}

/// Small whole numbers: products and their sums are exact in f32, in whatever order.
fn whole_numbers<E: Real>(device: &Device, shape: &[usize], salt: usize) -> Result<Tensor<E>, Failed> {
    let number = |i: usize| ((((i + 7 * salt) * 2_654_435_761) >> 7) % 13) as f64 - 6.0;
    let values = (0..shape.iter().product()).map(|i| E::of(number(i))).collect();
    Ok(Tensor::from_vec(device, shape, values)?)
}

/// `sum over k of left(row, k) right(k, column)`, row by row.
fn product(
    [rows, columns, depth]: [usize; 3],
    left: impl Fn(usize, usize) -> f64,
    right: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let sum = |row, column| (0..depth).map(|k| left(row, k) * right(k, column)).sum();
    (0..rows * columns).map(|at| sum(at / columns, at % columns)).collect()
}

fn assert_bits<E: Real>(what: &str, got: &Tensor<E>, expected: &[f64]) -> Outcome {
    for (at, (got, &expected)) in got.to_vec()?.into_iter().zip(expected).enumerate() {
        if got.f64() != E::of(expected).f64() {
            return Err(format!("{what}: element {at} is {got:?}, expected {expected}").into());
        }
    }
    Ok(())
}

fn forward<T: Real<Compute = f32> + Half, const TILE: u32>(
    device: &Device,
    sizes @ [n, o, i]: [usize; 3],
    splits: u32,
) -> Outcome
where
    for<'a> DenseForwardMma<'a, T, TILE>: Launch,
    for<'a> DenseFinish<'a, T>: Launch,
{
    let shape = shape_of(sizes, splits, TILE);
    let (x, w) = (whole_numbers::<T>(device, &[n, i], 1)?, whole_numbers::<T>(device, &[o, i], 2)?);
    let b = whole_numbers::<T>(device, &[o], 3)?;
    let alpha = Tensor::from_vec(device, &[o], (0..o).map(|o| if o % 3 == 0 { -0.5f32 } else { 0.25 }).collect())?;
    let mut y = Tensor::full(device, &[n, o], T::of(f64::NAN))?;
    let mut z = Tensor::full(device, &[n, o], T::of(f64::NAN))?;
    let mut parts = Tensor::full(device, &[splits as usize, n, o], f32::NAN)?;
    let kernel = DenseForwardMma::<T, TILE> {
        x: buffer(&x)?,
        w: buffer(&w)?,
        y: y.gpu_mut::<T>(OP, "y")?,
        z: Some(z.gpu_mut::<T>(OP, "z")?),
        b: Some(buffer(&b)?),
        alpha: Some(buffer(&alpha)?),
        parts: if splits == 1 { None } else { Some(parts.gpu_mut::<f32>(OP, "parts")?) },
        shape,
        activation: PRELU_EACH,
    };
    // SAFETY: whole tensors of the shapes that the kernel asks for, as many parts as splits, and a grid that covers the
    // product.
    unsafe { gpu(device).launch(dims(shape, splits, TILE), kernel)? };
    let of_forward = Forward { z: &mut z, b: &b, alpha: &alpha };
    finish(device, (shape, splits), &parts, &mut y, 0.0, Some(of_forward))?;

    let (x, w, b, alpha) = (values(&x)?, values(&w)?, values(&b)?, values(&alpha)?);
    let mut exact = product(sizes, |row, k| x[row * i + k], |k, column| w[column * i + k]);
    exact.iter_mut().enumerate().for_each(|(at, z)| *z += b[at % o]);
    assert_bits(&format!("z of {shape:?} in {splits}"), &z, &exact)?;
    exact.iter_mut().enumerate().filter(|(_, z)| **z <= 0.0).for_each(|(at, z)| *z *= alpha[at % o]);
    assert_bits(&format!("y of {shape:?} in {splits}"), &y, &exact)
}

/// `dx`, or with `transposed` `dw`: the same product but for how the left operand lies.
fn gradient<T: Real + Half, const TILE: u32>(
    device: &Device,
    sizes @ [rows, columns, depth]: [usize; 3],
    splits: u32,
    transposed: bool,
) -> Outcome
where
    for<'a> DenseDxMma<'a, T, TILE>: Launch,
    for<'a> DenseDwMma<'a, T, TILE>: Launch,
    for<'a> DenseFinish<'a, T>: Launch,
{
    let (shape, beta) = (shape_of(sizes, splits, TILE), 0.5);
    let left_shape = if transposed { [depth, rows] } else { [rows, depth] };
    let left = whole_numbers::<T>(device, &left_shape, 4)?;
    let right = whole_numbers::<T>(device, &[depth, columns], 5)?;
    let old = whole_numbers::<T>(device, &[rows, columns], 6)?;
    let mut out = old.clone();
    let mut room = Tensor::full(device, &[splits as usize, rows, columns], f32::NAN)?;
    let into = out.gpu_mut::<T>(OP, "out")?;
    let (dz, other) = (buffer(&left)?, buffer(&right)?);
    let parts = if splits == 1 { None } else { Some(room.gpu_mut::<f32>(OP, "parts")? as _) };
    // SAFETY: whole tensors of the shapes that the kernels ask for, as many parts as splits, and a grid that covers the
    // product.
    unsafe {
        if transposed {
            let kernel = DenseDwMma::<T, TILE> { dz, x: other, dw: into, parts, shape, beta };
            gpu(device).launch(dims(shape, splits, TILE), kernel)?;
        } else {
            let kernel = DenseDxMma::<T, TILE> { dz, w: other, dx: into, parts, shape, beta };
            gpu(device).launch(dims(shape, splits, TILE), kernel)?;
        }
    }
    finish(device, (shape, splits), &room, &mut out, beta, None)?;

    let (left, right, old) = (values(&left)?, values(&right)?, values(&old)?);
    let of_left = |row: usize, k: usize| if transposed { left[k * rows + row] } else { left[row * depth + k] };
    let mut exact = product(sizes, of_left, |k, column| right[k * columns + column]);
    exact.iter_mut().zip(old).for_each(|(sum, old)| *sum += f64::from(beta) * old);
    let name = if transposed { "dw" } else { "dx" };
    assert_bits(&format!("{name} of {shape:?} in {splits}"), &out, &exact)
}

/// The op at sizes that go by tensor cores: one row, one slice and less, remainders of a piece each way, a depth that is
/// split; `O` that is no multiple of a piece, so that only forward does.
pub fn around_tiles<T: Real>(device: &Device) -> Outcome {
    use Kind::{Identity, PreluEach, PreluShared, Relu};
    for (seed, (sizes, kind)) in [
        ([1, 8, 8], Relu),
        ([1, 72, 200], Identity),
        ([9, 40, 72], Relu),
        ([65, 136, 24], PreluEach),
        ([70, 24, 136], Identity),
        ([8, 520, 8], Relu),
        ([520, 8, 16], Identity),
        ([5, 48, 13], PreluShared),
        ([12, 64, 13], Relu),
    ]
    .into_iter()
    .enumerate()
    {
        compare::<T>(device, sizes, kind, 200 + seed as u64)?;
    }
    Ok(())
}

pub fn random_pieces<T: Real>(device: &Device) -> Outcome {
    let kind = prop::sample::select(&Kind::ALL[..]);
    for_random(6, (1usize..80, 1usize..12, 1usize..12, kind), |(n, i, o, kind)| {
        compare::<T>(device, [n, 8 * i, 8 * o], kind, 60)
    })
}
