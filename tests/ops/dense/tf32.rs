//! f32 as tf32: what turning makes of a matrix, on any GPU; the kernels of Hopper's tensor cores, which no emulated grid runs, at every
//! edge of a tile, bit for bit; the layer against f64 within what 11 digits allow; and where f32 is multiplied otherwise.

use cuda_std::launch::{Launch, LaunchDims};
use cuda_std::tensor_map::TensorMap;
use ferrolayer::device::GpuBuffer;
use ferrolayer::ops::dense::Precision;
use kernels::dense::tf32::{BLOCK, BLOCKS, DEPTH, DenseTf32, DenseTf32Turn, DenseTf32Turning, PIECE, operand_box};
use kernels::dense::wgmma::{self, ROWS, edge};
use kernels::dense::{IDENTITY, Shape, Sizes};

use super::launches::{OP, buffer, finish, gpu};
use super::*;

/// A matrix turned.
fn turn(gpu: &Gpu, matrix: &Tensor<f32>) -> Result<(GpuBuffer<f32>, Sizes), Failed> {
    let sizes = Sizes { rows: matrix.shape()[0] as u32, columns: matrix.shape()[1] as u32 };
    let mut turned = gpu.allocate::<f32>(sizes.room() as usize)?;
    let kernel = DenseTf32Turn { matrix: buffer(matrix)?, turned: &mut turned, sizes };
    // SAFETY: a whole tensor, and room for it.
    unsafe { gpu.launch(LaunchDims::new(BLOCKS, BLOCK), kernel)? };
    Ok((turned, sizes))
}

/// Columns are rows, bit for bit, with zeros at their ends.
pub fn turned_is_the_matrix(device: &Device) -> Outcome {
    for [rows, columns] in [[65, 72], [3, 41], [1, 1], [70, 260], [32, 32], [33, 31]] {
        let mut matrix = normal::<f32>(5, rows * columns);
        matrix[0] = f32::INFINITY;
        matrix[rows * columns - 1] = f32::NAN;
        let (turned, sizes) = turn(gpu(device), &Tensor::from_vec(device, &[rows, columns], matrix.clone())?)?;
        let [_, length] = sizes.turned();
        for (at, got) in turned.download()?.into_iter().enumerate() {
            let (column, row) = (at / length as usize, at % length as usize);
            let expected = if row < rows { matrix[row * columns + column] } else { 0.0 };
            if got.to_bits() != expected.to_bits() {
                return Err(format!("{rows}x{columns}: {got} at {row}, {column}, expected {expected}").into());
            }
        }
    }
    Ok(())
}

/// Whole numbers of at most 11 digits.
pub fn whole(device: &Device, shape: &[usize], most: usize) -> Result<Tensor<f32>, Failed> {
    let number = |i: usize| (((i * 2_654_435_761) >> 7) % (2 * most + 1)) as f32 - most as f32;
    Ok(Tensor::from_vec(device, shape, (0..shape.iter().product()).map(number).collect())?)
}

/// Which operand has its depth outermost.
#[derive(Clone, Copy, PartialEq)]
enum Lies {
    Straight,
    ATurned,
    BTurned,
    BothTurned,
}

impl Lies {
    /// Whether `a` has its depth outermost, and whether `b` has.
    fn turned(self) -> [bool; 2] {
        [matches!(self, Self::ATurned | Self::BothTurned), matches!(self, Self::BTurned | Self::BothTurned)]
    }
}

/// A product of whole numbers: `a: [rows, depth]`, `b: [columns, depth]`, or the other way.
struct Case {
    shape: Shape,
    splits: u32,
    a: Tensor<f32>,
    b: Tensor<f32>,
    lies: Lies,
    out: Tensor<f32>,
    parts: Tensor<f32>,
}

impl Case {
    fn new(device: &Device, [rows, columns, depth]: [usize; 3], splits: u32, lies: Lies) -> Result<Self, Failed> {
        let depth_per_split = (depth as u32).div_ceil(splits).next_multiple_of(DEPTH);
        let splits = (depth as u32).div_ceil(depth_per_split);
        let [a_turned, b_turned] = lies.turned();
        let a = if a_turned { [depth, rows] } else { [rows, depth] };
        let b = if b_turned { [depth, columns] } else { [columns, depth] };
        Ok(Self {
            shape: Shape { rows: rows as u32, columns: columns as u32, depth: depth as u32, depth_per_split },
            splits,
            a: whole(device, &a, 1000)?,
            b: whole(device, &b, 3)?,
            lies,
            out: Tensor::full(device, &[rows, columns], f32::NAN)?,
            parts: Tensor::full(device, &[splits as usize, rows, columns], f32::NAN)?,
        })
    }

    fn map(&self, device: &Device, matrix: &Tensor<f32>, of_box: [u32; 2]) -> Result<TensorMap, Failed> {
        let sizes = [0, 1].map(|at| matrix.shape()[at] as u32);
        Ok(gpu(device).tensor_map_as_tf32(buffer(matrix)?, sizes, of_box)?)
    }

    /// For whole boxes of a side, and for the matrix's edge.
    fn maps(&self, device: &Device, matrix: &Tensor<f32>, side: u32) -> Result<[TensorMap; 2], Failed> {
        let map = |side| self.map(device, matrix, operand_box(side, true, 1));
        Ok([map(side)?, map(edge(matrix.shape()[0] as u32, side))?])
    }

    /// Adds parts, if there are any, and compares all elements.
    fn check(mut self, device: &Device) -> Outcome {
        let Shape { rows, columns, depth, .. } = self.shape;
        let (rows, columns, depth) = (rows as usize, columns as usize, depth as usize);
        finish(device, (self.shape, self.splits), &self.parts, &mut self.out, 0.0, None)?;
        let (a, b) = (self.a.to_vec()?, self.b.to_vec()?);
        let [a_turned, b_turned] = self.lies.turned();
        for (at, got) in self.out.to_vec()?.into_iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let of_a = |k: usize| if a_turned { a[k * rows + row] } else { a[row * depth + k] };
            let of_b = |k: usize| if b_turned { b[k * columns + column] } else { b[column * depth + k] };
            let expected: f32 = (0..depth).map(|k| of_a(k) * of_b(k)).sum();
            if got != expected {
                let what = format!("{:?} in {}", self.shape, self.splits);
                return Err(format!("{what}: element {at} is {got}, expected {expected}").into());
            }
        }
        Ok(())
    }
}

/// At and around the edges of a tile, whose last dimension that results have need not be whole pieces where `odd`.
fn around(rows: usize, columns: usize, odd: bool) -> Vec<[usize; 3]> {
    let (slice, piece, one) = (DEPTH as usize, PIECE as usize, if odd { 1 } else { PIECE as usize });
    vec![
        [one, piece, piece],
        [rows, columns, slice],
        [rows + one, columns + piece, slice + piece],
        [rows - one, columns - piece, 9 * slice - piece],
        [2 * rows + 5 * one, columns + 8 * piece, 13 * slice],
        [5 * rows, 3 * columns + piece, 2 * slice],
    ]
}

/// [`dense_tf32`](kernels::dense::tf32::dense_tf32) by tiles of so many columns.
pub fn exact<const COLUMNS: u32, const PARTS: u32>(device: &Device) -> Outcome
where
    for<'a> DenseTf32<'a, COLUMNS, PARTS>: Launch,
{
    for sizes in around(ROWS as usize, COLUMNS as usize, false) {
        // Parts, and blocks one below the other that share what they copy of the columns.
        for (splits, down) in if PARTS > 1 { vec![(1, 1)] } else { vec![(1, 1), (3, 1), (1, 2), (3, 2)] } {
            let mut case = Case::new(device, sizes, splits, Lies::Straight)?;
            if PARTS > 1 {
                case.shape.depth_per_split = case.shape.depth.div_ceil(PARTS).next_multiple_of(DEPTH);
            }
            let [a_map, a_edge] = case.maps(device, &case.a, ROWS)?;
            let [b_map, b_edge] = case.maps(device, &case.b, COLUMNS / down)?;
            let (shape, splits) = (case.shape, case.splits);
            let tiles = shape.rows.div_ceil(ROWS * down) * shape.columns.div_ceil(COLUMNS) * splits;
            // Fewer blocks than tiles where a block may take several.
            let clusters = if PARTS > 1 { tiles } else { tiles.div_ceil(2) };
            let cluster = PARTS.max(down);
            let dims = LaunchDims::new(clusters * cluster, wgmma::BLOCK)
                .with_cluster(cluster)
                .with_shared(wgmma::shared_bytes(COLUMNS, 2, PARTS));
            let kernel = DenseTf32::<COLUMNS, PARTS> {
                a: buffer(&case.a)?,
                b: buffer(&case.b)?,
                out: case.out.gpu_mut::<f32>(OP, "out")?,
                z: None,
                bias: None,
                alpha: None,
                parts: if splits == 1 { None } else { Some(case.parts.gpu_mut::<f32>(OP, "parts")?) },
                shape,
                splits,
                activation: IDENTITY,
                a_map,
                a_edge,
                b_map,
                b_edge,
            };
            // SAFETY: matrices of the shapes that the kernel asks for, their maps, and as many parts as splits.
            unsafe { gpu(device).launch(dims, kernel)? };
            case.check(device)?;
        }
    }
    Ok(())
}

/// [`dense_tf32_turning`](kernels::dense::tf32::dense_tf32_turning) by tiles of such a side, with the result one way or the other, of one
/// operand that has its depth outermost, or of two.
pub fn turning_is_exact<const SIDE: u32, const TURNED: bool, const BOTH: bool>(device: &Device) -> Outcome
where
    for<'a> DenseTf32Turning<'a, SIDE, TURNED, BOTH>: Launch,
{
    let [rows, columns] = if TURNED { [SIDE, ROWS] } else { [ROWS, SIDE] };
    let lies = match (TURNED, BOTH) {
        (_, true) => Lies::BothTurned,
        (true, false) => Lies::BTurned,
        (false, false) => Lies::ATurned,
    };
    let mut shapes = around(rows as usize, columns as usize, TURNED && !BOTH);
    if BOTH {
        shapes.extend([[132, 260, 35], [140, 68, 333]]);
    }
    for sizes in shapes {
        for (splits, sharing) in [(1, 1), (3, 1), (1, 2), (3, 2)] {
            let mut case = Case::new(device, sizes, splits, lies)?;
            let (left, right) = if TURNED { (&case.b, &case.a) } else { (&case.a, &case.b) };
            let a_map = case.map(device, left, operand_box(ROWS, false, 1))?;
            let [b_map, b_edge] = if BOTH {
                [case.map(device, right, operand_box(SIDE, false, sharing))?; 2]
            } else {
                case.maps(device, right, SIDE / sharing)?
            };
            let (Shape { rows, columns, .. }, splits) = (case.shape, case.splits);
            let [down, across] = if TURNED { [columns, rows] } else { [rows, columns] };
            let clusters = (down.div_ceil(ROWS * sharing) * across.div_ceil(SIDE) * splits).div_ceil(2);
            let dims = LaunchDims::new(clusters * sharing, wgmma::BLOCK)
                .with_cluster(sharing)
                .with_shared(wgmma::shared_bytes(SIDE, 2, 1));
            let kernel = DenseTf32Turning::<SIDE, TURNED, BOTH> {
                a: buffer(left)?,
                b: buffer(right)?,
                out: case.out.gpu_mut::<f32>(OP, "out")?,
                beta: 0.0,
                parts: if splits == 1 { None } else { Some(case.parts.gpu_mut::<f32>(OP, "parts")?) },
                shape: Shape { rows: down, columns: across, ..case.shape },
                splits,
                a_map,
                b_map,
                b_edge,
            };
            // SAFETY: as in `exact`.
            unsafe { gpu(device).launch(dims, kernel)? };
            case.check(device)?;
        }
    }
    Ok(())
}

/// Everything that a layer with ReLU makes, with what was in the gradients.
pub fn layer(precision: Precision, [x, w, dy]: [&Tensor<f32>; 3], b: &Tensor<f32>) -> Result<[Tensor<f32>; 4], Failed> {
    let activation = Activation::Relu;
    let dense::Output { y, saved } = dense::forward_in(precision, x, w, Some(b), activation)?;
    let device = x.device();
    let [mut dx, mut dw] = [whole(device, x.shape(), 9)?, whole(device, w.shape(), 9)?];
    let mut db = Tensor::full(device, b.shape(), f32::NAN)?;
    let gradients = Gradients { dx: out(&mut dx, 0.5), dw: out(&mut dw, 0.5), db: out(&mut db, 0.0), dalpha: None };
    dense::backward_in(precision, x, w, activation, &saved, dy, gradients)?;
    Ok([y, dx, dw, db])
}

/// Of whole numbers the layer makes, in any shape, what the CPU does.
pub fn layer_is_exact(device: &Device) -> Outcome {
    let cpu = Device::cpu();
    let shapes =
        [[16, 4, 4], [17, 132, 260], [301, 516, 1000], [130, 1028, 64], [1000, 64, 388], [129, 2048, 2052], [18, 6, 9]];
    for [n, i, o] in shapes {
        let (x, w, dy) = (whole(&cpu, &[n, i], 9)?, whole(&cpu, &[o, i], 2)?, whole(&cpu, &[n, o], 3)?);
        let b = whole(&cpu, &[o], 5)?;
        let expected = layer(Precision::F32, [&x, &w, &dy], &b)?;
        let (x, w, dy, b) = (x.to(device)?, w.to(device)?, dy.to(device)?, b.to(device)?);
        let got = layer(Precision::Tf32, [&x, &w, &dy], &b)?;
        for ((name, got), expected) in ["y", "dx", "dw", "db"].into_iter().zip(&got).zip(&expected) {
            assert_same_values(&format!("{name} of {n}x{i}x{o}"), &got.to(&cpu)?, expected)?;
        }
    }
    Ok(())
}

/// Within what the operands' digits allow, 2⁻¹¹ of each one's magnitude, and as much again of sums.
pub fn accuracy(device: &Device) -> Outcome {
    let cpu = Device::cpu();
    let (activation, saved) = (Activation::Identity, Saved::Identity);
    for [n, i, o] in [[512, 768, 640], [130, 4096, 516]] {
        for all_positive in [false, true] {
            let draw = |seed, shape: &[usize]| -> Result<Tensor<f32>, Failed> {
                let values = normal::<f32>(seed, shape.iter().product()).into_iter();
                Ok(Tensor::from_vec(&cpu, shape, values.map(|v| if all_positive { v.abs() } else { v }).collect())?)
            };
            let (x, w, dy) = (draw(1, &[n, i])?, draw(2, &[o, i])?, draw(3, &[n, o])?);
            let all = |f| -> Result<[Tensor<f64>; 3], Failed> {
                let (x, w, dy) = (wide(&x, f)?, wide(&w, f)?, wide(&dy, f)?);
                let [mut dx, mut dw] = [Tensor::full(&cpu, &[n, i], 0.0)?, Tensor::full(&cpu, &[o, i], 0.0)?];
                let gradients = Gradients { dx: out(&mut dx, 0.0), dw: out(&mut dw, 0.0), ..Gradients::default() };
                dense::backward(&x, &w, Activation::Identity, &Saved::Identity, &dy, gradients)?;
                Ok([dense::forward_inference(&x, &w, None, Activation::Identity)?, dx, dw])
            };
            let (exact, sizes) = (all(same)?, all(f64::abs)?);
            let (x, w, dy) = (x.to(device)?, w.to(device)?, dy.to(device)?);
            let run = |precision| -> Result<[Tensor<f32>; 3], Failed> {
                let [mut dx, mut dw] = [Tensor::full(device, &[n, i], 0.0)?, Tensor::full(device, &[o, i], 0.0)?];
                let gradients = Gradients { dx: out(&mut dx, 0.0), dw: out(&mut dw, 0.0), ..Gradients::default() };
                dense::backward_in(precision, &x, &w, activation, &saved, &dy, gradients)?;
                Ok([dense::forward_inference_in(precision, &x, &w, None, activation)?, dx, dw])
            };
            let (got, f32) = (run(Precision::Tf32)?, run(Precision::F32)?);
            for (at, name) in ["y", "dx", "dw"].into_iter().enumerate() {
                let each = values(&got[at])?.into_iter().zip(exact[at].to_vec()?).zip(sizes[at].to_vec()?);
                let worst = each.map(|((got, exact), size)| (got - exact).abs() / size).fold(0.0, f64::max);
                // No larger, and not made otherwise.
                let of_f32 = values(&f32[at])?.into_iter().zip(exact[at].to_vec()?).zip(sizes[at].to_vec()?);
                let of_f32 = of_f32.map(|((got, exact), size)| (got - exact).abs() / size).fold(0.0, f64::max);
                if !(worst <= 4.0 * 2f64.powi(-11) && worst > 4.0 * of_f32) {
                    return Err(format!("{name} of {n}x{i}x{o}: error {worst:e}, of f32 arithmetic {of_f32:e}").into());
                }
            }
        }
    }
    Ok(())
}

/// What is not finite comes out as by f32 arithmetic.
pub fn passes_what_is_no_number(device: &Device) -> Outcome {
    let (n, i, o) = (140, 260, 132);
    for what in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for which in 0..3 {
            let [x, w, dy] = [0, 1, 2].map(|at| {
                let shape = [[n, i], [o, i], [n, o]][at];
                let mut values = normal::<f32>(at as u64, shape[0] * shape[1]);
                if at == which {
                    values[17 * shape[1] + 100] = what;
                }
                Tensor::from_vec(device, &shape, values)
            });
            let (x, w, dy) = (x?, w?, dy?);
            let run = |precision| -> Result<[Tensor<f32>; 3], Failed> {
                let [mut dx, mut dw] = [Tensor::full(device, &[n, i], 0.0)?, Tensor::full(device, &[o, i], 0.0)?];
                let gradients = Gradients { dx: out(&mut dx, 0.0), dw: out(&mut dw, 0.0), ..Gradients::default() };
                dense::backward_in(precision, &x, &w, Activation::Identity, &Saved::Identity, &dy, gradients)?;
                Ok([dense::forward_inference_in(precision, &x, &w, None, Activation::Identity)?, dx, dw])
            };
            for ((name, got), f32) in ["y", "dx", "dw"].into_iter().zip(run(Precision::Tf32)?).zip(run(Precision::F32)?)
            {
                for (at, (got, f32)) in got.to_vec()?.into_iter().zip(f32.to_vec()?).enumerate() {
                    if !f32.is_finite() && got.to_bits() != f32.to_bits() && !(got.is_nan() && f32.is_nan())
                        || f32.is_finite() != got.is_finite()
                    {
                        let what = format!("{name}, {what} in operand {which}");
                        return Err(format!("{what}: element {at} is {got}, of f32 arithmetic {f32}").into());
                    }
                }
            }
        }
    }
    Ok(())
}

/// The same bits each time.
pub fn repeats(device: &Device) -> Outcome {
    let of = |seed, shape: [usize; 2]| normal_tensor::<f32>(device, seed, &shape);
    let (x, w, dy, b) =
        (of(1, [700, 1500]), of(2, [1300, 1500]), of(3, [700, 1300]), normal_tensor(device, 4, &[1300]));
    let first = layer(Precision::Tf32, [&x, &w, &dy], &b)?;
    for _ in 0..100 {
        for (again, first) in layer(Precision::Tf32, [&x, &w, &dy], &b)?.iter().zip(&first) {
            assert_same_bits("again", again, first)?;
        }
    }
    Ok(())
}
