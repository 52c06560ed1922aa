//! Where things lie in the repository, and running commands there.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use cuda_builder::Arch;

use crate::error::{Error, Result};
use crate::packed;

/// The repository's folder.
pub fn root() -> PathBuf {
    // Cargo says where the package is now; the build's own answer is for a binary that is started by hand.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = package.filter(|path| path.ends_with("xtask")).unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    package.parent().map_or_else(|| package.clone(), Path::to_owned)
}

/// The crate of kernels.
pub fn kernels() -> PathBuf {
    root().join("kernels")
}

/// A committed PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    /// The crate of kernels, or the file with some, that it is built of.
    pub source: PathBuf,
    pub arch: Arch,
    /// The file; packed if its name ends in `.zst`.
    pub path: PathBuf,
}

impl Ptx {
    /// Where its text lies unpacked once it was built or unpacked for a tool.
    pub fn text_path(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default();
        if packed::is_packed(&self.path) {
            target_dir().join("ptx").join(Path::new(name).with_extension(""))
        } else {
            self.path.clone()
        }
    }
}

/// All that are committed: the library's, and those of the examples of a user's own op, which are for any GPU.
pub fn committed() -> Vec<Ptx> {
    let library = Arch::ALL.map(|arch| (kernels(), arch, format!("host/ptx/ferrolayer.{arch}.ptx.zst")));
    let examples = ["host/examples/custom_op", "python/examples/your_own_op/src/op"];
    let examples = examples.map(|file| (root().join(format!("{file}.rs")), Arch::Sm80, format!("{file}.sm_80.ptx")));
    let all = library.into_iter().chain(examples);
    all.map(|(source, arch, path)| Ptx { source, arch, path: root().join(path) }).collect()
}

/// Gives the example package the versions of crates that this workspace has, which its PTX is built with. The package is a
/// workspace of its own, as a user's is, and Cargo would choose the versions anew.
///
/// # Errors
/// If a lock file cannot be copied.
pub fn lock_example() -> Result<()> {
    let (ours, its) = (root().join("Cargo.lock"), root().join("python/examples/your_own_op/Cargo.lock"));
    std::fs::copy(&ours, &its).map(drop).map_err(Error::io("write", its))
}

/// The path inside the repository, as it is shown.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Where Cargo builds.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The commit that this is, and whether there are changes to it; `None` of sources without a repository.
pub fn commit() -> Option<String> {
    answer(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root()))
}

/// The Cargo that runs this, in the repository's folder.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    // For the commands of `cargo run` itself: a build of other packages would be built again because of them.
    for (name, _) in std::env::vars_os() {
        let own = name.to_string_lossy();
        let of_the_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if of_the_package.iter().any(|prefix| own.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// The command as it would be typed.
pub fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs a command with its output shown.
///
/// # Errors
/// If it does not start or does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", typed(command));
    let status = command.status().map_err(|source| Error::Start { command: typed(command), source })?;
    succeeded(command, status)
}

/// Fails unless the command did what it should.
///
/// # Errors
/// [`Error::Failed`]
pub fn succeeded(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(Error::Failed { command: typed(command), code })
}

/// The first lines that a command prints, if it can be run and succeeds.
pub fn answer(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
