//! Forward by each of its ways: of one slope a vector, of two, of four, of any, and for more elements than 32 bits count.

use cuda_std::element::Storage;
use cuda_std::launch::{Launch, LaunchDims};
use ferrolayer::device::{Gpu, tiles};
use kernels::prelu::{BLOCK, PreluForward, PreluForwardVectors, Slopes, TILE, VECTORS};

use super::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = on_each_gpu("prelu::forward::at_all_edges::f32", at_all_edges::<f32, f32>);
    tests.extend(on_each_gpu("prelu::forward::at_all_edges::f16", at_all_edges::<f16, f32>));
    tests.extend(on_each_gpu("prelu::forward::at_all_edges::bf16", at_all_edges::<bf16, bf16>));
    tests.extend(on_each_gpu("prelu::forward::each_kernel::f32", each_kernel::<f32, f32>));
    tests.extend(on_each_gpu("prelu::forward::each_kernel::f16", each_kernel::<f16, f32>));
    tests.extend(on_each_gpu("prelu::forward::each_kernel::f16_slopes_of_f16", each_kernel::<f16, f16>));
    tests.extend(on_each_gpu("prelu::forward::each_kernel::bf16", each_kernel::<bf16, f32>));
    tests.extend(on_each_gpu("prelu::forward::each_kernel::bf16_slopes_of_bf16", each_kernel::<bf16, bf16>));
    tests.push(on_real_gpu("prelu::forward::at_full_size", at_full_size));
    tests
}

const CHANNELS: [usize; 7] = [1, 2, 3, 4, 5, 67, 300];
const PLANES: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 49, 1023];

/// `x` as `[outer, channels, inner]` in memory with a slope each, and what comes of it.
struct Case<T: Real, A: Real> {
    x: Tensor<T>,
    alpha: Tensor<A>,
    expected: Vec<T>,
}

fn case<T: Real<Compute = f32>, A: ParameterOf<T>>(
    device: &Device,
    [outer, channels, inner]: [usize; 3],
) -> Result<Case<T, A>, Failed> {
    let n = outer * channels * inner;
    let (x, alpha): (Vec<T>, Vec<A>) = (normal(n as u64, n), normal(inner as u64, channels));
    let y = |(i, x): (usize, &T)| {
        let value = x.widen();
        let slope = if value > 0.0 { 1.0 } else { alpha[i / inner % channels].widen() };
        T::narrow(slope * value)
    };
    let expected = x.iter().enumerate().map(y).collect();
    let x = Tensor::from_slice(device, &[outer, channels, inner], &x)?;
    Ok(Case { x, alpha: Tensor::from_slice(device, &[channels], &alpha)?, expected })
}

/// Channels and planes of which vectors hold one or several, tensors that end among a vector's elements, within a block's first
/// elements and beyond them; with the channels last too, and in place.
fn at_all_edges<T: Real<Compute = f32>, A: ParameterOf<T>>(device: &Device) -> Outcome {
    for channels in CHANNELS {
        for inner in PLANES {
            for outer in [1, 3] {
                let shape = [outer, channels, inner];
                if shape.iter().product::<usize>() > 2 * TILE as usize + 800 {
                    continue;
                }
                let Case { x, alpha, expected } = case::<T, A>(device, shape)?;
                assert!(prelu::forward(&x, &alpha)?.to_vec()? == expected, "{shape:?}");
                let mut y = x;
                prelu::forward_in_place(&mut y, &alpha)?;
                assert!(y.to_vec()? == expected, "{shape:?} in place");
                // The same as images, row-major and with the channels last.
                let Case { x, .. } = case::<T, A>(device, shape)?;
                let last = x.reshape(&[outer, channels, inner, 1])?.to_layout(Layout::ChannelsLast)?;
                let of_last = prelu::forward(&last, &alpha)?;
                assert!(of_last.to_vec()? == expected, "{shape:?} with the channels last");
                let mut y = last;
                prelu::forward_in_place(&mut y, &alpha)?;
                assert!(y.to_vec()? == expected, "{shape:?} with the channels last, in place");
            }
        }
    }
    Ok(())
}

/// Kernels that the op takes for larger tensors only: of several vectors a thread, and in 64 bits.
fn each_kernel<T: Real<Compute = f32> + Storage, A: ParameterOf<T> + Storage>(device: &Device) -> Outcome
where
    for<'a> PreluForward<'a, T, A>: Launch,
    for<'a> PreluForwardVectors<'a, T, A, 0>: Launch,
    for<'a> PreluForwardVectors<'a, T, A, 1>: Launch,
    for<'a> PreluForwardVectors<'a, T, A, 2>: Launch,
    for<'a> PreluForwardVectors<'a, T, A, 4>: Launch,
{
    let Device::Gpu(gpu) = device else { unreachable!("a test of GPUs") };
    // A block's vectors and some more, or all but some; 6 and 3 × 49 elements end among a vector's.
    for shape in
        [[1, 1, 4102], [3, 2, 1], [5, 5, 164], [3, 1023, 1], [9, 300, 2], [1, 3, 49], [40, 3, 49], [257, 68, 1]]
    {
        let [_, channels, inner] = shape.map(|size| size as u32);
        let Case { x, alpha, expected } = case::<T, A>(device, shape)?;
        let n = x.len();
        let one = if channels == 1 { Some(Slopes::shared()) } else { Slopes::of_planes(channels, u64::from(inner)) };
        let four = if inner == 1 { Slopes::of_pixels(channels) } else { None };
        let any = Slopes::of_elements(channels, u64::from(inner), n as u64);
        let two = if inner >= 3 { any } else { None };
        for each in [1, VECTORS] {
            for (count, slopes) in [(0, any), (1, one), (2, two), (4, four)] {
                let Some(slopes) = slopes else { continue };
                for in_place in [false, true] {
                    let mut y = if in_place { case::<T, A>(device, shape)?.x } else { x.empty_like()? };
                    by_vectors(gpu, (!in_place).then_some(&x), &alpha, &mut y, (slopes, count, each))?;
                    let of = format!("{shape:?}, {count} slopes, {each} vectors, in place: {in_place}");
                    assert!(y.to_vec()? == expected, "{of}");
                }
            }
        }
        let mut y = x.empty_like()?;
        let dims = LaunchDims::new(tiles(n, TILE), BLOCK);
        let kernel = PreluForward::<T, A> {
            x: Some(x.gpu::<T>(OP, "x")?),
            alpha: alpha.gpu::<A>(OP, "alpha")?,
            y: y.gpu_mut::<T>(OP, "y")?,
            channels,
            inner: u64::from(inner),
            n: n as u64,
        };
        // SAFETY: whole tensors of the layout, and a grid that covers them.
        unsafe { gpu.launch(dims, kernel)? };
        assert!(y.to_vec()? == expected, "{shape:?} in 64 bits");
    }
    Ok(())
}

const OP: &str = "test";

fn by_vectors<T: Real<Compute = f32> + Storage, A: ParameterOf<T> + Storage>(
    gpu: &Gpu,
    x: Option<&Tensor<T>>,
    alpha: &Tensor<A>,
    y: &mut Tensor<T>,
    (slopes, count, each): (Slopes, u32, u32),
) -> Outcome
where
    for<'a> PreluForwardVectors<'a, T, A, 0>: Launch,
    for<'a> PreluForwardVectors<'a, T, A, 1>: Launch,
    for<'a> PreluForwardVectors<'a, T, A, 2>: Launch,
    for<'a> PreluForwardVectors<'a, T, A, 4>: Launch,
{
    let dims = LaunchDims::new(tiles(y.len(), TILE * each), BLOCK);
    let (x, n) = (x.map(|x| x.gpu::<T>(OP, "x")).transpose()?.map(|x| x as _), y.len() as u64);
    let (alpha, y) = (alpha.gpu::<A>(OP, "alpha")?, y.gpu_mut::<T>(OP, "y")?);
    // SAFETY: whole tensors of the layout that the slopes were made of, so many for a vector, and a grid that covers them.
    unsafe {
        match count {
            1 => gpu.launch(dims, PreluForwardVectors::<T, A, 1> { x, alpha, y, slopes, each, n })?,
            2 => gpu.launch(dims, PreluForwardVectors::<T, A, 2> { x, alpha, y, slopes, each, n })?,
            4 => gpu.launch(dims, PreluForwardVectors::<T, A, 4> { x, alpha, y, slopes, each, n })?,
            _ => gpu.launch(dims, PreluForwardVectors::<T, A, 0> { x, alpha, y, slopes, each, n })?,
        }
    }
    Ok(())
}

/// So many that a thread takes several vectors.
fn at_full_size(device: &Device) -> Outcome {
    for shape in [[64, 257, 49 * 3], [64, 256, 148], [30001, 67, 1], [9001, 68, 1], [30001, 35, 2]] {
        let Case { x, alpha, expected } = case::<bf16, f32>(device, shape)?;
        assert!(prelu::forward(&x, &alpha)?.to_vec()? == expected, "{shape:?}");
    }
    Ok(())
}
