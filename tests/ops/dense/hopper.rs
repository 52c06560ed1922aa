//! The kernels for Hopper's tensor cores, which no emulated grid runs: every remainder of a tile in all three dimensions, bit for
//! bit with inputs whose products and sums are exact, NaN around all operands and results; the same bits each time.

use cuda_std::arch::sm_80::Half;
use cuda_std::launch::{DeviceMemory, Launch, LaunchDims};
use cuda_std::tensor_map::TensorMap;
use kernels::dense::wgmma::{self, DEPTH, PIECE, edge, may_share, operand_box};
use kernels::dense::{DenseDwWgmma, DenseDxWgmma, DenseDxWidths, DenseForwardWgmma, PRELU_EACH, Shape};

use super::launches::{OP, buffer, gpu};
use super::*;

/// Elements of NaN before and after a matrix.
const GUARD: usize = 4096;

/// A matrix of whole numbers between NaNs.
struct Guarded<T: Real> {
    all: Tensor<T>,
    values: Vec<f64>,
    len: usize,
}

impl<T: Real + Half> Guarded<T> {
    fn of(device: &Device, values: Vec<f64>) -> Result<Self, Failed> {
        let guard = || std::iter::repeat_n(T::of(f64::NAN), GUARD);
        let all: Vec<T> = guard().chain(values.iter().map(|&v| T::of(v))).chain(guard()).collect();
        Ok(Self { len: values.len(), all: Tensor::from_vec(device, &[all.len()], all)?, values })
    }

    /// Small whole numbers: products and their sums are exact in f32, in whatever order.
    fn whole_numbers(device: &Device, len: usize, salt: usize) -> Result<Self, Failed> {
        let number = |i: usize| ((((i + 7 * salt) * 2_654_435_761) >> 7) % 7) as f64 - 3.0;
        Self::of(device, (0..len).map(number).collect())
    }

    fn poison(device: &Device, len: usize) -> Result<Self, Failed> {
        Self::of(device, vec![f64::NAN; len])
    }

    /// Its values now, if those around it are NaN still.
    fn read(&self, what: &str) -> Result<Vec<f64>, Failed> {
        let mut all = values(&self.all)?;
        let after = all.split_off(GUARD + self.len);
        let inside = all.split_off(GUARD);
        match all.iter().chain(&after).all(|v| v.is_nan()) {
            true => Ok(inside),
            false => Err(format!("{what}: something was written beside the matrix").into()),
        }
    }
}

/// Which operand's depth is innermost: of `y`, of `dx`, of `dw`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Product {
    Forward,
    Dx,
    Dw,
}

/// A product, in how many parts, and how many blocks one below the other and side by side share what they copy.
#[derive(Clone, Copy, Debug)]
struct Case {
    product: Product,
    sizes: [usize; 3],
    splits: u32,
    sharing: [u32; 2],
}

/// The ways to share that are tried, where a tile's sides have as many parts.
const SHARINGS: [[u32; 2]; 6] = [[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [1, 4]];

impl Case {
    fn shape(&self, parts: u32) -> Shape {
        let [rows, columns, depth] = self.sizes.map(|size| size as u32);
        Shape { rows, columns, depth, depth_per_split: depth.div_ceil(self.splits * parts).next_multiple_of(DEPTH) }
    }

    /// Where element `(row, k)` of the left operand is, and `(k, column)` of the right one.
    fn places(&self, row: usize, column: usize, k: usize) -> [usize; 2] {
        let [rows, columns, depth] = self.sizes;
        match self.product {
            Product::Forward => [row * depth + k, column * depth + k],
            Product::Dx => [row * depth + k, k * columns + column],
            Product::Dw => [k * rows + row, k * columns + column],
        }
    }

    fn sum(&self, [left, right]: [&[f64]; 2], at: usize) -> f64 {
        let [_, columns, depth] = self.sizes;
        let term = |k| {
            let [a, b] = self.places(at / columns, at % columns, k);
            left[a] * right[b]
        };
        (0..depth).map(term).sum()
    }

    fn compare(&self, what: &str, got: &[f64], expected: impl Fn(usize) -> f64) -> Outcome {
        for (at, &got) in got.iter().enumerate() {
            let expected = expected(at);
            if got != expected {
                return Err(format!("{self:?}: {what}, element {at} is {got}, expected {expected}").into());
            }
        }
        Ok(())
    }
}

/// A product's kernel and its launch: what it takes whatever its tile.
pub struct Arguments<'a, T> {
    gpu: &'a Gpu,
    dims: LaunchDims,
    a: &'a dyn DeviceMemory<T>,
    b: &'a dyn DeviceMemory<T>,
    out: &'a mut dyn DeviceMemory<T>,
    z: &'a mut dyn DeviceMemory<T>,
    bias: &'a dyn DeviceMemory<T>,
    alpha: &'a dyn DeviceMemory<f32>,
    parts: Option<&'a mut dyn DeviceMemory<f32>>,
    shape: Shape,
    splits: u32,
    beta: f32,
    maps: [[TensorMap; 2]; 2],
}

/// Tiles, and the kernels that make them.
pub trait Tiles<T> {
    /// Those that there are kernels of.
    const PRODUCTS: &'static [Product];
    const HEIGHT: u32;
    const PARTS: u32;

    /// Of a warpgroup.
    fn columns(&self) -> u32;

    /// # Safety
    /// The kernels'.
    unsafe fn launch(&self, product: Product, arguments: Arguments<'_, T>) -> ferrolayer::Result<()>;
}

/// Launches of the three kernels.
macro_rules! launch {
    (forward $arguments:ident $kernel:ident [$($of:ident),*]) => {{
        let Arguments { gpu, dims, a: x, b: w, out: y, z, bias, alpha, parts, shape, splits, maps, .. } = $arguments;
        let ([[x_map, x_edge], [w_map, w_edge]], activation) = (maps, PRELU_EACH);
        let (z, b, alpha) = (Some(z), Some(bias), Some(alpha));
        gpu.launch(dims, $kernel::<$($of),*> {
            x, w, y, z, b, alpha, parts, shape, splits, activation, x_map, x_edge, w_map, w_edge
        })
    }};
    (dx $arguments:ident $kernel:ident [$($of:ident),*] $($width:ident)?) => {{
        let Arguments { gpu, dims, a: dz, b: w, out: dx, parts, shape, splits, beta, maps, .. } = $arguments;
        let [[dz_map, dz_edge], [w_map, _]] = maps;
        gpu.launch(dims, $kernel::<$($of),*> {
            dz, w, dx, parts, shape, splits, $($width,)? beta, dz_map, dz_edge, w_map
        })
    }};
    (dw $arguments:ident $kernel:ident [$($of:ident),*]) => {{
        let Arguments { gpu, dims, a: dz, b: x, out: dw, parts, shape, splits, beta, maps, .. } = $arguments;
        let [[dz_map, _], [x_map, _]] = maps;
        gpu.launch(dims, $kernel::<$($of),*> { dz, x, dw, parts, shape, splits, beta, dz_map, x_map })
    }};
}

/// Of as many columns as the kernels have.
pub struct Exactly<const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>;

impl<T: Half, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32> Tiles<T> for Exactly<COLUMNS, HEIGHT, PARTS>
where
    for<'a> DenseForwardWgmma<'a, T, COLUMNS, HEIGHT, PARTS>: Launch,
    for<'a> DenseDxWgmma<'a, T, COLUMNS, HEIGHT, PARTS>: Launch,
    for<'a> DenseDwWgmma<'a, T, COLUMNS, HEIGHT, PARTS>: Launch,
{
    const PRODUCTS: &'static [Product] = &[Product::Forward, Product::Dx, Product::Dw];
    const HEIGHT: u32 = HEIGHT;
    const PARTS: u32 = PARTS;

    fn columns(&self) -> u32 {
        COLUMNS
    }

    unsafe fn launch(&self, product: Product, arguments: Arguments<'_, T>) -> ferrolayer::Result<()> {
        // SAFETY: the caller's.
        unsafe {
            match product {
                Product::Forward => launch!(forward arguments DenseForwardWgmma [T, COLUMNS, HEIGHT, PARTS]),
                Product::Dx => launch!(dx arguments DenseDxWgmma [T, COLUMNS, HEIGHT, PARTS]),
                Product::Dw => launch!(dw arguments DenseDwWgmma [T, COLUMNS, HEIGHT, PARTS]),
            }
        }
    }
}

/// Of so many columns, which the kernels of `dx` are told.
pub struct WithoutDx<const COLUMNS: u32>;

impl<T: Half, const COLUMNS: u32> Tiles<T> for WithoutDx<COLUMNS>
where
    for<'a> DenseForwardWgmma<'a, T, COLUMNS, 2, 1>: Launch,
    for<'a> DenseDwWgmma<'a, T, COLUMNS, 2, 1>: Launch,
{
    const PRODUCTS: &'static [Product] = &[Product::Forward, Product::Dw];
    const HEIGHT: u32 = 2;
    const PARTS: u32 = 1;

    fn columns(&self) -> u32 {
        COLUMNS
    }

    unsafe fn launch(&self, product: Product, arguments: Arguments<'_, T>) -> ferrolayer::Result<()> {
        const HEIGHT: u32 = 2;
        const PARTS: u32 = 1;
        // SAFETY: the caller's.
        unsafe {
            match product {
                Product::Forward => launch!(forward arguments DenseForwardWgmma [T, COLUMNS, HEIGHT, PARTS]),
                Product::Dx => unreachable!("it is none of these products"),
                Product::Dw => launch!(dw arguments DenseDwWgmma [T, COLUMNS, HEIGHT, PARTS]),
            }
        }
    }
}

/// Of as many columns as the launch says.
pub struct Widths<const MOST: u32, const HEIGHT: u32>(u32);

impl<T: Half, const MOST: u32, const HEIGHT: u32> Tiles<T> for Widths<MOST, HEIGHT>
where
    for<'a> DenseDxWidths<'a, T, MOST, HEIGHT>: Launch,
{
    const PRODUCTS: &'static [Product] = &[Product::Dx];
    const HEIGHT: u32 = HEIGHT;
    const PARTS: u32 = 1;

    fn columns(&self) -> u32 {
        self.0
    }

    unsafe fn launch(&self, _: Product, arguments: Arguments<'_, T>) -> ferrolayer::Result<()> {
        let width = self.0;
        // SAFETY: the caller's.
        unsafe { launch!(dx arguments DenseDxWidths [T, MOST, HEIGHT] width) }
    }
}

/// What a product gives, or, of one that is split, the sum of its parts; with `beta` times what was there, or forward with a
/// bias, slopes and `z`.
fn check<T: Real<Compute = f32> + Half, K: Tiles<T>>(device: &Device, tiles: &K, case: Case) -> Outcome {
    let (gpu, shape) = (gpu(device), case.shape(K::PARTS));
    let splits = if K::PARTS > 1 { 1 } else { shape.depth.div_ceil(shape.depth_per_split) };
    let Shape { rows, columns, depth, .. } = shape;
    let [side, width] = wgmma::tile(tiles.columns(), K::HEIGHT);
    let [n, o, k] = case.sizes;
    let left = Guarded::<T>::whole_numbers(device, n * k, 1)?;
    let right = Guarded::<T>::whole_numbers(device, o * k, 2)?;
    let beta = if case.product == Product::Forward { 0.0 } else { 0.5 };
    let mut out = match beta == 0.0 || splits > 1 {
        true => Guarded::<T>::poison(device, n * o)?,
        false => Guarded::<T>::whole_numbers(device, n * o, 3)?,
    };
    let mut room = Tensor::full(device, &[splits as usize, n, o], f32::NAN)?;
    let mut z = Tensor::full(device, &[n, o], T::of(f64::NAN))?;
    let b = whole_tensor::<T>(device, o)?;
    let alpha = Tensor::from_vec(device, &[o], (0..o).map(|o| if o % 3 == 0 { -0.5f32 } else { 0.25 }).collect())?;
    {
        let (a_inner, b_inner) = (case.product != Product::Dw, case.product == Product::Forward);
        let sizes = |across, inner| if inner { [across, depth] } else { [depth, across] };
        let a = left.all.gpu::<T>(OP, "a")?.as_slice().slice(GUARD..GUARD + left.values.len());
        let b_matrix = right.all.gpu::<T>(OP, "b")?.as_slice().slice(GUARD..GUARD + right.values.len());
        let (_, into) = out.all.gpu_mut::<T>(OP, "out")?.as_slice_mut().split_at(GUARD);
        let (mut into, _) = into.split_at(n * o);
        let [down, beside] = case.sharing;
        let maps = |matrix: &dyn DeviceMemory<T>, across: u32, inner, side, blocks| -> Result<_, Failed> {
            let of = |side, blocks| gpu.tensor_map(matrix, sizes(across, inner), operand_box(side, inner, blocks));
            Ok([of(side, blocks)?, of(edge(across, side / blocks), if inner { 1 } else { blocks })?])
        };
        let [a_map, a_edge] = maps(&a, rows, a_inner, side, beside)?;
        let [b_map, b_edge] = maps(&b_matrix, columns, b_inner, width, down)?;
        let parts = match splits {
            1 => None,
            _ => Some(room.gpu_mut::<f32>(OP, "parts")? as &mut dyn DeviceMemory<f32>),
        };
        let clusters = rows.div_ceil(side * down) * columns.div_ceil(width * beside) * splits;
        // Fewer blocks than tiles where there are several, and a block may take several.
        let clusters = if K::PARTS > 1 { clusters } else { clusters.div_ceil(2) };
        let below = K::PARTS.max(down);
        let dims = LaunchDims::new((clusters * below, beside), wgmma::block(K::HEIGHT))
            .with_cluster((below, beside))
            .with_shared(wgmma::shared_bytes(tiles.columns(), K::HEIGHT, K::PARTS));
        let maps = [[a_map, a_edge], [b_map, b_edge]];
        let (z, bias, alpha) = (z.gpu_mut::<T>(OP, "z")?, buffer(&b)?, buffer(&alpha)?);
        let (a, b, out) = (&a, &b_matrix, &mut into);
        let arguments = Arguments { gpu, dims, a, b, out, z, bias, alpha, parts, shape, splits, beta, maps };
        // SAFETY: matrices of the shapes that the kernels ask for, their maps, and as many parts as splits.
        unsafe { tiles.launch(case.product, arguments)? };
    }
    let got = out.read(&format!("{case:?}"))?;
    let exact = |at| case.sum([&left.values, &right.values], at);
    if splits > 1 {
        let room = values(&room)?;
        let sums: Vec<f64> = (0..n * o).map(|at| room.iter().skip(at).step_by(n * o).sum()).collect();
        case.compare("the sum of the parts", &sums, exact)?;
        return match got.iter().all(|v| v.is_nan()) {
            true => Ok(()),
            false => Err(format!("{case:?}: the result was written, and not only the parts").into()),
        };
    }
    if case.product != Product::Forward {
        return case.compare("the sum", &got, |at| T::of(exact(at) + f64::from(beta) * out.values[at]).f64());
    }
    let (b, alpha) = (values(&b)?, values(&alpha)?);
    let before: Vec<f64> = (0..n * o).map(|at| exact(at) + b[at % o]).collect();
    case.compare("z", &values(&z)?, |at| T::of(before[at]).f64())?;
    let slope = |at: usize| if before[at] > 0.0 { 1.0 } else { alpha[at % o] };
    case.compare("y", &got, |at| T::of(slope(at) * before[at]).f64())
}

fn whole_tensor<T: Real>(device: &Device, len: usize) -> Result<Tensor<T>, Failed> {
    Ok(Tensor::from_vec(device, &[len], (0..len).map(|i| T::of((i % 5) as f64 - 2.0)).collect())?)
}

/// [`exact_by`] such tiles.
pub fn exact<T: Real<Compute = f32> + Half, const COLUMNS: u32, const HEIGHT: u32, const PARTS: u32>(
    device: &Device,
) -> Outcome
where
    Exactly<COLUMNS, HEIGHT, PARTS>: Tiles<T>,
{
    exact_by::<T, _>(device, &Exactly::<COLUMNS, HEIGHT, PARTS>, 0, 1)
}

/// [`exact_by`] tiles that the kernels of `dx` are told.
pub fn exact_without_dx<T: Real<Compute = f32> + Half, const COLUMNS: u32>(device: &Device) -> Outcome
where
    WithoutDx<COLUMNS>: Tiles<T>,
{
    exact_by::<T, _>(device, &WithoutDx::<COLUMNS>, 0, 1)
}

/// [`exact_by`] tiles of each width, of whose remainders each has an eighth.
pub fn widths_are_exact<T: Real<Compute = f32> + Half, const MOST: u32, const HEIGHT: u32>(device: &Device) -> Outcome
where
    Widths<MOST, HEIGHT>: Tiles<T>,
{
    let [least, most, apart] = wgmma::widths(HEIGHT);
    (least..=most)
        .step_by(apart as usize)
        .try_for_each(|width| exact_by::<T, _>(device, &Widths::<MOST, HEIGHT>(width), (width / apart % 8) as usize, 8))
}

/// Remainders of rows, of columns and of the depth, from the `first` on each `apart`th, by such tiles; parts of the depth.
fn exact_by<T: Real<Compute = f32> + Half, K: Tiles<T>>(
    device: &Device,
    tiles: &K,
    first: usize,
    apart: usize,
) -> Outcome {
    let (height, parts) = (K::HEIGHT, K::PARTS);
    let [side, tile] = wgmma::tile(tiles.columns(), height).map(|n| n as usize);
    let (piece, slice) = (PIECE as usize, DEPTH as usize);
    let legal = |[rows, columns, _]: [usize; 3], sharing: [u32; 2]| {
        sharing == [1, 1] || parts == 1 && may_share(tiles.columns(), height, sharing, [rows as u32, columns as u32])
    };
    let of_whole =
        |&[down, beside]: &[u32; 2]| legal([down as usize * side, beside as usize * tile, 1], [down, beside]);
    let sharings: Vec<_> = SHARINGS.into_iter().filter(of_whole).collect();
    for step in (first..side).step_by(apart) {
        // In turns, so that each meets all remainders of four and of eight.
        let sharing = sharings[(step + step / 8) % sharings.len()];
        // What is not innermost of a matrix may be of any size.
        let rows = 1 + step + if step % 4 == 0 { side } else { 0 };
        let columns = piece * (1 + step % (tile / piece)) + if step % 8 == 1 { tile } else { 0 };
        let depth = 1 + step % slice + if step % 2 == 0 { slice } else { 0 };
        let whole = |size: usize| size.next_multiple_of(piece);
        for (product, sizes) in [
            (Product::Forward, [rows, columns, whole(depth)]),
            (Product::Dx, [rows, columns, whole(depth)]),
            (Product::Dw, [whole(rows), columns, depth]),
        ] {
            if !K::PRODUCTS.contains(&product) {
                continue;
            }
            let sharing = if legal(sizes, sharing) { sharing } else { [1, 1] };
            check(device, tiles, Case { product, sizes, splits: 1, sharing })?;
        }
    }
    for &product in K::PRODUCTS {
        // Many slices, more than the ring has stages, and many tiles, in parts and not.
        for (sizes, splits) in [([136, tile + 8, 1096], 1), ([264, 2 * tile + 8, 1096], 3), ([2200, 72, 136], 2)] {
            if parts > 1 && splits > 1 {
                continue;
            }
            for &sharing in sharings.iter().filter(|&&sharing| legal(sizes, sharing)) {
                check(device, tiles, Case { product, sizes, splits, sharing })?;
            }
        }
    }
    Ok(())
}

/// Products of random numbers give the same bits each time.
pub fn repeats<T: Real>(device: &Device) -> Outcome {
    let [n, i, o] = [520, 1032, 776];
    let [x, w, dy] =
        [(1, [n, i]), (2, [o, i]), (3, [n, o])].map(|(seed, shape)| normal_tensor::<T>(device, seed, &shape));
    let mut first: Option<[Vec<T>; 3]> = None;
    for time in 0..1000 {
        let mut gradients =
            [Tensor::full(device, &[n, i], T::of(f64::NAN))?, Tensor::full(device, &[o, i], T::of(f64::NAN))?];
        let y = dense::forward_inference(&x, &w, None, Activation::Identity)?;
        let [dx, dw] = &mut gradients;
        let into = Gradients { dx: out(dx, 0.0), dw: out(dw, 0.0), ..Gradients::default() };
        dense::backward(&x, &w, Activation::Identity, &Saved::Identity, &dy, into)?;
        let [dx, dw] = &gradients;
        let now = [y.to_vec()?, dx.to_vec()?, dw.to_vec()?];
        let first = first.get_or_insert_with(|| now.clone());
        if *first != now {
            return Err(format!("time {time} gave other bits than the first").into());
        }
    }
    Ok(())
}

/// NaN and infinities pass through, into their own rows and columns alone.
pub fn passes_what_is_no_number<T: Real>(device: &Device) -> Outcome {
    let [n, i, o] = [136, 72, 264];
    let mut x = vec![T::of(1.0); n * i];
    let mut w = vec![T::of(1.0); o * i];
    let infinity = f64::INFINITY;
    x[5 * i + 3] = T::of(f64::NAN);
    x[7 * i + 71] = T::of(infinity);
    x[9 * i + 1] = T::of(infinity);
    x[9 * i + 2] = T::of(-infinity);
    w[11 * i + 71] = T::of(0.0);
    w[13 * i] = T::of(-infinity);
    let x = Tensor::from_vec(device, &[n, i], x)?;
    let w = Tensor::from_vec(device, &[o, i], w)?;
    for (activation, least) in [(Activation::Identity, -infinity), (Activation::Relu, 0.0)] {
        let y = values(&dense::forward_inference(&x, &w, None, activation)?)?;
        for (at, &got) in y.iter().enumerate() {
            let (row, column) = (at / o, at % o);
            let expected: f64 = match (row, column) {
                (5 | 9, _) | (7, 11 | 13) => f64::NAN,
                (7, _) => infinity,
                (_, 13) => -infinity,
                (_, 11) => i as f64 - 1.0,
                _ => i as f64,
            };
            if got.to_bits() != expected.max(least).to_bits() && !(got.is_nan() && expected.is_nan()) {
                return Err(format!("element {at} is {got}, expected {expected}").into());
            }
        }
    }
    Ok(())
}
