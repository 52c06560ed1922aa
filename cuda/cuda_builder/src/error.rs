//! What can go wrong between a crate of kernels and its PTX.

use std::path::PathBuf;

use crate::compiler::NoCompiler;

/// Why there is no PTX.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No compiler on this machine can build PTX.
    #[error(transparent)]
    NoCompiler(#[from] NoCompiler),
    /// The path given to [`CudaBuilder::new`](crate::CudaBuilder::new) is neither a crate of kernels nor a file with some.
    #[error("{path} has no kernels to build: {why}")]
    NotACrate {
        /// The path.
        path: PathBuf,
        /// What is missing there.
        why: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `write` or `run`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A manifest or a lock file is not what Cargo writes.
    #[error("cannot read {path}: {why}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Cargo failed; what it said is on standard error.
    #[error("{compiler} did not build {package} for {arch} ({status}); its messages stand above")]
    Compile {
        /// The compiler's version.
        compiler: String,
        /// The crate of kernels.
        package: String,
        /// The architecture.
        arch: &'static str,
        /// How Cargo ended.
        status: std::process::ExitStatus,
    },
    /// Cargo succeeded and left no PTX.
    #[error("Cargo left no {path}: delete the folder it is in and build again")]
    NoAssembly {
        /// Where the PTX should be.
        path: PathBuf,
    },
    /// The PTX cannot be loaded: nothing defines these symbols.
    #[error(
        "the PTX needs symbols that nothing defines: {}. A kernel calls a function that has no body for the GPU \
         (of std, of C, or declared `extern`)",
        .0.join(", ")
    )]
    UnresolvedExterns(Vec<String>),
    /// A `__ferrolayer_kernel_*` static cannot be read or used.
    #[error("kernel {kernel}: {why}")]
    Metadata {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
        why: String,
    },
    /// Part of the PTX text is not of the shape that LLVM writes.
    #[error("cannot read the compiler's PTX at byte {at}: {why}")]
    Syntax {
        /// Where in the text.
        at: usize,
        /// What was expected.
        why: &'static str,
    },
    /// The compiler copied a barrier: threads of a block would wait at different ones, for ever.
    #[error(
        "kernel {kernel} has {found} barriers in its PTX, {counted} in its source ({place}): the compiler copied one, \
         perhaps into a divergent branch, where it hangs. If loops with barriers were unrolled on purpose, say so with \
         #[kernel(barriers = {found})]"
    )]
    CopiedBarriers {
        /// The kernel's name.
        kernel: String,
        /// Barriers in the PTX.
        found: u32,
        /// Barriers in the source, or those that the kernel's attribute gives.
        counted: u32,
        /// File and line of the kernel, or `its attribute`.
        place: String,
    },
    /// A kernel with barriers whose source was not found, so that nothing can be compared.
    #[error(
        "kernel {kernel} has {found} barriers in its PTX, and no `fn {kernel}` nor a macro call that names it was found \
         in the crate's sources: say how many it should have with #[kernel(barriers = ..)]"
    )]
    UncountedBarriers {
        /// The kernel's name.
        kernel: String,
        /// Barriers in the PTX.
        found: u32,
    },
    /// A source file is not Rust.
    #[error("cannot read {path} as Rust: {why}")]
    Source {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        why: String,
    },
}

impl BuildError {
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action: "read", path, source }
    }

    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action: "write", path, source }
    }
}
