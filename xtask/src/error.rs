//! What can go wrong in a command.

use std::path::PathBuf;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Build(#[from] cuda_builder::BuildError),
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot start `{command}`: {source}")]
    Start { command: String, source: std::io::Error },
    #[error("`{command}` failed with exit code {code}")]
    Failed { command: String, code: u8 },
    /// The committed PTX is not what the sources give.
    #[error("{}", .0.join("\n"))]
    Stale(Vec<String>),
    #[error(
        "{0}: {1}: no kernel of the file may be launched before the grid before it has ended, which costs each launch a microsecond"
    )]
    Early(String, String),
    #[error(
        "no ptxas found. Install it with: cargo xtask setup (looked at $PTXAS, {}, PATH and the CUDA toolkit's folders)",
        .0.display()
    )]
    NoPtxas(PathBuf),
    #[error("ptxas refuses {file} for {target}:\n{said}")]
    Ptxas { file: String, target: String, said: String },
    #[error("{}", .0.join("\n"))]
    Spills(Vec<String>),
    #[error("ptxas runs products of {file} for {target} one after another:\n{}", said.join("\n"))]
    Serialised { file: String, target: String, said: Vec<String> },
    #[error("{path}: {why}")]
    SpillList { path: PathBuf, why: String },
    #[error("the PTX has `{line}` after kernel {after}: what kernels share must be declared before all of them")]
    SharedByKernels { after: String, line: String },
    #[error("{}", .0.join("\n"))]
    Setup(Vec<String>),
    #[error("{0}")]
    Bundle(String),
    #[error("{0}")]
    NewOp(String),
    #[error("{0}")]
    Wheel(String),
}

impl Error {
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
