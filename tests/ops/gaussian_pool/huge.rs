//! Tensors of which the linear index passes 2³¹ and 2³², against the CPU's results of small parts around these places.
//!
//! No tensor is ever whole in the host's memory: inputs are a pattern repeated on the device, and parts are copied out.

use cuda_std::launch::{DeviceMemory, LaunchDims};
use ferrolayer::device::tiles;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::testing::assert_close;
use ferrolayer::{Device, Layout, Out, Tensor, bf16};
use kernels::add2::{Add2Backward, BLOCK, tile};

use super::{Case, Gradients, Inputs, Results, oracle, run};
use crate::support::*;

/// Elements of the pattern: a multiple of 8, so that copies begin at multiples of 16 bytes, and no divisor of 2³¹.
const PERIOD: usize = (1 << 20) - 8;
/// Outputs of a part along each axis.
const SIDE: usize = 6;

/// One case after the other: together they would not fit into a GPU.
pub(super) fn match_cpu(gpu: &Device) -> Outcome {
    let [a, b, c, d] = cases([
        // The input passes both places: in one plane, and in two images.
        [1, 1, 66_000, 66_000],
        [2, 24, 9600, 9500],
        // The output does.
        [1, 1, 48_000, 48_000],
        [1, 8, 17_000, 17_000],
    ]);
    [a, b, c, d].iter().try_for_each(|case| matches_cpu(gpu, case, [1 << 31, 1 << 32]))
}

/// The same with small tensors, so that the emulated grid tries the test itself.
pub(super) fn small_match_cpu(gpu: &Device) -> Outcome {
    let [a, b, c, d] = cases([[1, 1, 120, 130], [2, 24, 40, 30], [1, 1, 60, 64], [1, 8, 50, 40]]);
    matches_cpu(gpu, &a, [2000, 9000])?;
    matches_cpu(gpu, &b, [9000, 40_000])?;
    matches_cpu(gpu, &c, [2000, 6000])?;
    matches_cpu(gpu, &d, [5000, 20_000])
}

/// Of these sizes, in turn planes after each other and channels side by side.
fn cases([a, b, c, d]: [[usize; 4]; 4]) -> [Case; 4] {
    let case = |x, layout, [size, stride]: [usize; 2], kernels, shared| {
        let window = Window::new([size; 2]).stride([stride; 2]).padding([size / 2; 2]);
        let normalize = if shared { Normalize::Valid } else { Normalize::Window };
        Case { x, layout, window, normalize, kernels, shared, per_axis: shared }
    };
    let (planes, channels) = (Layout::RowMajor, Layout::ChannelsLast);
    [
        case(a, planes, [5, 4], 1, true),
        case(b, channels, [3, 2], 1, false),
        case(c, planes, [3, 1], 2, false),
        case(d, channels, [3, 1], 2, true),
    ]
}

/// A part of a pass: some outputs of one channel, in windows that lie in the image.
#[derive(Clone, Copy, Debug)]
struct Part {
    image: usize,
    channel: usize,
    /// The first output's row and column.
    output: [usize; 2],
}

impl Part {
    /// About the place of element `i` of a tensor with `maps` maps for each channel, at each of which a window stands
    /// every `stride` pixels.
    fn about(case: &Case, tensor: &Tensor<bf16>, i: usize, maps: usize, stride: [usize; 2]) -> Self {
        let &[_, c, h, w] = tensor.shape() else { panic!("four dimensions") };
        let (image, map, place) = match case.layout {
            Layout::RowMajor => (i / (c * h * w), i / (h * w) % c, [i / w % h, i % w]),
            Layout::ChannelsLast => (i / (c * h * w), i % c, [i / (c * w) % h, i / c % w]),
        };
        let Window { size, stride: step, padding, .. } = case.window;
        let output = [0, 1].map(|axis| {
            let last = (case.x[2 + axis] + padding[axis] - size[axis]) / step[axis] + 1 - SIDE;
            (place[axis] / stride[axis]).saturating_sub(SIDE / 2).clamp(padding[axis].div_ceil(step[axis]), last)
        });
        Self { image, channel: map / maps, output }
    }

    /// The first row and column of the input that it takes.
    fn input(&self, case: &Case) -> [usize; 2] {
        [0, 1].map(|axis| self.output[axis] * case.window.stride[axis] - case.window.padding[axis])
    }

    /// The part as a case of its own.
    fn case(&self, case: &Case) -> Case {
        let window = case.window.padding([0, 0]);
        let [h, w] = [0, 1].map(|axis| (SIDE - 1) * window.stride[axis] + window.size[axis]);
        Case { x: [1, 1, h, w], layout: Layout::RowMajor, window, shared: true, ..*case }
    }

    /// The part's Gaussians, of a tensor of parameters.
    fn parameters(&self, case: &Case, all: &Tensor<f32>) -> Tensor<f32> {
        let shape = [1, all.shape()[1], all.shape()[2]];
        let (len, set) = (shape[1] * shape[2], if case.shared { 0 } else { self.channel });
        Tensor::from_slice(&Device::cpu(), &shape, &all.to_vec().unwrap()[set * len..][..len]).unwrap()
    }
}

/// Around the elements with these numbers, and the last one, of the input and of the output.
fn matches_cpu(device: &Device, case: &Case, places: [usize; 2]) -> Outcome {
    let of_case = Case { x: [1, case.x[1], 8, 8], ..*case };
    let Inputs { mean, var, .. } = Inputs::<f32>::new(&of_case, 30);
    let [mean_there, var_there] = [mean.to(device)?, var.to(device)?];
    let pattern = normal_tensor::<bf16>(device, 31, &[PERIOD]);
    let mut x = Tensor::empty_in(device, &case.x, case.layout)?;
    fill(device, &mut x, &pattern)?;
    let y = gaussian_pool::forward(&x, &mean_there, &var_there, &case.window, case.normalize)?;

    let mut parts = vec![];
    for (tensor, maps, stride) in [(&x, 1, case.window.stride), (&y, case.kernels, [1, 1])] {
        for i in places.into_iter().filter(|&i| i < tensor.len()).chain([tensor.len() - 1]) {
            parts.push(Part::about(case, tensor, i, maps, stride));
        }
    }
    // Some are of both tensors.
    parts.sort_by_key(|part| (part.image, part.channel, part.output));
    parts.dedup_by_key(|part| (part.image, part.channel, part.output));

    // All of dy is zero but for the parts, so that they alone give the parameters' gradients.
    let mut dy = y.empty_like()?;
    fill(device, &mut dy, &Tensor::zeros(device, &[PERIOD])?)?;
    let mut inputs = vec![];
    for (i, part) in parts.iter().enumerate() {
        let of_part = part.case(case);
        let [_, _, h, w] = of_part.x;
        let mut of_part_inputs = Inputs::<bf16>::new(&of_part, 32 + i as u64);
        of_part_inputs.x.copy_from_slice(&read(device, &x, [part.image, part.channel], part.input(case), [h, w])?)?;
        of_part_inputs.mean = part.parameters(case, &mean);
        of_part_inputs.var = part.parameters(case, &var);
        let gradients = of_part_inputs.dy.to_vec()?;
        for (kernel, gradients) in gradients.chunks(SIDE * SIDE).enumerate() {
            let map = part.channel * case.kernels + kernel;
            write(device, &mut dy, [part.image, map], part.output, gradients)?;
        }
        inputs.push(of_part_inputs);
    }
    let (mut dx, mut dmean, mut dvar) = (x.empty_like()?, mean_there.empty_like()?, var_there.empty_like()?);
    let outs = (Some(Out::write(&mut dx)), Some(Out::write(&mut dmean)), Some(Out::write(&mut dvar)));
    let (window, normalize) = (&case.window, case.normalize);
    gaussian_pool::backward(&x, &mean_there, &var_there, window, normalize, &dy, outs.0, outs.1, outs.2)?;

    let mut expected = [&mean, &var].map(|tensor| vec![0.0f64; tensor.len()]);
    let mut sizes = expected.clone();
    for (part, inputs) in parts.iter().zip(&inputs) {
        let of_part = part.case(case);
        let [_, _, h, w] = of_part.x;
        let Results { y: right_y, gradients: Gradients { dx: right_dx, dmean, dvar }, .. } = run(&of_part, inputs)?;
        let [y_sizes, dx_sizes, mean_sizes, var_sizes] = oracle::sizes(&of_part, inputs);
        let mut got = vec![];
        for kernel in 0..case.kernels {
            let map = part.channel * case.kernels + kernel;
            got.extend(read(device, &y, [part.image, map], part.output, [SIDE; 2])?);
        }
        let what = |name: &str| format!("{name} of {part:?} of {case:?}");
        assert_close(&what("y"), &got, &right_y.to_vec()?, y_sizes.0 + 1, &y_sizes.1)?;
        let got = read(device, &dx, [part.image, part.channel], part.input(case), [h, w])?;
        assert_close(&what("dx"), &got, &right_dx.to_vec()?, dx_sizes.0 + 1, &dx_sizes.1)?;
        for (i, (gradient, of_part)) in [(dmean, mean_sizes), (dvar, var_sizes)].into_iter().enumerate() {
            let first = if case.shared { 0 } else { part.channel * gradient.len() };
            for (j, (gradient, size)) in gradient.to_vec()?.iter().zip(&of_part.1).enumerate() {
                expected[i][first + j] += f64::from(*gradient);
                sizes[i][first + j] += size;
            }
        }
    }
    let terms = parts.len() * SIDE * SIDE * case.window.positions();
    for (i, (name, got)) in [("dmean", &dmean), ("dvar", &dvar)].into_iter().enumerate() {
        let expected: Vec<f32> = expected[i].iter().map(|&v| v as f32).collect();
        assert_close(&format!("{name} of {case:?}"), &got.to_vec()?, &expected, terms, &sizes[i])?;
    }
    Ok(())
}

/// Copies `n` elements on the device; both begin at multiples of 16 bytes.
fn copy(device: &Device, from: &dyn DeviceMemory<bf16>, to: &mut dyn DeviceMemory<bf16>, n: usize) -> Outcome {
    let Device::Gpu(gpu) = device else { return Err("a GPU's memory".into()) };
    assert!(n <= from.len() && n <= to.len(), "{n} elements of {} to {}", from.len(), to.len());
    let launch = Add2Backward::<bf16> { dy: from, dx: to, beta: 0.0, n: n as u64 };
    // SAFETY: both hold `n` elements and are aligned, which the grid covers.
    unsafe { gpu.launch(LaunchDims::new(tiles(n, tile::<bf16>()), BLOCK), launch)? };
    Ok(())
}

/// Repeats `pattern`, of [`PERIOD`] elements, in a tensor's memory.
fn fill(device: &Device, tensor: &mut Tensor<bf16>, pattern: &Tensor<bf16>) -> Outcome {
    let len = tensor.len();
    let (from, to) = (pattern.gpu::<bf16>("fill", "pattern")?, tensor.gpu_mut::<bf16>("fill", "tensor")?);
    (0..len)
        .step_by(PERIOD)
        .try_for_each(|first| copy(device, from, &mut to.as_slice_mut().split_at(first).1, PERIOD.min(len - first)))
}

/// The element in memory of the first pixel, and the distance of its neighbours, of a row of a tensor of images.
fn place(tensor: &Tensor<bf16>, [image, map]: [usize; 2], [row, column]: [usize; 2]) -> (usize, usize) {
    let &[image_step, map_step, row_step, column_step] = tensor.strides() else { panic!("four dimensions") };
    (image * image_step + map * map_step + row * row_step + column * column_step, column_step)
}

/// A part of one map, row after row.
fn read(
    device: &Device,
    tensor: &Tensor<bf16>,
    map: [usize; 2],
    [first_row, column]: [usize; 2],
    [rows, columns]: [usize; 2],
) -> Result<Vec<bf16>, Failed> {
    let mut values = vec![];
    for row in first_row..first_row + rows {
        let (first, step) = place(tensor, map, [row, column]);
        let (skipped, line) = around(device, tensor, first, (columns - 1) * step + 1)?;
        values.extend(line[skipped..].iter().step_by(step));
    }
    Ok(values)
}

/// Replaces a part of one map, [`SIDE`] columns wide.
fn write(
    device: &Device,
    tensor: &mut Tensor<bf16>,
    map: [usize; 2],
    [first_row, column]: [usize; 2],
    values: &[bf16],
) -> Outcome {
    for (row, values) in (first_row..).zip(values.chunks(SIDE)) {
        let (first, step) = place(tensor, map, [row, column]);
        let (skipped, mut line) = around(device, tensor, first, (SIDE - 1) * step + 1)?;
        line[skipped..].iter_mut().step_by(step).zip(values).for_each(|(element, value)| *element = *value);
        let line = Tensor::from_vec(device, &[line.len()], line)?;
        let to = tensor.gpu_mut::<bf16>("write", "tensor")?.as_slice_mut();
        copy(device, line.gpu::<bf16>("write", "line")?, &mut to.split_at(first - skipped).1, line.len())?;
    }
    Ok(())
}

/// `len` elements of a tensor's memory from element `first` on, after those, so many, that lie between a multiple of 16
/// bytes and them.
fn around(device: &Device, tensor: &Tensor<bf16>, first: usize, len: usize) -> Result<(usize, Vec<bf16>), Failed> {
    let skipped = first % 8;
    let from = tensor.gpu::<bf16>("read", "tensor")?.as_slice().slice(first - skipped..first + len);
    let mut line = Tensor::<bf16>::empty(device, &[skipped + len])?;
    copy(device, &from, line.gpu_mut::<bf16>("read", "line")?, skipped + len)?;
    Ok((skipped, line.to_vec()?))
}
