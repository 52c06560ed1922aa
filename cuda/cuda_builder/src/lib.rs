//! Builds a crate of kernels to PTX with a stock Rust compiler.
//!
//! ```no_run
//! use cuda_builder::{Arch, CudaBuilder};
//!
//! let built = CudaBuilder::new("kernels").arch(Arch::Sm80).copy_to("host/ptx/kernels.sm_80.ptx").build()?;
//! println!("{} kernels, by {}", built.entries.len(), built.head.compiler);
//! # Ok::<(), cuda_builder::BuildError>(())
//! ```
//!
//! # How
//! rustc has a target for NVIDIA's GPUs, `nvptx64-nvidia-cuda`. What it takes is a compiler that can compile `core` for
//! it, that is one with core's sources: rustup's with the component `rust-src`, or Debian's `rustc-web`, `cargo-web`
//! and `rust-web-src` ([`Compiler::find`]). The crate is built as one unit with link-time optimisation, so that the
//! compiler's assembly is the whole PTX, and no tool of LLVM and no linker takes part. Then
//!
//! * directives that rustc cannot write (`.reqntid`, `.maxntid`, `.minnctapersm`, `.reqnctapercluster`, a tensor map's
//!   alignment) are written from what `#[kernel]` left in the PTX;
//! * names lose the hashes that depend on where the compiler is installed;
//! * the PTX is refused if it needs a symbol that nothing defines, or if a kernel has more barriers than its source;
//! * a head is written that names the architecture, the hash of the sources and the compiler ([`Head`]).
//!
//! # Barriers
//! Compilers copy code into branches. A barrier that is copied so makes threads of a block wait for each other at
//! different places, for ever. rustc's pass JumpThreading did that, and LLVM's CallSiteSplitting, which sees no barrier in
//! a call of a function that has one (rustc does not tell it); both are off here. LLVM does it with barriers that are
//! inline assembly, which `cuda_std` therefore has none of. The count of barriers shows it should it happen again; what
//! counts is written at [`barriers`].
//!
//! # How this relates to rust-cuda
//! The names are those of rust-cuda's `cuda_builder`, which drives a compiler back end of its own (LLVM 7, a nightly
//! of 2021 in the published version). [`CudaBuilder::build`] returns more than a path, and there are no options for
//! what that back end alone can do.

pub mod barriers;
mod compile;
mod compiler;
mod error;
mod file;
mod head;
mod ptx;
mod sources;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use compiler::{Compiler, NoCompiler};
pub use error::BuildError;
pub use head::{Head, HeadError};
pub use ptx::directives::KernelAttributes;
pub use sources::source_hash;

use crate::barriers::Sources;
use crate::sources::KernelCrate;

/// An architecture family that PTX is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Ampere and everything since.
    Sm80,
    /// Hopper alone, with the instructions that only it has.
    Sm90a,
}

impl Arch {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sm80, Self::Sm90a];

    /// As compilers spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm90a => "sm_90a",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not an architecture that PTX is built for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("architecture {0:?}, expected sm_80 or sm_90a")]
pub struct UnknownArch(String);

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(name: &str) -> Result<Self, UnknownArch> {
        Self::ALL.into_iter().find(|arch| arch.name() == name).ok_or_else(|| UnknownArch(name.to_owned()))
    }
}

/// Builds one crate of kernels for one architecture.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct CudaBuilder {
    kernels: PathBuf,
    arch: Arch,
    copy_to: Option<PathBuf>,
    compiler: Option<Compiler>,
    target_dir: Option<PathBuf>,
}

/// A PTX and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The file.
    pub path: PathBuf,
    /// Its text, head included.
    pub text: String,
    /// What its head says.
    pub head: Head,
    /// Its kernels, and what their attributes say.
    pub entries: BTreeMap<String, KernelAttributes>,
    /// What keeps its kernels from being launched before the grid before them has ended ([`Head::waits`]); `None` where nothing does.
    pub not_early: Option<String>,
}

impl CudaBuilder {
    /// For the crate of kernels in this folder; or for a file of Rust, for its module `mod kernels { .. }`.
    ///
    /// Such a module stands in the file's top level and uses `cuda_std` and nothing else of the file. It is built as a
    /// crate of its own, named as the file, with the `cuda_std` that the nearest `Cargo.toml` above asks for. What else is
    /// in the file does not matter for the PTX.
    pub fn new(path_to_kernels: impl AsRef<Path>) -> Self {
        Self {
            kernels: path_to_kernels.as_ref().to_owned(),
            arch: Arch::Sm80,
            copy_to: None,
            compiler: None,
            target_dir: None,
        }
    }

    /// The architecture; [`Arch::Sm80`] if not given.
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// Where to write the PTX; into the target folder if not given.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// The compiler; the one that [`Compiler::find`] finds if not given.
    pub fn compiler(mut self, compiler: Compiler) -> Self {
        self.compiler = Some(compiler);
        self
    }

    /// Where the compiler may keep its files, in a folder for each architecture; `cuda-builder` in the workspace's target
    /// folder if not given.
    pub fn target_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.target_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Compiles the crate, finishes and checks its PTX, and writes it.
    ///
    /// The compiler's messages go to standard error.
    ///
    /// # Errors
    /// [`BuildError`]: no compiler, code that does not compile, or PTX that must not be used. Nothing is written then.
    pub fn build(self) -> Result<Built, BuildError> {
        let mut kernels = KernelCrate::open(&self.kernels)?;
        let compiler = match self.compiler {
            Some(compiler) => compiler,
            None => Compiler::find(&kernels.folder)?,
        };
        let target_dir = match self.target_dir {
            Some(folder) => folder,
            None => std::env::var_os("CARGO_TARGET_DIR")
                .map_or_else(|| kernels.root.join("target"), PathBuf::from)
                .join("cuda-builder"),
        };
        // One for each architecture: Cargo would keep the files of one only.
        let target_dir = target_dir.join(self.arch.name());
        std::fs::create_dir_all(&target_dir).map_err(BuildError::write(&target_dir))?;
        let target_dir = target_dir.canonicalize().map_err(BuildError::read(&target_dir))?;
        // Before compiling: what changes meanwhile must not pass for built.
        let sources = kernels.hash()?;
        if let Some(module) = &kernels.module {
            kernels.folder = module.make(&target_dir.join("files"), &kernels.root.join("Cargo.lock"))?;
            kernels.local.insert(kernels.package.clone(), kernels.folder.clone());
        }
        let raw = compile::compile(&kernels, &compiler, self.arch, &target_dir)?;
        let local: Vec<PathBuf> = kernels.local.values().cloned().collect();
        let (text, entries) = finish(&raw, &Sources::read(&local)?)?;
        let not_early = ptx::checks::touches_before_waiting(&text)?;
        let head =
            Head { arch: self.arch, waits: not_early.is_none(), sources, compiler: compiler.version().to_owned() };
        let text = format!("{head}\n{text}");
        let path = self.copy_to.unwrap_or_else(|| target_dir.join(format!("{}.{}.ptx", kernels.package, self.arch)));
        write_whole(&path, &text)?;
        Ok(Built { path, text, head, entries, not_early })
    }
}

/// From the compiler's text to one that may be used, and its kernels.
fn finish(raw: &str, sources: &Sources) -> Result<(String, BTreeMap<String, KernelAttributes>), BuildError> {
    ptx::checks::no_unresolved_externs(raw)?;
    let (text, entries) = ptx::directives::write(&ptx::names::without_hashes(raw))?;
    let counted = sources.count(entries.keys());
    for (kernel, found) in ptx::checks::barriers(&text)? {
        let given = entries.get(&kernel).and_then(|attributes| attributes.barriers);
        let (allowed, place) = match (given, counted.get(&kernel)) {
            (Some(given), _) => (given, "its attribute".to_owned()),
            (None, Some(counted)) => (counted.barriers, counted.place.clone()),
            (None, None) if found == 0 => continue,
            (None, None) => return Err(BuildError::UncountedBarriers { kernel, found }),
        };
        if found > allowed {
            return Err(BuildError::CopiedBarriers { kernel, found, counted: allowed, place });
        }
    }
    Ok((text, entries))
}

/// Writes a file so that nobody reads half of it.
fn write_whole(path: &Path, text: &str) -> Result<(), BuildError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(BuildError::write(folder))?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    std::fs::write(&new, text).map_err(BuildError::write(&new))?;
    std::fs::rename(&new, path).map_err(BuildError::write(path))
}

#[cfg(test)]
mod tests;
