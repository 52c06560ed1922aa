//! `cargo xtask doctor`: what this machine has, and how to get what it lacks.

use std::process::{Command, ExitCode};

use cuda_builder::{Compiler, Head, source_hash};

use crate::driver::{self, Driver, Gpu};
use crate::workspace::{Ptx, answer, root, shown};
use crate::{setup, tools, workspace};

/// The oldest driver that runs every file on board: `sm_80` takes CUDA 11.4, `sm_90a` 12.0.
const OLDEST_DRIVER: (i32, i32) = (11, 4);
const OLDEST_DRIVER_FOR_HOPPER: (i32, i32) = (12, 0);
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
    findings.extend(of_driver(&driver::query()));
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

fn of_driver(driver: &Result<Driver, String>) -> Vec<Finding> {
    let driver = match driver {
        Ok(driver) => driver,
        Err(why) => {
            let why = format!("{why}; everything runs on the CPU");
            // Whose command it is depends on the system; this one is Debian's and Ubuntu's.
            let mend = "sudo apt-get install nvidia-driver (or see https://www.nvidia.com/drivers)";
            return vec![finding("driver", State::Missing(why, mend.into()))];
        }
    };
    let (major, minor) = driver.cuda;
    let release = driver.release.as_ref().map(|release| format!("{release}, ")).unwrap_or_default();
    let version = format!("{release}CUDA {major}.{minor}");
    let state = if driver.cuda < OLDEST_DRIVER {
        let (major, minor) = OLDEST_DRIVER;
        let mend = "sudo apt-get install --only-upgrade nvidia-driver (or see https://www.nvidia.com/drivers)";
        State::Bad(format!("{version} is older than CUDA {major}.{minor}"), mend.into())
    } else {
        State::Good(version)
    };
    let mut findings = vec![finding("driver", state)];
    match &driver.gpus {
        Ok(gpus) => {
            let of_gpu = |(i, gpu): (usize, &Gpu)| finding(format!("GPU {i}"), of_gpu(gpu, driver.cuda));
            findings.extend(gpus.iter().enumerate().map(of_gpu));
        }
        Err(why) => {
            let mend = "nvidia-smi (says whether the system sees a GPU, and why not)";
            findings.push(finding("GPU", State::Missing(why.clone(), mend.into())));
        }
    }
    findings
}

/// A GPU against the PTX on board.
fn of_gpu(gpu: &Gpu, driver: (i32, i32)) -> State {
    let (major, minor) = gpu.compute_capability;
    let what = format!("{}, compute capability {major}.{minor}", gpu.name);
    if gpu.compute_capability < (8, 0) {
        let why = format!("{what}: the PTX on board takes 8.0 or later");
        return State::Bad(why, "use --device cpu: kernels for older GPUs are not built".into());
    }
    // PTX for sm_90a runs on 9.0 and on nothing else.
    if gpu.compute_capability == (9, 0) && driver < OLDEST_DRIVER_FOR_HOPPER {
        return State::Good(format!("{what}: runs ferrolayer.sm_80.ptx (sm_90a takes a driver for CUDA 12.0)"));
    }
    let file = if gpu.compute_capability == (9, 0) { "sm_90a" } else { "sm_80" };
    State::Good(format!("{what}: runs ferrolayer.{file}.ptx"))
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

    fn gpu(major: i32, minor: i32) -> Gpu {
        Gpu { name: "G".into(), compute_capability: (major, minor) }
    }

    #[test]
    fn a_machine_with_nothing_lacks_only_what_is_optional() {
        let findings = of_driver(&Err("there is no libcuda.so.1 here".into()));
        let text = report(&findings);
        assert!(text.starts_with("– driver: there is no libcuda.so.1 here; everything runs on the CPU\n"), "{text}");
        assert!(text.contains("\n    sudo apt-get install nvidia-driver"), "{text}");
    }

    #[test]
    fn each_gpu_is_held_against_the_ptx_on_board() {
        let said = |gpu: Gpu, driver| match of_gpu(&gpu, driver) {
            State::Good(text) => text,
            State::Bad(text, _) | State::Missing(text, _) => panic!("{text}"),
        };
        assert!(said(gpu(8, 9), (12, 4)).ends_with("runs ferrolayer.sm_80.ptx"));
        assert!(said(gpu(9, 0), (13, 0)).ends_with("runs ferrolayer.sm_90a.ptx"));
        assert!(said(gpu(9, 0), (11, 8)).contains("runs ferrolayer.sm_80.ptx"));
        assert!(said(gpu(12, 0), (13, 0)).ends_with("runs ferrolayer.sm_80.ptx"));
        assert!(matches!(of_gpu(&gpu(7, 5), (13, 0)), State::Bad(..)));
    }

    #[test]
    fn an_old_driver_is_bad_and_one_without_a_gpu_is_not() {
        let driver =
            |cuda| Driver { cuda, release: Some("470.57".into()), gpus: Err("the driver finds no GPU".into()) };
        let old = of_driver(&Ok(driver((11, 2))));
        assert!(matches!(&old[0].state, State::Bad(why, _) if why == "470.57, CUDA 11.2 is older than CUDA 11.4"));
        let new = of_driver(&Ok(driver((13, 0))));
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
