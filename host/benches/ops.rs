//! How long each pass takes on the GPU, beside the rate at which the same GPU copies memory.
//!
//! `cargo bench --bench ops [FILTER]`. Every row: the median over at least [`RUNS`] runs timed by events, inputs rotated so
//! that the L2 cache does not serve them. `share` is the time that copying the fewest bytes of the pass would take (each input
//! read once, each output written once, at the copy rate of the same run) over the time it took.

use std::process::ExitCode;

use ferrolayer::device::Gpu;
use ferrolayer::ops::dense::{self, Activation, Gradients};
use ferrolayer::ops::stochastic_pool::{self, Random};
use ferrolayer::ops::{Window, add2, avg_pool, gaussian_pool, max_pool, prelu, relu, scale_add};
use ferrolayer::{Device, Layout, Out, Real, Result, Tensor, bf16};

/// Timed runs of each row.
const RUNS: usize = 50;
/// Bytes that the inputs of one row take together at least, several times a large L2 cache.
const ROTATED: usize = 512 << 20;

fn main() -> ExitCode {
    // `cargo bench` passes `--bench`; what else there is says which rows to run.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let gpu = match Gpu::new(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            eprintln!("nothing to measure: {error}");
            return ExitCode::from(2);
        }
    };
    match Bench::new(gpu, filter).and_then(|mut bench| bench.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Bench {
    gpu: Gpu,
    device: Device,
    filter: String,
    /// Bytes read plus written a second by a copy within the GPU.
    copy_rate: f64,
}

impl Bench {
    fn new(gpu: Gpu, filter: String) -> Result<Self> {
        let device = Device::Gpu(gpu.clone());
        let mut bench = Self { gpu, device, filter, copy_rate: 0.0 };
        let bytes = 2usize << 30;
        let source = Tensor::<u32>::empty(&bench.device, &[bytes / 4])?;
        let time = bench.median(|_| {
            // Writing to one of two owners copies first: the copy that is measured.
            let mut copy = source.clone();
            copy.gpu_mut::<u32>("bench", "copy").map(drop)
        })?;
        bench.copy_rate = 2.0 * bytes as f64 / time;
        println!("{}: copies at {:.0} GB/s (2 GiB, bytes read and written)", bench.device, bench.copy_rate / 1e9);
        println!("{:<64} {:>9} {:>8} {:>7}", "pass", "ms", "GB/s", "share");
        Ok(bench)
    }

    /// The median of the runs, in seconds; `work` gets the run's number.
    fn median(&self, mut work: impl FnMut(usize) -> Result<()>) -> Result<f64> {
        for run in 0..5 {
            work(run)?;
        }
        let mut times = Vec::with_capacity(RUNS);
        for run in 0..RUNS {
            times.push(self.gpu.time(|| work(run))?);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[RUNS / 2])
    }

    fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// A row bound by memory: `elements` f32 are read and written at least.
    fn memory(&self, name: &str, bytes: usize, work: impl FnMut(usize) -> Result<()>) -> Result<()> {
        if self.wants(name) {
            let time = self.median(work)?;
            let rate = bytes as f64 / time;
            let share = rate / self.copy_rate;
            println!("{name:<64} {:>9.4} {:>8.0} {share:>7.3}", time * 1e3, rate / 1e9);
        }
        Ok(())
    }

    /// A row bound by arithmetic.
    fn arithmetic(&self, name: &str, operations: f64, work: impl FnMut(usize) -> Result<()>) -> Result<()> {
        if self.wants(name) {
            let time = self.median(work)?;
            println!("{name:<64} {:>9.4} {:>8.1} TFLOP/s", time * 1e3, operations / time / 1e12);
        }
        Ok(())
    }

    /// Enough tensors of this shape to rotate among, of varied values.
    fn sets(&self, shape: &[usize]) -> Result<Vec<Tensor<f32>>> {
        self.sets_in(shape, Layout::RowMajor)
    }

    /// As [`Bench::sets`], of any type and layout.
    fn sets_in<T: Real>(&self, shape: &[usize], layout: Layout) -> Result<Vec<Tensor<T>>> {
        let len: usize = shape.iter().product();
        let count = ROTATED.div_ceil(len * size_of::<T>()).clamp(2, 64);
        let values = |seed| noise(seed, len).into_iter().map(|x| T::of(x.into())).collect();
        (0..count).map(|seed| Tensor::from_vec(&self.device, shape, values(seed as u32))?.to_layout(layout)).collect()
    }

    fn run(&mut self) -> Result<()> {
        self.elementwise()?;
        self.pooling()?;
        self.gaussian()?;
        self.dense()
    }

    fn elementwise(&self) -> Result<()> {
        let shape = [64, 256, 56, 56];
        let bytes = 4 * shape.iter().product::<usize>();
        let x = self.sets(&shape)?;
        let dy = self.sets(&shape)?;
        let pick = |of: &'_ [Tensor<f32>], run: usize| of[run % of.len()].clone();
        let mut dx = x[0].empty_like()?;
        let s = Tensor::full(&self.device, &[1], 0.5)?;
        self.memory("relu forward", 2 * bytes, |run| relu::forward(&pick(&x, run)).map(drop))?;
        self.memory("relu backward", 3 * bytes, |run| {
            relu::backward(&pick(&x, run), &pick(&dy, run), Out::write(&mut dx))
        })?;
        self.memory("add2 forward", 3 * bytes, |run| add2::forward(&pick(&x, run), &pick(&dy, run)).map(drop))?;
        self.memory("scale_add forward", 2 * bytes, |run| scale_add::forward(&pick(&x, run), &s, &s).map(drop))?;
        let alpha = Tensor::full(&self.device, &[256], 0.25)?;
        let mut dalpha = alpha.empty_like()?;
        self.memory("prelu forward, per channel", 2 * bytes, |run| prelu::forward(&pick(&x, run), &alpha).map(drop))?;
        self.memory("prelu backward, dx and dalpha", 3 * bytes, |run| {
            let (dx, dalpha) = (Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)));
            prelu::backward(&pick(&x, run), &alpha, &pick(&dy, run), dx, dalpha)
        })
    }

    fn pooling(&self) -> Result<()> {
        let windows = [
            ("3x3 s2 p1", Window::new([3, 3]).stride([2, 2]).padding([1, 1])),
            ("3x3 s2", Window::new([3, 3]).stride([2, 2])),
            ("2x2 s2", Window::new([2, 2])),
        ];
        for (label, window) in windows {
            self.pool::<f32>(label, &window, [64, 64, 112, 112], Layout::RowMajor)?;
            self.pool::<f32>(label, &window, [64, 64, 112, 112], Layout::ChannelsLast)?;
            self.pool::<bf16>(label, &window, [64, 64, 112, 112], Layout::RowMajor)?;
            self.pool::<bf16>(label, &window, [64, 64, 112, 112], Layout::ChannelsLast)?;
        }
        let beside = Window::new([9, 9]).stride([3, 3]).padding([4, 4]);
        self.pool::<f32>("9x9 s3 p4", &beside, [64, 64, 111, 113], Layout::RowMajor)?;
        self.pool::<f32>("3x3 s2 p1", &windows[0].1, [64, 64, 111, 113], Layout::RowMajor)?;
        self.pool::<f32>("2x2 s2", &windows[2].1, [64, 64, 111, 113], Layout::RowMajor)
    }

    /// Pooling that picks and that averages over images of this shape.
    fn pool<T: Real>(&self, label: &str, window: &Window, shape: [usize; 4], layout: Layout) -> Result<()> {
        let row = |op: &str, pass: &str| {
            let [_, _, height, width] = shape;
            format!("{op} {label} {height}x{width} {} {} {pass}", T::DTYPE, layout.name())
        };
        let [height, width] = window.output_size("bench", [shape[2], shape[3]])?;
        let out = [shape[0], shape[1], height, width];
        let names = ["max_pool", "avg_pool", "stochastic_pool"].map(|op| [row(op, "forward"), row(op, "backward")]);
        if !names.iter().flatten().any(|name| self.wants(name)) {
            return Ok(());
        }
        let [max, average, stochastic] = names;
        let (x, dy) = (self.sets_in::<T>(&shape, layout)?, self.sets_in::<T>(&out, layout)?);
        let (elements, outputs) = (x[0].len(), dy[0].len());
        let (picked, averaged) =
            (size_of::<T>() * (elements + outputs) + outputs, size_of::<T>() * (elements + outputs));
        let mut dx = x[0].empty_like()?;
        let pick = |run: usize| &x[run % x.len()];
        self.memory(&max[0], picked, |run| max_pool::forward(pick(run), window).map(drop))?;
        let indices =
            (0..dy.len()).map(|run| Ok(max_pool::forward(pick(run), window)?.indices)).collect::<Result<Vec<_>>>()?;
        self.memory(&max[1], picked, |run| {
            let run = run % dy.len();
            max_pool::backward(&dy[run], &indices[run], window, &shape, Out::write(&mut dx))
        })?;
        let divisor = avg_pool::Divisor::default();
        self.memory(&average[0], averaged, |run| avg_pool::forward(pick(run), window, &divisor).map(drop))?;
        self.memory(&average[1], averaged, |run| {
            avg_pool::backward(&dy[run % dy.len()], window, &divisor, &shape, Out::write(&mut dx))
        })?;
        let mut random = Random::new(&self.device, 0)?;
        self.memory(&stochastic[0], picked, |run| stochastic_pool::forward(pick(run), window, &mut random).map(drop))?;
        self.memory(&stochastic[1], picked, |run| {
            let run = run % dy.len();
            stochastic_pool::backward(&dy[run], &indices[run], window, &shape, Out::write(&mut dx))
        })
    }

    fn gaussian(&self) -> Result<()> {
        let shape = [64, 64, 112, 112];
        let x = self.sets(&shape)?;
        let elements: usize = shape.iter().product();
        let mut dx = x[0].empty_like()?;
        for (size, kernels) in [(3, 1), (11, 1), (11, 3)] {
            let window = Window::new([size, size]).stride([2, 2]);
            let [h, w] = window.output_size("bench", [112, 112])?;
            let mean = Tensor::zeros(&self.device, &[1, kernels, 2])?;
            let var = Tensor::full(&self.device, &[1, kernels, 1], 4.0)?;
            let (mut dmean, mut dvar) = (mean.empty_like()?, var.empty_like()?);
            let dy = self.sets(&[64, 64 * kernels, h, w])?;
            let outputs = dy[0].len();
            let normalize = gaussian_pool::Normalize::Window;
            let name = |pass: &str| format!("gaussian_pool {size}x{size} s2, {kernels} a map, {pass}");
            self.memory(&name("forward"), 4 * (elements + outputs), |run| {
                gaussian_pool::forward(&x[run % x.len()], &mean, &var, &window, normalize).map(drop)
            })?;
            self.memory(&name("dx"), 4 * (elements + outputs), |run| {
                let (x, dy) = (&x[run % x.len()], &dy[run % dy.len()]);
                gaussian_pool::backward(x, &mean, &var, &window, normalize, dy, Some(Out::write(&mut dx)), None, None)
            })?;
            self.memory(&name("dx, dmean, dvar"), 4 * (2 * elements + outputs), |run| {
                let (x, dy) = (&x[run % x.len()], &dy[run % dy.len()]);
                let (dmean, dvar) = (Some(Out::write(&mut dmean)), Some(Out::write(&mut dvar)));
                gaussian_pool::backward(x, &mean, &var, &window, normalize, dy, Some(Out::write(&mut dx)), dmean, dvar)
            })?;
        }
        Ok(())
    }

    fn dense(&self) -> Result<()> {
        for (n, i, o) in [(1024, 1024, 1024), (4096, 4096, 4096), (128, 4096, 4096)] {
            let (x, w, dy) = (self.sets(&[n, i])?, self.sets(&[o, i])?, self.sets(&[n, o])?);
            let b = Tensor::zeros(&self.device, &[o])?;
            let operations = 2.0 * n as f64 * i as f64 * o as f64;
            let name = |pass: &str| format!("dense {n}x{i}x{o} {pass}");
            let pick = |of: &'_ [Tensor<f32>], run: usize| of[run % of.len()].clone();
            self.arithmetic(&name("forward, bias, relu"), operations, |run| {
                dense::forward(&pick(&x, run), &pick(&w, run), Some(&b), Activation::Relu).map(drop)
            })?;
            let saved = dense::forward(&x[0], &w[0], None, Activation::Identity)?.saved;
            let (mut dx, mut dw) = (x[0].empty_like()?, w[0].empty_like()?);
            self.arithmetic(&name("dx"), operations, |run| {
                let gradients = Gradients { dx: Some(Out::write(&mut dx)), ..Gradients::default() };
                dense::backward(
                    &pick(&x, run),
                    &pick(&w, run),
                    Activation::Identity,
                    &saved,
                    &pick(&dy, run),
                    gradients,
                )
            })?;
            self.arithmetic(&name("dw"), operations, |run| {
                let gradients = Gradients { dw: Some(Out::write(&mut dw)), ..Gradients::default() };
                dense::backward(
                    &pick(&x, run),
                    &pick(&w, run),
                    Activation::Identity,
                    &saved,
                    &pick(&dy, run),
                    gradients,
                )
            })?;
        }
        Ok(())
    }
}

/// Numbers between -1 and 1 of no pattern (a linear congruential generator's high bits).
fn noise(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}
