//! f32 on Hopper by FFMA of bulk copies, which no emulated grid runs: every edge of a tile, tiles taken whole and shared, bit for bit with
//! inputs whose products and sums are exact, NaN around the result; the layer beside the CPU's; the same bits each time.

use cuda_std::launch::{Launch, LaunchDims};
use ferrolayer::ops::dense::Precision;
use kernels::dense::ffma::{
    BLOCK, COLUMNS, DEPTH, DenseFfma, DenseFinishFfma, LANE_ROWS, PIECE, ROWS, SUMS, Work, operand_box, shared_bytes,
};
use kernels::dense::{IDENTITY, PRELU_EACH};

use super::launches::{OP, buffer, gpu};
use super::tf32::{layer, whole};
use super::*;

/// Elements of NaN before and after the result.
const GUARD: usize = 4096;

/// A product: its sizes, tiles that are taken whole, and by how many blocks.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: [usize; 3],
    alone: u32,
    blocks: u32,
}

impl Case {
    fn work(self) -> (Work, u32) {
        let [rows, columns, depth] = self.sizes.map(|size| size as u32);
        let shared = rows.div_ceil(ROWS) * columns.div_ceil(COLUMNS) - self.alone;
        let slices = shared * depth.div_ceil(DEPTH);
        let (share, more) = (slices / self.blocks, slices % self.blocks);
        (Work { rows, columns, depth, alone: self.alone, share, more }, shared)
    }

    /// `[depth, across]` of whole numbers in rows of whole pieces, with NaN at their ends.
    fn operand(self, device: &Device, across: usize, most: usize) -> Result<(Vec<f32>, Tensor<f32>), Failed> {
        let (depth, length) = (self.sizes[2], across.next_multiple_of(PIECE as usize));
        let values = whole(&Device::cpu(), &[depth, across], most)?.to_vec()?;
        let rows = values.chunks(across).flat_map(|row| {
            let ends = std::iter::repeat_n(f32::NAN, length - across);
            row.iter().copied().chain(ends)
        });
        let padded = rows.collect();
        Ok((values, Tensor::from_vec(device, &[depth, length], padded)?))
    }
}

/// The product with a bias, slopes and `z`, or with half of what was there; `PLAIN`, with nothing of that.
fn check<const PLAIN: bool>(device: &Device, case: Case, beta: f32) -> Outcome
where
    for<'a> DenseFfma<'a, PLAIN>: Launch,
{
    let (gpu, [rows, columns, depth]) = (gpu(device), case.sizes);
    let (a_values, a) = case.operand(device, rows, 1000)?;
    let (b_values, b) = case.operand(device, columns, 3)?;
    let (work, shared) = case.work();
    let old = whole(&Device::cpu(), &[rows * columns], 4)?.to_vec()?;
    let guard = || std::iter::repeat_n(f32::NAN, GUARD);
    let inside = old.iter().map(|&old| if beta == 0.0 { f32::NAN } else { old });
    let all: Vec<f32> = guard().chain(inside).chain(guard()).collect();
    let mut out = Tensor::from_vec(device, &[all.len()], all)?;
    let mut z = Tensor::full(device, &[rows, columns], f32::NAN)?;
    let mut pieces = Tensor::full(device, &[2 * case.blocks as usize, SUMS as usize], f32::NAN)?;
    let bias = whole(device, &[columns], 2)?;
    let slopes = (0..columns).map(|o| if o % 3 == 0 { -0.5f32 } else { 0.25 }).collect();
    let alpha = Tensor::from_vec(device, &[columns], slopes)?;
    let has_more = !PLAIN && beta == 0.0;
    let activation = if has_more { PRELU_EACH } else { IDENTITY };
    {
        let (_, into) = out.gpu_mut::<f32>(OP, "out")?.as_slice_mut().split_at(GUARD);
        let (mut into, _) = into.split_at(rows * columns);
        let map = |matrix: &Tensor<f32>, side| {
            let sizes = [0, 1].map(|at| matrix.shape()[at] as u32);
            gpu.tensor_map(buffer(matrix).expect("of this GPU"), sizes, operand_box(side))
        };
        let (a_map, b_map) = (map(&a, ROWS)?, map(&b, COLUMNS)?);
        let kernel = DenseFfma::<PLAIN> {
            a: buffer(&a)?,
            b: buffer(&b)?,
            out: &mut into,
            z: if has_more { Some(z.gpu_mut::<f32>(OP, "z")?) } else { None },
            bias: if has_more { Some(buffer(&bias)?) } else { None },
            alpha: if has_more { Some(buffer(&alpha)?) } else { None },
            pieces: if shared > 0 { Some(pieces.gpu_mut::<f32>(OP, "pieces")?) } else { None },
            work,
            activation,
            beta,
            a_map,
            b_map,
        };
        // SAFETY: matrices of the shapes that the kernel asks for, their maps, and room for all pieces.
        unsafe { gpu.launch(LaunchDims::new(case.blocks, BLOCK).with_shared(shared_bytes()), kernel)? };
        if shared > 0 {
            let kernel = DenseFinishFfma {
                pieces: buffer(&pieces)?,
                out: &mut into,
                z: if has_more { Some(z.gpu_mut::<f32>(OP, "z")?) } else { None },
                bias: if has_more { Some(buffer(&bias)?) } else { None },
                alpha: if has_more { Some(buffer(&alpha)?) } else { None },
                work,
                blocks: case.blocks,
                activation,
                beta,
            };
            // SAFETY: as above; the grid is of the shared tiles.
            unsafe { gpu.launch(LaunchDims::new([shared, LANE_ROWS, 1], BLOCK), kernel)? };
        }
    }
    let all = out.to_vec()?;
    let (before, rest) = all.split_at(GUARD);
    let (got, after) = rest.split_at(rows * columns);
    if !before.iter().chain(after).all(|v| v.is_nan()) {
        return Err(format!("{case:?}: something was written beside the result").into());
    }
    let (z, bias, alpha) = (z.to_vec()?, bias.to_vec()?, alpha.to_vec()?);
    for (at, &got) in got.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let sum: f32 = (0..depth).map(|k| a_values[k * rows + row] * b_values[k * columns + column]).sum();
        let expected = if has_more {
            let before = sum + bias[column];
            if z[at] != before {
                return Err(format!("{case:?}: z, element {at} is {}, expected {before}", z[at]).into());
            }
            if before > 0.0 { before } else { alpha[column] * before }
        } else if beta != 0.0 {
            sum + beta * old[at]
        } else {
            sum
        };
        if got != expected {
            return Err(format!("{case:?}: element {at} is {got}, expected {expected}").into());
        }
    }
    Ok(())
}

/// At and around the edges of a tile and of a slice, of the ring, and of shares: of less than a tile, of more, and of one slice.
pub fn exact(device: &Device) -> Outcome {
    let (rows, columns, slice) = (ROWS as usize, COLUMNS as usize, DEPTH as usize);
    for (sizes, alone, blocks) in [
        ([1, 1, 1], 1, 1),
        ([1, 3, 5], 0, 1),
        ([rows, columns, slice], 1, 1),
        ([rows + 1, columns + 5, slice + 1], 4, 3),
        ([rows - 1, columns - 1, 9 * slice - 1], 0, 4),
        ([rows + 3, columns + 2, 13 * slice], 0, 7),
        ([2 * rows + 5, columns, 6 * slice + 3], 2, 2),
        ([5 * rows + 1, 2 * columns + 6, 2 * slice], 6, 6),
        ([3 * rows, 3 * columns + 7, 5 * slice], 4, 4),
        ([260, 300, 40], 0, 8),
    ] {
        let case = Case { sizes, alone, blocks };
        check::<false>(device, case, 0.0)?;
        check::<false>(device, case, 0.5)?;
        let [rows, columns, depth] = sizes;
        let case = Case { sizes: [rows, columns.next_multiple_of(PIECE as usize), depth], ..case };
        if case.work().0.columns.div_ceil(COLUMNS) == (columns as u32).div_ceil(COLUMNS) {
            check::<true>(device, case, 0.0)?;
        }
    }
    Ok(())
}

/// Sizes of which some product is cut up for these kernels.
const LAYERS: [[usize; 3]; 3] = [[1100, 1500, 1300], [1536, 1537, 1536], [130, 4100, 3004]];

/// A layer of whole numbers, and the CPU's.
pub fn layer_is_exact(device: &Device) -> Outcome {
    for [n, i, o] in LAYERS {
        let run = |device: &Device| -> Result<[Tensor<f32>; 4], Failed> {
            let (x, w) = (whole(device, &[n, i], 9)?, whole(device, &[o, i], 7)?);
            let (dy, b) = (whole(device, &[n, o], 5)?, whole(device, &[o], 3)?);
            layer(Precision::F32, [&x, &w, &dy], &b)
        };
        for ((name, got), expected) in ["y", "dx", "dw", "db"].into_iter().zip(run(device)?).zip(run(&Device::cpu())?) {
            if got.to_vec()? != expected.to_vec()? {
                return Err(format!("{name} of {n}x{i}x{o} is not the CPU's").into());
            }
        }
    }
    Ok(())
}

/// The same bits each time.
pub fn repeats(device: &Device) -> Outcome {
    let (x, w) = (normal_tensor::<f32>(device, 1, &[1100, 1500]), normal_tensor(device, 2, &[1300, 1500]));
    let run = || dense::forward_inference_in(Precision::F32, &x, &w, None, Activation::Identity);
    let first = run()?;
    for _ in 0..500 {
        assert_same_bits("y again", &run()?, &first)?;
    }
    Ok(())
}
