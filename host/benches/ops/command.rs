//! The command: its options, and what it does in which order.

use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use ferrolayer::device::{Gpu, presence};
use ferrolayer::ops::dense::Precision;
use ferrolayer::{DType, Device, Error, Layout};

use crate::case::{Case, Pass, Which, cases, layouts, ops, passes, types};
use crate::power::{LEAST, Meter};
use crate::report::Columns;
use crate::row::{Machine, Row, read, times};
use crate::timing::{Effort, Timer};
use crate::tune::{self, Asked};
use crate::work::{Inputs, Noise, Run, bind};
use crate::{host, report};

/// The largest input of a series of sizes, in bytes.
const LARGEST: usize = 8 << 30;
/// What is measured in such a series where no op is named.
const OF_SIZES: [&str; 4] = ["copy", "relu", "prelu", "max_pool"];

/// Times every op on a GPU, beside the rate at which that GPU copies.
#[derive(Parser)]
#[command(name = "bench")]
pub struct Arguments {
    /// Only rows with this in their names, such as `pool` or `backward f32 NHWC`
    filter: Option<String>,
    /// Only these ops
    #[arg(long, num_args = 1.., value_name = "NAME", value_parser = PossibleValuesParser::new(ops()))]
    ops: Vec<String>,
    /// Only these types: f32, f16, bf16
    #[arg(long, num_args = 1.., value_name = "NAME", value_parser = PossibleValuesParser::new(["f32", "f16", "bf16"]))]
    types: Vec<String>,
    /// Only these layouts, of images: NCHW, NHWC
    #[arg(long, num_args = 1.., value_name = "NAME", value_parser = PossibleValuesParser::new(["NCHW", "NHWC"]))]
    layouts: Vec<String>,
    /// Only these passes
    #[arg(long, num_args = 1.., value_name = "NAME", value_parser = PossibleValuesParser::new(Pass::ALL.map(Pass::name)))]
    passes: Vec<String>,
    /// Only inputs of these shapes, such as 64x64x112x112
    #[arg(long, num_args = 1.., value_name = "SHAPE")]
    shapes: Vec<String>,
    /// The GPU's number
    #[arg(long, default_value_t = 0, value_name = "N")]
    gpu: u32,
    /// Timed runs of each row, or --host's rounds
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// f32, NCHW, and the shapes of the tables in docs/perf alone
    #[arg(long)]
    quick: bool,
    /// Only rows that have a target
    #[arg(long)]
    targets: bool,
    /// Instead of the tables' shapes a wide sweep: 7x7 to 1024x1024, 1 to 4096 channels, windows of 2 to the whole image
    #[arg(long, conflicts_with_all = ["sizes", "targets"])]
    sweep: bool,
    /// Instead of the tables' shapes inputs of 1 kB to 8 GB (copies, relu, prelu and max_pool unless --ops says which)
    #[arg(long, conflicts_with = "targets")]
    sizes: bool,
    /// Instead: host microseconds of a call of each pass on a small tensor, for each launch
    #[arg(long)]
    host: bool,
    /// Repeat each row for a second at least, and show the clock and the watts meanwhile (the GPU's number is nvidia-smi's)
    #[arg(long, conflicts_with = "host")]
    power: bool,
    /// Write one JSON object a row
    #[arg(long, visible_alias = "output", value_name = "FILE")]
    json: Option<PathBuf>,
    /// List what is slower than in this earlier --json
    #[arg(long, value_name = "OLD")]
    compare: Option<PathBuf>,
    /// Measure nothing: show these files, of this bench or of `python -m ferrolayer bench`
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["json", "host"])]
    report: Vec<PathBuf>,
    /// Instead: measure every way to make a dense layer's products, of --shapes such as 512x4096x11008 (rows, inputs, outputs), --types
    /// and --passes, and keep the fastest in this file, for FERROLAYER_DENSE_TABLE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "power", "report", "json", "compare", "filter"])]
    tune: Option<PathBuf>,
    /// With --tune: write what each way near the fastest takes, a line of JSON for each product
    #[arg(long, value_name = "FILE", requires = "tune")]
    ways: Option<PathBuf>,
    /// Instead: fit the model by which 16-bit products are cut up to what these --ways say, and print its numbers, as
    /// host/src/ops/dense/plan/hopper/model/constants.rs has them
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["host", "power", "report", "json", "compare", "filter", "tune"])]
    fit: Vec<PathBuf>,
    /// Of f32, with --tune: f32, f32_split, tf32 (f32_split alone if not given)
    #[arg(long, num_args = 1.., value_name = "NAME", requires = "tune",
          value_parser = PossibleValuesParser::new(Precision::ALL.map(Precision::name)))]
    precisions: Vec<String>,
    /// What `cargo bench` gives every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Why there are no rows, or no more.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("nothing to measure: {0}")]
    NoGpu(Error),
    #[error(transparent)]
    Read(#[from] crate::row::ReadError),
    #[error("{0}")]
    Nothing(&'static str),
    #[error("--power: {0}")]
    Power(#[from] nvml_wrapper::error::NvmlError),
    #[error("{0}: {1}")]
    Write(String, std::io::Error),
    #[error("{file}, line {line}: {problem}")]
    Ways { file: String, line: usize, problem: String },
    #[error("{0:?} is no layer: rows, inputs and outputs, such as 512x4096x11008")]
    Shape(String),
    #[error(transparent)]
    Gpu(#[from] Error),
}

/// Runs the command: 1 where a row failed or is slower than in `--compare`, 2 where nothing can run.
pub fn run(arguments: &Arguments) -> ExitCode {
    match arguments.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}

/// One row to be measured.
pub struct Planned {
    pub case: Case,
    pub pass: Pass,
    pub dtype: DType,
    pub layout: (&'static str, Layout),
}

impl Planned {
    pub fn name(&self) -> String {
        let Self { case, pass, dtype, layout } = self;
        let name = [&case.op, pass.name(), dtype.name(), layout.0, &times(&case.shape)].join(" ");
        format!("{name} {}", case.options).trim_end().to_owned()
    }

    /// Bytes of one set of inputs, and with outputs and gradients.
    fn set_bytes(&self) -> (usize, usize) {
        let (size, shape) = (self.dtype.size(), &self.case.shape);
        let x: usize = shape.iter().product();
        let y: usize = self.case.output_shape().iter().product();
        match shape[..] {
            // PReLU saves its products.
            [n, i, o] if self.case.op == "dense" => {
                (size * (n * i + i * o), 2 * size * (n * i + i * o + n * o) + size * n * o)
            }
            _ => (size * x, 2 * size * (x + y) + 2 * y),
        }
    }
}

impl Arguments {
    /// Whether all is well.
    pub fn run(&self) -> Result<bool, Failure> {
        let earlier = self.compare.as_deref().map(read).transpose()?;
        if !self.report.is_empty() {
            let rows = self.report.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?.concat();
            return self.show(&rows, earlier.as_deref());
        }
        if !self.fit.is_empty() {
            tune::fit(&self.fit)?;
            return Ok(true);
        }
        if let Some(file) = &self.tune {
            let Self { shapes, types, passes, precisions, .. } = self;
            let asked = Asked { shapes, types, passes, precisions };
            // What cannot be tuned is said where there is no GPU, too.
            asked.problems()?;
            return asked.run(&Gpu::new(self.gpu).map_err(Failure::NoGpu)?, file, self.ways.as_deref());
        }
        let plan = self.plan();
        if plan.is_empty() {
            return Err(Failure::Nothing("nothing to measure: no row is all that was asked for"));
        }
        let gpu = Gpu::new(self.gpu).map_err(Failure::NoGpu)?;
        let (mut machine, memory) = machine(self.gpu);
        let mut output = self.json.as_ref().map(|path| {
            let failed = |error| Failure::Write(path.display().to_string(), error);
            File::create(path).map(LineWriter::new).map_err(failed)
        });
        let mut output = output.take().transpose()?;
        let mut write = |line: String| match &mut output {
            Some(file) => writeln!(file, "{line}").map_err(|error| Failure::Write("--json".into(), error)),
            None => Ok(()),
        };
        if self.host {
            return host::run(&gpu, &machine, &plan, self.runs as usize, |row| write(row.to_json()));
        }
        let mut timer = Timer::new(&gpu, memory, &Effort::FULL)?;
        machine.copy_gbps = Some(timer.copy_gbps);
        let method = format!("{} runs or more a row by events, inputs rotated past the cache", self.runs);
        let columns = Columns { power: self.power, ..Columns::default() };
        println!("{}", report::heading(&machine, Some(&method), columns));
        let meter = self.power.then(|| Meter::new(self.gpu)).transpose()?;
        let (runs, noise) = (self.runs as usize, Noise::default());
        let mut bench = Bench { device: Device::Gpu(gpu), machine, runs, meter, noise };
        let (mut rows, mut failed) = (Vec::new(), 0);
        for planned in &plan {
            match bench.row(&mut timer, planned) {
                Ok(Some(row)) => {
                    println!("{}", report::line(&row, columns));
                    write(row.to_json())?;
                    rows.push(row);
                }
                Ok(None) => println!("{}: left out, more than the memory there is", planned.name()),
                // One row that fails must not hide the others.
                Err(error) => {
                    println!("{}: failed: {error}", planned.name());
                    failed += 1;
                }
            }
        }
        Ok(self.conclude(&rows, earlier.as_deref()) && failed == 0)
    }

    /// The rows that are asked for, in the table's order.
    pub fn plan(&self) -> Vec<Planned> {
        let which = match self {
            _ if self.host => Which::Tiny,
            _ if self.sweep => Which::Sweep,
            _ if self.sizes => Which::Sizes(LARGEST),
            _ if self.quick => Which::Tables,
            _ => Which::All,
        };
        // One type and one layout do where they are no question.
        let few = self.quick || self.sizes || self.host;
        let named = |names: &[String], name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
        let or_few = |names: &[String], name: &str, first: &str| {
            if names.is_empty() && few { name == first } else { named(names, name) }
        };
        let of_sizes: Vec<String> = OF_SIZES.map(str::to_owned).into();
        let wanted_ops = if self.sizes && self.ops.is_empty() { &of_sizes } else { &self.ops };
        let mut plan = Vec::new();
        for case in ops().filter(|op| named(wanted_ops, op)).flat_map(|op| cases(op, which)) {
            // Precisions are f32's alone.
            let types =
                types(&case.op).iter().filter(|&&dtype| case.options.precision.is_none() || dtype == DType::F32);
            for &dtype in types.filter(|dtype| or_few(&self.types, dtype.name(), "f32")) {
                for &layout in layouts(&case.op) {
                    // The layouts of what is no image are no choice.
                    let is_choice = matches!(layout.0, "NCHW" | "NHWC");
                    if is_choice && !or_few(&self.layouts, layout.0, "NCHW") {
                        continue;
                    }
                    let passes = passes(&case.op).iter().filter(|pass| named(&self.passes, pass.name()));
                    plan.extend(passes.map(|&pass| Planned { case: case.clone(), pass, dtype, layout }));
                }
            }
        }
        plan.retain(|row| {
            let filter = self.filter.as_ref().is_none_or(|filter| row.name().contains(filter));
            let target = !self.targets || row.case.target(row.pass, row.dtype, row.layout.1).is_some();
            filter && target && named(&self.shapes, &times(&row.case.shape))
        });
        plan
    }

    /// The report of earlier runs.
    fn show(&self, rows: &[Row], earlier: Option<&[Row]>) -> Result<bool, Failure> {
        let first = rows.first().ok_or(Failure::Nothing("--report: no row in it"))?;
        let torch = rows.iter().any(|row| row.torch_us.is_some());
        let columns = Columns { torch, power: rows.iter().any(|row| row.power.is_some()) };
        println!("{}", report::heading(&first.machine, None, columns));
        for row in rows {
            println!("{}", report::line(row, columns));
        }
        Ok(self.conclude(rows, earlier))
    }

    /// What comes under the table; whether no row is slower than it was.
    fn conclude(&self, rows: &[Row], earlier: Option<&[Row]>) -> bool {
        println!("\n{}", report::summary(rows));
        let Some(earlier) = earlier else { return true };
        let (text, slower) = report::compare(earlier, rows);
        println!("compared with {}: {text}", self.compare.as_deref().unwrap_or("--".as_ref()).display());
        slower == 0
    }
}

/// What rows are measured with.
struct Bench {
    device: Device,
    machine: Machine,
    runs: usize,
    meter: Option<Meter>,
    noise: Noise,
}

impl Bench {
    /// Times one row; `None` where the GPU's memory does not hold it.
    fn row(&mut self, timer: &mut Timer, planned: &Planned) -> ferrolayer::Result<Option<Row>> {
        let Planned { case, pass, dtype, layout } = planned;
        let (input, all) = planned.set_bytes();
        let Some(sets) = timer.sets(input, all) else { return Ok(None) };
        let mut measure = |noise: &mut Noise| {
            let inputs = Inputs::new(&self.device, sets, layout.1, std::mem::take(noise));
            let bound = bind(&inputs, case, *pass, *dtype);
            *noise = inputs.into_noise();
            let mut run: Run = bound?;
            match &self.meter {
                None => Ok((timer.measure(&mut run, sets, self.runs, Duration::ZERO)?, None)),
                Some(meter) => {
                    let (times, power) = meter.during(|| timer.measure(&mut run, sets, self.runs, LEAST));
                    Ok((times?, power))
                }
            }
        };
        let mut measured = measure(&mut self.noise);
        if let Err(Error::OutOfMemory { .. }) = measured {
            // Once more, with the memory of what was kept from earlier rows.
            self.noise.clear();
            measured = measure(&mut self.noise);
        }
        let (ours_us, power) = match measured {
            Err(Error::OutOfMemory { .. }) => return Ok(None),
            other => other?,
        };
        Ok(Some(Row {
            op: case.op.clone(),
            pass: pass.name().into(),
            dtype: dtype.name().into(),
            layout: layout.0.into(),
            shape: case.shape.clone(),
            options: case.options.clone(),
            bytes: case.bytes(*pass, dtype.size()) as u64,
            flops: case.flops(*pass),
            target: case.target(*pass, *dtype, layout.1),
            baseline: String::new(),
            ours_us,
            torch_us: None,
            compiled_us: None,
            power,
            machine: self.machine.clone(),
        }))
    }
}

/// This machine, now, and its GPU's memory in bytes.
fn machine(ordinal: u32) -> (Machine, usize) {
    let presence = presence().ok();
    let gpus = presence.as_ref().and_then(|presence| presence.gpus.as_ref().ok());
    let gpu = gpus.and_then(|gpus| gpus.iter().find(|gpu| gpu.ordinal == ordinal));
    let machine = Machine {
        device: "cuda".into(),
        gpu: gpu.map(|gpu| gpu.name.clone()),
        driver: presence.as_ref().and_then(|presence| presence.release.clone()),
        torch: None,
        ferrolayer: env!("CARGO_PKG_VERSION").into(),
        // Given by `cargo xtask bench` and `bundle`: where the binary runs there may be no repository.
        commit: option_env!("FERROLAYER_COMMIT").map(str::to_owned),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        copy_gbps: None,
    };
    (machine, gpu.map_or(0, |gpu| gpu.memory as usize))
}
