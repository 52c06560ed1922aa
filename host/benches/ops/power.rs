//! The clock that a GPU runs at and the watts that it takes while a pass is timed: what limits its tensor cores.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};

/// As often the clock is read.
const EVERY: Duration = Duration::from_millis(5);

/// How long a pass is repeated for them: the driver counts energy some ten times a second.
pub const LEAST: Duration = Duration::from_secs(1);

/// Of a GPU while a pass was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// The multiprocessors' clock, the median of what was read.
    pub mhz: f64,
    /// Energy over time.
    pub watts: f64,
}

/// Reads them of one GPU, through the driver's management library.
pub struct Meter {
    nvml: Nvml,
    gpu: u32,
}

impl Meter {
    /// Of the GPU with this number, as `nvidia-smi` counts them.
    pub fn new(gpu: u32) -> Result<Self, NvmlError> {
        // By its whole name: without the version it is there only where one develops.
        let nvml = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init()?;
        let meter = Self { nvml, gpu };
        meter.energy()?;
        meter.clock()?;
        Ok(meter)
    }

    /// Millijoules since the driver was loaded.
    fn energy(&self) -> Result<u64, NvmlError> {
        self.nvml.device_by_index(self.gpu)?.total_energy_consumption()
    }

    fn clock(&self) -> Result<u32, NvmlError> {
        self.nvml.device_by_index(self.gpu)?.clock_info(Clock::SM)
    }

    /// Does `work`; what was read meanwhile.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Option<Power>) {
        let done = AtomicBool::new(false);
        let (start, before) = (Instant::now(), self.energy());
        let (result, clocks) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut clocks = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    clocks.extend(self.clock().ok());
                    std::thread::sleep(EVERY);
                }
                clocks
            });
            let result = work();
            done.store(true, Ordering::Relaxed);
            (result, reader.join().unwrap_or_default())
        });
        let joules = before.and_then(|before| Ok((self.energy()?.saturating_sub(before)) as f64 / 1e3)).ok();
        let power = joules.zip(median(clocks)).map(|(joules, mhz)| {
            let watts = joules / start.elapsed().as_secs_f64();
            Power { mhz, watts: watts.round() }
        });
        (result, power)
    }
}

/// The one in the middle, of two the larger; `None` of none.
pub fn median(mut values: Vec<u32>) -> Option<f64> {
    values.sort_unstable();
    values.get(values.len() / 2).map(|&value| f64::from(value))
}
