//! `cargo xtask doctor`: what this machine has, and how to get what it lacks.

use std::process::{Command, ExitCode};

use cuda_builder::{Compiler, Head, source_hash};
use libcuda::{DriverVersion, MINIMUM_DRIVER, NoDriver, Presence, PtxFamily};

use crate::workspace::{Ptx, answer, root, shown};
use crate::{setup, tools, workspace};

/// Python packages that are looked at.
const PACKAGES: [&str; 2] = ["torch", "numpy"];

/// How it stands with one thing.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// There, with its version.
    Good(String),
    /// Wrong, or missing though nothing works without it; and what mends it.
    Bad(String, String),
    /// Missing, and needed for some purposes only; and what brings it.
    Missing(String, String),
}

struct Finding {
    what: String,
    state: State,
}

/// Prints the findings; fails if one of them is bad.
pub fn run() -> ExitCode {
    let mut findings = vec![rust(), compiler()];
    if let Err(error) = workspace::lock_example() {
        findings.push(finding("example of an op for PyTorch", State::Bad(error.to_string(), "mend its folder".into())));
    }
    findings.extend(workspace::committed().iter().map(committed));
    findings.extend(ptx_tools());
    findings.extend(of_driver(&libcuda::presence()));
    findings.extend(python());
    print!("{}", report(&findings));
    let bad = findings.iter().any(|finding| matches!(finding.state, State::Bad(..)));
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn report(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { what, state } in findings {
        text += &match state {
            State::Good(how) => format!("✓ {what}: {how}\n"),
            State::Bad(why, mend) => format!("✗ {what}: {why}\n    {mend}\n"),
            State::Missing(why, mend) => format!("– {what}: {why}\n    {mend}\n"),
        };
    }
    text
}

fn finding(what: impl Into<String>, state: State) -> Finding {
    Finding { what: what.into(), state }
}

fn rust() -> Finding {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let state = match answer(Command::new(rustc).arg("--version").current_dir(root())) {
        Some(version) => State::Good(version),
        None => State::Bad("rustc does not run".into(), "rustup toolchain install 1.95.0".into()),
    };
    finding("Rust", state)
}

fn compiler() -> Finding {
    let state = match Compiler::find(&root()) {
        Ok(compiler) => State::Good(compiler.to_string()),
        Err(_) => State::Missing("none; the PTX in host/ptx cannot be built again".into(), "cargo xtask setup".into()),
    };
    finding("compiler for PTX", state)
}

fn committed(ptx: &Ptx) -> Finding {
    let path = &ptx.path;
    let bad = |why: String| State::Bad(why, "cargo xtask build-ptx".into());
    let state = match (std::fs::read_to_string(path), source_hash(&ptx.source)) {
        (Err(error), _) => bad(error.to_string()),
        (_, Err(error)) => bad(error.to_string()),
        (Ok(text), Ok(sources)) => match Head::of(&text) {
            Ok(head) if head.sources == sources => State::Good(format!("from these sources, by {}", head.compiler)),
            Ok(_) => bad("from other sources than these".into()),
            Err(error) => bad(error.to_string()),
        },
    };
    finding(shown(path), state)
}

fn ptx_tools() -> Vec<Finding> {
    let tools = [
        ("ptxas", tools::ptxas(), "kernels cannot be checked for spills"),
        ("nvdisasm", tools::nvdisasm(), "machine code cannot be read"),
    ];
    let state = |tool: Option<std::path::PathBuf>, without: &str| match tool {
        Some(tool) => {
            let version = tools::version(&tool).unwrap_or_else(|| "of unknown version".into());
            State::Good(format!("{version}, {}", shown(&tool)))
        }
        None => State::Missing(format!("not found; {without}"), setup::COMMAND.into()),
    };
    tools.into_iter().map(|(name, tool, without)| finding(name, state(tool, without))).collect()
}

fn of_driver(driver: &Result<Presence, NoDriver>) -> Vec<Finding> {
    let driver = match driver {
        Ok(driver) => driver,
        Err(why) => {
            let why = format!("{why}; everything runs on the CPU");
            // Whose command it is depends on the system; this one is Debian's and Ubuntu's.
            let mend = "sudo apt-get install nvidia-driver (or see https://www.nvidia.com/drivers)";
            return vec![finding("driver", State::Missing(why, mend.into()))];
        }
    };
    let release = driver.release.as_ref().map(|release| format!("{release}, ")).unwrap_or_default();
    let version = format!("{release}CUDA {}", driver.version);
    let state = if driver.version < MINIMUM_DRIVER {
        let mend = "sudo apt-get install --only-upgrade nvidia-driver (or see https://www.nvidia.com/drivers)";
        State::Bad(format!("{version} is older than CUDA {MINIMUM_DRIVER}"), mend.into())
    } else {
        State::Good(version)
    };
    let mut findings = vec![finding("driver", state)];
    match &driver.gpus {
        Ok(gpus) => {
            findings.extend(gpus.iter().map(|gpu| {
                let state = of_gpu(&gpu.name, gpu.compute_capability, driver.version);
                finding(format!("GPU {}", gpu.ordinal), state)
            }));
        }
        Err(why) => {
            let mend = "nvidia-smi (says whether the system sees a GPU, and why not)";
            findings.push(finding("GPU", State::Missing(why.to_string(), mend.into())));
        }
    }
    findings
}

/// A GPU against the PTX on board.
fn of_gpu(name: &str, compute_capability: (u32, u32), driver: DriverVersion) -> State {
    let (major, minor) = compute_capability;
    let what = format!("{name}, compute capability {major}.{minor}");
    match PtxFamily::of(compute_capability, driver) {
        Err(why) => {
            State::Bad(format!("{what}: {why}"), "use --device cpu: kernels for older GPUs are not built".into())
        }
        Ok(PtxFamily::Sm80) if compute_capability == (9, 0) => {
            let oldest = PtxFamily::OLDEST_DRIVER_FOR_SM_90A;
            State::Good(format!("{what}: runs ferrolayer.sm_80.ptx (sm_90a takes a driver for CUDA {oldest})"))
        }
        Ok(family) => State::Good(format!("{what}: runs ferrolayer.{family}.ptx")),
    }
}

fn python() -> Vec<Finding> {
    let code = "import sys\nfrom importlib import metadata\nprint(sys.version.split()[0])\nfor name in sys.argv[1:]:\n \
                try: print(metadata.version(name))\n except metadata.PackageNotFoundError: print('-')";
    let said = answer(Command::new("python3").args(["-c", code]).args(PACKAGES));
    let Some(said) = said else {
        let why = "does not run; needed to install ptxas, and for the PyTorch package".into();
        return vec![finding("Python", State::Missing(why, "sudo apt-get install python3 python3-pip".into()))];
    };
    let mut lines = said.lines();
    let mut findings = vec![finding("Python", State::Good(lines.next().unwrap_or("of unknown version").to_owned()))];
    for (package, version) in PACKAGES.into_iter().zip(lines) {
        let state = match version {
            "-" => State::Missing("not installed".into(), format!("python3 -m pip install {package}")),
            version => State::Good(version.to_owned()),
        };
        findings.push(finding(format!("Python package {package}"), state));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_nothing_lacks_only_what_is_optional() {
        let findings = of_driver(&Err(NoDriver::Missing { reason: "not found" }));
        let text = report(&findings);
        let said = "– driver: no NVIDIA driver on this machine (not found); everything runs on the CPU\n";
        assert!(text.starts_with(said), "{text}");
        assert!(text.contains("\n    sudo apt-get install nvidia-driver"), "{text}");
    }

    #[test]
    fn each_gpu_is_held_against_the_ptx_on_board() {
        let of_gpu = |gpu, (major, minor)| of_gpu("G", gpu, DriverVersion::new(major, minor));
        let said = |gpu, driver| match of_gpu(gpu, driver) {
            State::Good(text) => text,
            State::Bad(text, _) | State::Missing(text, _) => panic!("{text}"),
        };
        assert!(said((8, 9), (12, 4)).ends_with("runs ferrolayer.sm_80.ptx"));
        assert!(said((9, 0), (13, 0)).ends_with("runs ferrolayer.sm_90a.ptx"));
        assert!(said((9, 0), (11, 8)).contains("runs ferrolayer.sm_80.ptx"));
        assert!(said((12, 0), (13, 0)).ends_with("runs ferrolayer.sm_80.ptx"));
        assert!(matches!(of_gpu((7, 5), (13, 0)), State::Bad(..)));
    }

    #[test]
    fn an_old_driver_is_bad_and_one_without_a_gpu_is_not() {
        let driver = |version| Presence { version, release: Some("470.57".into()), gpus: Err(NoDriver::NoDevice) };
        let old = of_driver(&Ok(driver(DriverVersion::new(11, 2))));
        assert!(matches!(&old[0].state, State::Bad(why, _) if why == "470.57, CUDA 11.2 is older than CUDA 11.4"));
        let new = of_driver(&Ok(driver(DriverVersion::new(13, 0))));
        assert_eq!(new[0].state, State::Good("470.57, CUDA 13.0".into()));
        assert!(matches!(new[1].state, State::Missing(..)));
    }

    #[test]
    fn every_cross_and_every_dash_has_the_command_that_mends_it() {
        let text = report(&[
            finding("a", State::Good("1".into())),
            finding("b", State::Bad("gone".into(), "mend b".into())),
            finding("c", State::Missing("not found".into(), "get c".into())),
        ]);
        assert_eq!(text, "✓ a: 1\n✗ b: gone\n    mend b\n– c: not found\n    get c\n");
    }
}
