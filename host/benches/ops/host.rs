//! What a call costs the host: passes on tensors so small that nothing else counts.
//!
//! The library promises at most [`LIMIT`] microseconds for each kernel that a call launches, memory for its output
//! included. How many that are is asked of a graph that the call is recorded into.

use ferrolayer::device::Gpu;
use ferrolayer::{Device, Result};
use serde::Serialize;

use crate::command::Planned;
use crate::row::{Machine, thousandths, times};
use crate::timing::{Effort, Timer};
use crate::work::{Inputs, Noise, bind};

/// Microseconds of the host for a launch, at most.
const LIMIT: f64 = 3.0;
/// What tells these lines from those of rows.
pub const KIND: &str = "overhead";
/// Calls a batch: the queue holds a thousand launches.
const CALLS: usize = 100;
/// Nothing is copied or kept out of a cache here.
const EFFORT: Effort = Effort { copied: 1 << 20, cache: 1 << 20, warm_up: std::time::Duration::ZERO };

/// Microseconds of the host for a call.
#[derive(Serialize)]
pub struct Call {
    pub best: f64,
    pub median: f64,
}

/// One result: of the kind that `python -m ferrolayer bench --overhead` writes, with the launches besides.
#[derive(Serialize)]
pub struct Row<'a> {
    pub bench: &'static str,
    pub op: &'a str,
    pub call: &'static str,
    pub dtype: &'static str,
    pub shape: &'a [usize],
    pub launches: usize,
    pub ours_us: Call,
    pub torch_us: Option<Call>,
    pub ratio: Option<f64>,
    pub target: f64,
    #[serde(flatten)]
    pub machine: &'a Machine,
}

impl Row<'_> {
    /// One line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names")
    }
}

/// Measures what is planned; whether every call is within its limit.
pub fn run<E: From<ferrolayer::Error>>(
    gpu: &Gpu,
    machine: &Machine,
    plan: &[Planned],
    rounds: usize,
    mut write: impl FnMut(&Row<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<bool, E> {
    let timer = Timer::new(gpu, 1 << 30, &EFFORT)?;
    println!(
        "host µs of a call on {}, best and median of {rounds} rounds of {CALLS} calls",
        machine.gpu.as_deref().unwrap_or("a GPU")
    );
    println!(
        "{:<21} {:<9} {:<4} {:<12} {:>8} {:>8} {:>8} {:>8}",
        "op", "pass", "type", "shape", "launches", "best", "median", "a launch"
    );
    let mut over = 0;
    for planned in plan {
        let (launches, best, median) = measure(gpu, &timer, planned, rounds)?;
        let row = Row {
            bench: KIND,
            op: &planned.case.op,
            call: planned.pass.name(),
            dtype: planned.dtype.name(),
            shape: &planned.case.shape,
            launches,
            ours_us: Call { best, median },
            torch_us: None,
            ratio: None,
            target: LIMIT * launches.max(1) as f64,
            machine,
        };
        let each = thousandths(best / launches.max(1) as f64);
        let verdict = if best > row.target { "  over" } else { "" };
        over += usize::from(best > row.target);
        println!(
            "{:<21} {:<9} {:<4} {:<12} {launches:>8} {best:>8.2} {median:>8.2} {each:>8.2}{verdict}",
            row.op,
            row.call,
            row.dtype,
            times(row.shape)
        );
        write(&row)?;
    }
    println!("{} of {} calls within {LIMIT} µs a launch", plan.len() - over, plan.len());
    Ok(over == 0)
}

/// Launches, and best and median microseconds, of a call.
fn measure(gpu: &Gpu, timer: &Timer, planned: &Planned, rounds: usize) -> Result<(usize, f64, f64)> {
    let device = Device::Gpu(gpu.clone());
    let inputs = Inputs::new(&device, 1, planned.layout.1, Noise::default());
    let mut run = bind(&inputs, &planned.case, planned.pass, planned.dtype)?;
    run(0)?;
    let (best, median) = timer.host(&mut run, CALLS, rounds)?;
    // A copy by the driver is no kernel.
    let launches = if planned.case.op == "copy" { 0 } else { gpu.record(|| run(0))?.0.kernels().len() };
    Ok((launches, best, median))
}
