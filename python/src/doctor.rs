//! What there is to compute on.

use pyo3::prelude::*;

/// What was looked at, "good", "missing" or "bad", and a sentence.
type Finding = (String, &'static str, String);

/// Looks at the driver and the GPUs, with neither torch nor a driver needed.
#[pyfunction]
pub fn doctor() -> Vec<Finding> {
    let mut findings = vec![driver()];
    match libcuda::devices() {
        Ok(gpus) => findings.extend(gpus.iter().map(gpu)),
        Err(error) => findings.push(("GPU".into(), "missing", error.to_string())),
    }
    findings
}

fn driver() -> Finding {
    match libcuda::driver_version() {
        Ok(version) if version < libcuda::MINIMUM_DRIVER => {
            let needed = libcuda::MINIMUM_DRIVER;
            ("driver".into(), "bad", format!("supports CUDA {version}, and {needed} is the least that will do"))
        }
        Ok(version) => ("driver".into(), "good", format!("supports CUDA {version}")),
        Err(error) => ("driver".into(), "missing", error.to_string()),
    }
}

fn gpu(info: &libcuda::DeviceInfo) -> Finding {
    let (major, minor) = info.compute_capability;
    let gibibytes = info.memory >> 30;
    let text = format!("{}, compute capability {major}.{minor}, {gibibytes} GiB", info.name);
    match info.compute_capability {
        (8.., _) => (format!("GPU {}", info.ordinal), "good", text),
        _ => (format!("GPU {}", info.ordinal), "bad", format!("{text}: kernels need 8.0 or newer")),
    }
}
