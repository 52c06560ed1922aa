//! f32 by parts: what the split makes of a matrix, on any GPU; products of parts, which Hopper alone has, at every edge of a tile,
//! against f64 beside f32's own, and where f32's own is asked for.

use cuda_std::launch::{DeviceMemory, LaunchDims, MemorySpace};
use cuda_std::tensor_map::TensorMap;
use ferrolayer::device::GpuBuffer;
use ferrolayer::ops::dense::Precision;
use kernels::dense::split::{
    BLOCK, BLOCKS, COLUMNS, DenseDwSplit, DenseDxSplit, DenseForwardSplit, DenseSplit, LIMIT, PARTS, PRODUCT_SCALE,
    shared_bytes,
};
use kernels::dense::wgmma::{self, DEPTH, ROWS, operand_box};
use kernels::dense::{IDENTITY, Shape, Sizes};

use super::launches::{OP, buffer, gpu};
use super::*;

/// The parts of a matrix, two in a word, and of each block what it refused.
pub struct Parts {
    pub words: GpuBuffer<u32>,
    sizes: Sizes,
}

impl Parts {
    pub fn room(gpu: &Gpu, [rows, columns]: [usize; 2]) -> Result<Self, Failed> {
        let sizes = Sizes { rows: rows as u32, columns: columns as u32 };
        Ok(Self { words: gpu.allocate(PARTS as usize * sizes.padded() as usize / 2)?, sizes })
    }

    /// Each part, `[padded_rows, padded_columns]`.
    fn values(&self) -> Result<Vec<Vec<f64>>, Failed> {
        let words = self.words.download()?;
        let halves = words.into_iter().flat_map(|word| [word as u16, (word >> 16) as u16]);
        let all: Vec<f64> = halves.map(|bits| bf16::from_bits(bits).to_f64()).collect();
        Ok(all.chunks(self.sizes.padded() as usize).map(<[f64]>::to_vec).collect())
    }
}

/// The words of parts as what they are.
struct Halves<'a>(&'a GpuBuffer<u32>);

// SAFETY: the buffer's memory, for as long as it is borrowed.
unsafe impl DeviceMemory<bf16> for Halves<'_> {
    fn address(&self) -> u64 {
        self.0.address()
    }
    fn len(&self) -> usize {
        2 * DeviceMemory::len(self.0)
    }
    fn space(&self) -> MemorySpace {
        DeviceMemory::space(self.0)
    }
}

/// Splits up to three matrices of these shapes.
pub fn split(gpu: &Gpu, matrices: [Option<(&Tensor<f32>, &mut Parts)>; 3]) -> Result<GpuBuffer<u32>, Failed> {
    let mut refused = gpu.allocate::<u32>(BLOCKS as usize)?;
    let mut each = matrices.into_iter().map(|matrix| match matrix {
        Some((matrix, Parts { words, sizes })) => {
            let matrix: &dyn DeviceMemory<f32> = buffer(matrix)?;
            Ok::<_, Failed>((Some(matrix), Some(words as &mut dyn DeviceMemory<u32>), *sizes))
        }
        None => Ok((None, None, Sizes::default())),
    });
    let mut next = || each.next().expect("three");
    let ((a, a_parts, a_sizes), (b, b_parts, b_sizes), (c, c_parts, c_sizes)) = (next()?, next()?, next()?);
    let (Some(a), Some(a_parts)) = (a, a_parts) else { unreachable!("the first is always there") };
    let into = &mut refused;
    let [first, second] = &mut [gpu.allocate::<u32>(1)?, gpu.allocate::<u32>(1)?];
    {
        let (first, second) = (&mut *first, &mut *second);
        let kernel =
            DenseSplit { a, b, c, a_parts, b_parts, c_parts, refused: into, first, second, a_sizes, b_sizes, c_sizes };
        // SAFETY: whole tensors, room for the parts of each, a word for each block, and one each.
        unsafe { gpu.launch(LaunchDims::new(BLOCKS, BLOCK), kernel)? };
    }
    match [first.download()?, second.download()?].concat()[..] {
        [0, 0] => Ok(refused),
        ref others => Err(format!("words of products that were not made: {others:?}").into()),
    }
}

/// Normal numbers over all of the range that has parts, zeros and subnormal ones.
fn any_magnitudes(device: &Device, seed: u64, shape: [usize; 2]) -> Result<Tensor<f32>, Failed> {
    let value = |(i, v): (usize, f32)| v.clamp(-3.9, 3.9) * 2f32.powi((i * 37 % 176) as i32 - 150);
    let values = normal::<f32>(seed, shape[0] * shape[1]).into_iter().enumerate().map(value).collect();
    Ok(Tensor::from_vec(device, &shape, values)?)
}

/// The sum of the parts is the matrix times a power of two, exactly, with zeros around it; and what has none is named.
pub fn parts_are_the_matrix(device: &Device) -> Outcome {
    let gpu = gpu(device);
    let scale = f64::from(PRODUCT_SCALE).sqrt().recip();
    let shapes = [[65, 72], [3, 41], [1, 1], [70, 260]];
    for (at, shape) in shapes.into_iter().enumerate() {
        let others = [shapes[(at + 1) % 4], shapes[(at + 2) % 4]];
        let of = |seed, shape| any_magnitudes(device, seed, shape);
        let (a, b, c) = (of(1, shape)?, of(2, others[0])?, of(3, others[1])?);
        let room = |shape| Parts::room(gpu, shape);
        let (mut pa, mut pb, mut pc) = (room(shape)?, room(others[0])?, room(others[1])?);
        let refused = split(gpu, [Some((&a, &mut pa)), Some((&b, &mut pb)), Some((&c, &mut pc))])?;
        if refused.download()? != [0; BLOCKS as usize] {
            return Err(format!("{shape:?}: refused").into());
        }
        for (matrix, parts) in [(&a, &pa), (&b, &pb), (&c, &pc)] {
            let (values, each) = (values(matrix)?, parts.values()?);
            let [_, padded] = parts.sizes.padded_each();
            let Sizes { rows, columns } = parts.sizes;
            for place in 0..each[0].len() {
                let (row, column) = (place as u32 / padded, place as u32 % padded);
                let inside = row < rows && column < columns;
                let expected = if inside { values[(row * columns + column) as usize] * scale } else { 0.0 };
                let got: f64 = each.iter().map(|part| part[place]).sum();
                if got != expected || !inside && each.iter().any(|part| part[place] != 0.0) {
                    return Err(format!("{shape:?}: {got} at {row}, {column}, expected {expected}").into());
                }
            }
        }
    }
    for what in [f32::NAN, f32::INFINITY, -LIMIT, f32::MAX] {
        for which in 0..3 {
            let matrices = [0, 1, 2].map(|at| {
                let mut values = vec![1.0f32; 70 * 33];
                values[70 * 33 - 1] = if at == which { what } else { LIMIT.next_down() };
                Tensor::from_vec(device, &[70, 33], values)
            });
            let [a, b, c] = matrices;
            let (a, b, c) = (a?, b?, c?);
            let mut room = [Parts::room(gpu, [70, 33])?, Parts::room(gpu, [70, 33])?, Parts::room(gpu, [70, 33])?];
            let [pa, pb, pc] = &mut room;
            let refused = split(gpu, [Some((&a, pa)), Some((&b, pb)), Some((&c, pc))])?.download()?;
            let all = refused.into_iter().fold(0, |all, each| all | each);
            if all != 1 << which {
                return Err(format!("{what} in matrix {which}: refused {all:#b}").into());
            }
        }
    }
    Ok(())
}

/// Where there is one way to make f32 products, all precisions are that.
pub fn same_in_either(device: &Device) -> Outcome {
    let (x, w) = (normal_tensor::<f32>(device, 1, &[70, 133]), normal_tensor(device, 2, &[65, 133]));
    let [a, b, c] = [Precision::F32, Precision::F32Split, Precision::Tf32]
        .map(|precision| dense::forward_inference_in(precision, &x, &w, None, Activation::Identity));
    let a = a?;
    assert_same_bits("y by parts", &b?, &a)?;
    assert_same_bits("y as tf32", &c?, &a)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Product {
    Forward,
    Dx,
    Dw,
}

impl Product {
    pub const ALL: [Self; 3] = [Self::Forward, Self::Dx, Self::Dw];

    /// Whether the depth of the left operand is innermost, and of the right one.
    pub fn inner(self) -> [bool; 2] {
        [self != Self::Dw, self == Self::Forward]
    }
}

/// The products' kernels by themselves, with sizes that the op makes otherwise: whole numbers whose products and sums are exact.
pub fn edges(device: &Device) -> Outcome {
    let sizes = [[1, 1, 1], [8, 8, 8], [127, 129, 63], [128, 128, 64], [129, 255, 65], [70, 9, 200], [257, 131, 330]];
    for product in Product::ALL {
        for sizes in sizes {
            for splits in [1, 2, 3] {
                edge(device, product, sizes, splits)?;
            }
        }
    }
    Ok(())
}

/// Whole numbers: the left operand, the right one, and the exact results.
pub struct Whole {
    pub a: Tensor<f32>,
    pub b: Tensor<f32>,
    exact: Vec<f32>,
}

impl Whole {
    /// Up to so much of either: 18 bits need all parts.
    pub fn new(
        device: &Device,
        product: Product,
        [rows, columns, depth]: [usize; 3],
        most: [usize; 2],
    ) -> Result<Self, Failed> {
        let number = |i: usize, most: usize| ((i * 2_654_435_761) >> 7) % (2 * most + 1);
        let whole = |len, most| (0..len).map(|i| number(i, most) as f32 - most as f32).collect::<Vec<_>>();
        let (left, right) = (whole(rows * depth, most[0]), whole(columns * depth, most[1]));
        let [a_inner, b_inner] = product.inner();
        let place =
            |across: usize, k: usize, inner, width: usize| if inner { across * depth + k } else { k * width + across };
        let exact = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            (0..depth).map(|k| left[place(row, k, a_inner, rows)] * right[place(column, k, b_inner, columns)]).sum()
        };
        let exact = (0..rows * columns).map(exact).collect();
        let lies = |across, inner| if inner { [across, depth] } else { [depth, across] };
        let a = Tensor::from_vec(device, &lies(rows, a_inner), left)?;
        let b = Tensor::from_vec(device, &lies(columns, b_inner), right)?;
        Ok(Self { a, b, exact })
    }

    /// Of a product, the parts of one that is split.
    pub fn check(&self, what: &str, got: &[f32]) -> Outcome {
        for (at, &exact) in self.exact.iter().enumerate() {
            let sum: f32 = got.chunks(self.exact.len()).map(|part| part[at]).sum();
            if sum != exact {
                return Err(format!("{what}: element {at} is {sum}, expected {exact}").into());
            }
        }
        Ok(())
    }
}

/// The sizes as kernels have them, and how many parts there are then.
pub fn cut([rows, columns, depth]: [usize; 3], splits: u32) -> (Shape, u32) {
    let depth_per_split = (depth as u32).div_ceil(splits).next_multiple_of(DEPTH);
    let shape = Shape { rows: rows as u32, columns: columns as u32, depth: depth as u32, depth_per_split };
    (shape, shape.depth.div_ceil(depth_per_split))
}

/// The map of all parts of a matrix.
pub fn map(gpu: &Gpu, parts: &Parts, side: u32, inner: bool) -> Result<TensorMap, Failed> {
    let [rows, columns] = parts.sizes.padded_each();
    Ok(gpu.tensor_map(&Halves(&parts.words), [PARTS * rows, columns], operand_box(side, inner, 1))?)
}

pub fn shape_of(matrix: &Tensor<f32>) -> [usize; 2] {
    [matrix.shape()[0], matrix.shape()[1]]
}

fn edge(device: &Device, product: Product, sizes @ [rows, columns, depth]: [usize; 3], splits: u32) -> Outcome {
    let gpu = gpu(device);
    let (shape, splits) = cut(sizes, splits);
    let matrices = Whole::new(device, product, sizes, [1 << 17, 1])?;
    let (mut pa, mut pb) = (Parts::room(gpu, shape_of(&matrices.a))?, Parts::room(gpu, shape_of(&matrices.b))?);
    let second = Some((&matrices.b, &mut pb));
    let refusals = match product {
        Product::Dw => split(gpu, [Some((&matrices.a, &mut pa)), None, second])?,
        _ => split(gpu, [Some((&matrices.a, &mut pa)), second, None])?,
    };
    let mut refused = gpu.allocate::<u32>(1)?;
    let mut out = Tensor::full(device, &[rows, columns], f32::NAN)?;
    let mut room = Tensor::full(device, &[splits as usize, rows, columns], f32::NAN)?;
    {
        let [a_inner, b_inner] = product.inner();
        let (a_map, b_map) = (map(gpu, &pa, ROWS, a_inner)?, map(gpu, &pb, COLUMNS, b_inner)?);
        let parts =
            if splits == 1 { None } else { Some(room.gpu_mut::<f32>(OP, "parts")? as &mut dyn DeviceMemory<f32>) };
        let out = out.gpu_mut::<f32>(OP, "out")?;
        let (a, b, refusals, refused) = (&pa.words, &pb.words, &refusals, &mut refused);
        let dims = LaunchDims::new(3, wgmma::BLOCK).with_shared(shared_bytes());
        // SAFETY: parts of the shapes that the kernels ask for and their maps, whole tensors, as many parts as splits.
        unsafe {
            match product {
                Product::Forward => gpu.launch(
                    dims,
                    DenseForwardSplit {
                        x: a,
                        w: b,
                        refusals,
                        refused,
                        y: out,
                        z: None,
                        b: None,
                        alpha: None,
                        parts,
                        shape,
                        splits,
                        activation: IDENTITY,
                        x_map: a_map,
                        w_map: b_map,
                    },
                )?,
                Product::Dx => gpu.launch(
                    dims,
                    DenseDxSplit {
                        dz: a,
                        w: b,
                        refusals,
                        refused,
                        dx: out,
                        parts,
                        shape,
                        splits,
                        beta: 0.0,
                        dz_map: a_map,
                        w_map: b_map,
                    },
                )?,
                Product::Dw => gpu.launch(
                    dims,
                    DenseDwSplit {
                        dz: a,
                        x: b,
                        refusals,
                        refused,
                        dw: out,
                        parts,
                        shape,
                        splits,
                        beta: 0.0,
                        dz_map: a_map,
                        x_map: b_map,
                    },
                )?,
            }
        }
    }
    let what = format!("{product:?} of {rows}x{columns} over {depth} in {splits}");
    if refused.download()? != [0] {
        return Err(format!("{what}: refused").into());
    }
    matrices.check(&what, &if splits == 1 { out.to_vec()? } else { room.to_vec()? })
}

/// Root mean square and maximum of the error against f64, relative to the terms' magnitudes.
fn errors(y: &Tensor<f32>, exact: &[f64], sizes: &[f64]) -> Result<[f64; 2], Failed> {
    let each: Vec<f64> =
        values(y)?.iter().zip(exact).zip(sizes).map(|((y, exact), size)| (y - exact).abs() / size).collect();
    let square = each.iter().map(|e| e * e).sum::<f64>() / each.len() as f64;
    Ok([square.sqrt(), each.into_iter().fold(0.0, f64::max)])
}

/// No less accurate than f32 arithmetic, on data of several kinds.
pub fn accuracy(device: &Device) -> Outcome {
    const N: usize = 768;
    let cpu = Device::cpu();
    for depth in [768, 4096] {
        let scale = |salt: usize, i: usize, bits: i32| {
            2f32.powi(((i * 2_654_435_761 + salt) >> 9) as i32 % (2 * bits + 1) - bits)
        };
        type Make<'a> = &'a dyn Fn(usize, usize, f32) -> f32;
        let kinds: [(&str, Make<'_>); 6] = [
            ("normal", &|_, _, v| v),
            ("positive", &|_, _, v| v.abs()),
            ("over 2^12", &|salt, i, v| v * scale(salt, i, 12)),
            ("rows over 2^12", &|salt, i, v| v * scale(salt, i / depth, 12)),
            ("cancelling", &|salt, i, v| if salt == 1 && i % 2 == 1 { -v } else { v }),
            ("tiny", &|salt, _, v| if salt == 0 { v * 2f32.powi(-125) } else { v * 2f32.powi(24) }),
        ];
        for (name, make) in kinds {
            let tensor = |salt: usize| {
                let mut values = normal::<f32>(salt as u64 + 1, N * depth);
                if name == "cancelling" {
                    (0..values.len()).step_by(2).for_each(|i| values[i + 1] = values[i] * (1.0 + 1e-3 * values[i + 1]));
                }
                let values = values.into_iter().enumerate().map(|(i, v)| make(salt, i, v)).collect();
                Tensor::<f32>::from_vec(&cpu, &[N, depth], values)
            };
            let (x, w) = (tensor(0)?, tensor(1)?);
            let product = |x, w| dense::forward_inference(&x, &w, None, Activation::Identity);
            let exact = product(wide(&x, same)?, wide(&w, same)?)?.to_vec()?;
            let sizes = product(wide(&x, f64::abs)?, wide(&w, f64::abs)?)?.to_vec()?;
            let (x, w) = (x.to(device)?, w.to(device)?);
            let of = |precision| dense::forward_inference_in(precision, &x, &w, None, Activation::Identity);
            let (split, f32) = (of(Precision::F32Split)?, of(Precision::F32)?);
            let (got, own) = (errors(&split, &exact, &sizes)?, errors(&f32, &exact, &sizes)?);
            if split.to_vec()? == f32.to_vec()? {
                return Err(format!("{name}, depth {depth}: not made of parts").into());
            }
            if got[0] > own[0] || got[1] > own[1] {
                return Err(format!("{name}, depth {depth}: errors {got:?}, of f32 arithmetic {own:?}").into());
            }
        }
    }
    Ok(())
}

/// What no parts stand for makes a product by f32 arithmetic of all it enters, and of nothing else. That may add in another order than
/// [`Precision::F32`], whose kernels for Hopper share tiles.
pub fn refusals(device: &Device) -> Outcome {
    const N: usize = 1000;
    let draw = |seed| normal::<f32>(seed, N * N);
    let tensor = |values| Tensor::from_vec(device, &[N, N], values);
    let b = normal_tensor::<f32>(device, 9, &[N]);
    for what in [f32::NAN, f32::NEG_INFINITY, LIMIT, f32::MAX] {
        for which in 0..3 {
            let [x, w, dy] = [0, 1, 2].map(|at| {
                let mut values = draw(at as u64 + 1);
                values[17 * N + 500] = if at == which { what } else { 1.0 };
                tensor(values)
            });
            let (x, w, dy) = (x?, w?, dy?);
            let run = |precision| -> Result<[Tensor<f32>; 3], Failed> {
                let y = dense::forward_inference_in(precision, &x, &w, Some(&b), Activation::Relu)?;
                let [mut dx, mut dw] = [tensor(draw(5))?, tensor(draw(6))?];
                let gradients = Gradients { dx: out(&mut dx, 0.5), dw: out(&mut dw, 0.5), ..Gradients::default() };
                let (activation, saved) = (Activation::Identity, Saved::Identity);
                dense::backward_in(precision, &x, &w, activation, &saved, &dy, gradients)?;
                Ok([y, dx, dw])
            };
            let (split, f32) = (run(Precision::F32Split)?, run(Precision::F32)?);
            // Which of x, w and dy each is made of.
            for ((name, of), (split, f32)) in
                [("y", [0, 1]), ("dx", [2, 1]), ("dw", [2, 0])].into_iter().zip(split.iter().zip(&f32))
            {
                if of.contains(&which) {
                    for (at, (got, expected)) in split.to_vec()?.into_iter().zip(f32.to_vec()?).enumerate() {
                        let alike = (got - expected).abs() <= 1e-5 * expected.abs().max(100.0);
                        if !(alike || got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan()) {
                            let what = format!("{name}, {what} in operand {which}: element {at}");
                            return Err(format!("{what} is {got}, expected {expected}").into());
                        }
                    }
                } else if split.to_vec()? == f32.to_vec()? {
                    return Err(format!("{name}, {what} in operand {which}: refused").into());
                }
            }
        }
    }
    Ok(())
}

/// The same bits each time.
pub fn repeats(device: &Device) -> Outcome {
    let (x, w) = (normal_tensor::<f32>(device, 1, &[1100, 1500]), normal_tensor(device, 2, &[1300, 1500]));
    let run = || dense::forward_inference_in(Precision::F32Split, &x, &w, None, Activation::Identity);
    let first = run()?;
    for _ in 0..1000 {
        assert_same_bits("y again", &run()?, &first)?;
    }
    Ok(())
}
