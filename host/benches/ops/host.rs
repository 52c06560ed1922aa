//! What a call costs the host: passes on tensors so small that nothing else counts.
//!
//! The library promises at most [`LIMIT`] microseconds for each kernel that a call launches, memory for its output
//! included. How many that are is asked of a graph that the call is recorded into. What the driver's call takes by itself
//! is measured in turns with each pass, with an empty kernel: it varies with the machine and with its clock.

use std::sync::Arc;

use cust::error::CudaError;
use cust::module::Module;
use cust::sys::CUfunction;
use ferrolayer::device::Gpu;
use ferrolayer::{Device, Error, Result};
use libcuda::{DriverError, LaunchAttributes, Stream};
use serde::Serialize;

use crate::command::Planned;
use crate::row::{Machine, thousandths, times};
use crate::timing::{HostTimes, host};
use crate::work::{Inputs, Noise, bind};

/// Microseconds of the host for a launch, at most.
const LIMIT: f64 = 3.0;
/// Calls a batch: the queue holds a thousand launches.
const CALLS: usize = 100;
/// What tells these lines from those of rows.
pub const KIND: &str = "overhead";

/// One result: of the kind that `python -m ferrolayer bench --overhead` writes, with the launches and the driver besides.
#[derive(Serialize)]
pub struct Row<'a> {
    pub bench: &'static str,
    pub op: &'a str,
    pub call: &'static str,
    pub dtype: &'static str,
    pub shape: &'a [usize],
    pub launches: usize,
    pub ours_us: HostTimes,
    /// Of one launch of an empty kernel, by the driver's call alone.
    pub driver_us: HostTimes,
    pub torch_us: Option<HostTimes>,
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
pub fn run<E: From<Error>>(
    gpu: &Gpu,
    machine: &Machine,
    plan: &[Planned],
    rounds: usize,
    mut write: impl FnMut(&Row<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<bool, E> {
    let name = machine.gpu.as_deref().unwrap_or("a GPU");
    println!("host µs of a call on {name}, best and median of {rounds} rounds of {CALLS} calls");
    println!("driver: of an empty kernel's launch by the driver's call alone, best of the same rounds");
    println!(
        "{:<21} {:<9} {:<4} {:<12} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "op", "pass", "type", "shape", "launches", "best", "median", "a launch", "driver"
    );
    let empty = Empty::new(gpu)?;
    let mut over = 0;
    for planned in plan {
        let (launches, ours_us, driver_us) = measure(gpu, &empty, planned, rounds)?;
        let row = Row {
            bench: KIND,
            op: &planned.case.op,
            call: planned.pass.name(),
            dtype: planned.dtype.name(),
            shape: &planned.case.shape,
            launches,
            ours_us,
            driver_us,
            torch_us: None,
            ratio: None,
            target: LIMIT * launches.max(1) as f64,
            machine,
        };
        let HostTimes { best, median } = ours_us;
        let (each, driver) = (thousandths(best / launches.max(1) as f64), driver_us.best);
        let verdict = if best > row.target { "  over" } else { "" };
        over += usize::from(best > row.target);
        let (op, call, dtype, shape) = (row.op, row.call, row.dtype, times(row.shape));
        println!(
            "{op:<21} {call:<9} {dtype:<4} {shape:<12} {launches:>8} {best:>8.2} {median:>8.2} {each:>8.2} {driver:>8.2}{verdict}"
        );
        write(&row)?;
    }
    println!("{} of {} calls within {LIMIT} µs a launch", plan.len() - over, plan.len());
    Ok(over == 0)
}

/// Launches of a call, what it costs, and what the driver's call does.
fn measure(gpu: &Gpu, empty: &Empty, planned: &Planned, rounds: usize) -> Result<(usize, HostTimes, HostTimes)> {
    let device = Device::Gpu(gpu.clone());
    let inputs = Inputs::new(&device, 1, planned.layout.1, Noise::default());
    let mut run = bind(&inputs, &planned.case, planned.pass, planned.dtype)?;
    run(0)?;
    let drain = || {
        gpu.synchronize()?;
        Empty::told(empty.stream.synchronize())
    };
    let [ours, driver] = host(drain, [&mut run, &mut |_| empty.launch()], CALLS, rounds)?;
    // A copy by the driver is no kernel.
    let launches = if planned.case.op == "copy" { 0 } else { gpu.record(|| run(0))?.0.kernels().len() };
    Ok((launches, ours, driver))
}

/// A kernel that does nothing, and a stream to launch it on.
struct Empty {
    stream: Stream,
    function: CUfunction,
    /// What has the function.
    _module: Module,
}

impl Empty {
    const PTX: &str = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\n    ret;\n}\n";

    fn new(gpu: &Gpu) -> Result<Self> {
        fn cust<R>(call: &'static str, error: CudaError) -> Result<R> {
            Empty::told(Err(DriverError::from_cust(call, error)))
        }
        let device = cust::device::Device::get_device(gpu.ordinal().unwrap_or_default());
        let device = device.or_else(|error| cust("cuDeviceGet", error))?;
        let context = Arc::new(Self::told(libcuda::primary_context(device))?);
        let stream = Self::told(Stream::new(&context))?;
        let load = || {
            let module = Module::from_ptx(Self::PTX, &[]).or_else(|error| cust("cuModuleLoadDataEx", error))?;
            let function = module.get_function("empty").map(|function| function.to_raw());
            let function = function.or_else(|error| cust("cuModuleGetFunction", error))?;
            Ok(Self { stream, function, _module: module })
        };
        Self::told(libcuda::with_current(&context, load))?
    }

    fn launch(&self) -> Result<()> {
        const ONE: [u32; 3] = [1, 1, 1];
        let attributes = LaunchAttributes::default();
        // SAFETY: the kernel has no parameters and touches nothing, and its module is there until the stream was waited for.
        Self::told(unsafe { libcuda::launch(self.function, ONE, ONE, 0, &self.stream, &mut [], attributes) })
    }

    fn told<R>(result: std::result::Result<R, DriverError>) -> Result<R> {
        result.map_err(|source| Error::Driver { during: "launching an empty kernel".into(), source })
    }
}
