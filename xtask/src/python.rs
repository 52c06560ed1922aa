//! `cargo xtask test-python`: the Python package as a wheel, in an environment of its own, under its tests.
//! `cargo xtask plot`: results of either bench as PNG, drawn by the package in that environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::workspace::{root, run as run_command, target_dir};

/// What a wheel may have, in bytes: the limit that the package sets itself.
const LARGEST_WHEEL: u64 = 15_000_000;

#[derive(clap::Args)]
pub struct Options {
    /// Another version of PyTorch than the tests' requirements name
    #[arg(long, value_name = "VERSION")]
    torch: Option<String>,
    /// Passed on to pytest
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let environment = Environment::make(options.torch.as_deref())?;
    environment.install(&environment.wheel(&root().join("python"))?)?;
    environment.test(&root().join("python/tests"), &options.arguments)
}

#[derive(clap::Args)]
pub struct PlotOptions {
    /// The folder to write PNGs to; made if it does not exist
    dir: PathBuf,
    /// What `cargo xtask bench --json` or `python -m ferrolayer bench --json` wrote
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// One drawing for both benches: the Python package has it for its comparison with PyTorch.
pub fn plot(options: &PlotOptions) -> Result<()> {
    let environment = Environment::make(None)?;
    environment.install(&environment.wheel(&root().join("python"))?)?;
    let mut python = Command::new(environment.program("python"));
    python.args(["-m", "ferrolayer", "bench", "--plot"]).arg(&options.dir).arg("--report").args(&options.files);
    run_command(&mut python)
}

/// A virtual environment with PyTorch and what the tests need.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// One for each version of PyTorch; made if it does not exist.
    fn make(torch: Option<&str>) -> Result<Self> {
        let name = torch.map_or_else(|| "environment".into(), |version| format!("environment-{version}"));
        let environment = Self { folder: target_dir().join("python").join(name) };
        if !environment.program("pip").exists() {
            run_command(Command::new("python3").args(["-m", "venv"]).arg(&environment.folder))?;
        }
        let mut pip = environment.pip();
        pip.arg("--requirement").arg(root().join("python/tests/requirements.txt"));
        if let Some(version) = torch {
            // After the requirements, whose version it is instead of.
            run_command(&mut pip)?;
            pip = environment.pip();
            pip.arg(format!("torch=={version}"));
        }
        run_command(&mut pip)?;
        Ok(environment)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    fn pip(&self) -> Command {
        let mut pip = Command::new(self.program("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip
    }

    /// Builds a package's wheel as it is released, for any Linux of its processor.
    fn wheel(&self, package: &Path) -> Result<PathBuf> {
        let folder = target_dir().join("python/wheels");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?;
        }
        let mut maturin = Command::new(self.program("maturin"));
        run_command(maturin.args(["build", "--release", "--quiet", "--out"]).arg(&folder).current_dir(package))?;
        let mut entries = std::fs::read_dir(&folder).map_err(Error::io("read", &folder))?;
        let wheel = entries.next().and_then(|entry| entry.ok()).map(|entry| entry.path());
        let wheel = wheel.ok_or_else(|| Error::Wheel(format!("maturin left no wheel in {}", folder.display())))?;
        let bytes = std::fs::metadata(&wheel).map_err(Error::io("read", &wheel))?.len();
        let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if bytes > LARGEST_WHEEL {
            return Err(Error::Wheel(format!("{name} has {bytes} bytes, more than {LARGEST_WHEEL}")));
        }
        println!("{name}: {:.1} MB", bytes as f64 / 1e6);
        Ok(wheel)
    }

    fn install(&self, wheel: &Path) -> Result<()> {
        // Also over one of the same version, which pip would keep.
        run_command(self.pip().args(["--force-reinstall", "--no-deps"]).arg(wheel))
    }

    /// Runs the tests in `folder` against what is installed: from a folder that has no sources.
    fn test(&self, folder: &Path, arguments: &[String]) -> Result<()> {
        let mut pytest = Command::new(self.program("pytest"));
        pytest.arg(folder).args(["-p", "no:cacheprovider"]).args(arguments).current_dir(&self.folder);
        run_command(&mut pytest)
    }
}
