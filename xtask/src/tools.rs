//! NVIDIA's tools for PTX: where they are, wherever they come from.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{answer, root};

/// Where `cargo xtask setup` puts them.
pub fn folder() -> PathBuf {
    root().join("target/cuda-tools")
}

/// The assembler.
pub fn ptxas() -> Option<PathBuf> {
    find("ptxas", "PTXAS")
}

/// The disassembler.
pub fn nvdisasm() -> Option<PathBuf> {
    find("nvdisasm", "NVDISASM")
}

/// A tool's `release 13.5, V13.5.37`, without the words.
pub fn version(tool: &Path) -> Option<String> {
    let said = answer(Command::new(tool).arg("--version"))?;
    let release = said.lines().find_map(|line| line.split_once(", V"))?.1;
    Some(release.split_whitespace().next()?.to_owned())
}

fn find(name: &str, variable: &str) -> Option<PathBuf> {
    if let Some(given) = std::env::var_os(variable).filter(|given| !given.is_empty()) {
        return Some(given.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolkit = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let toolkit = toolkit.chain([PathBuf::from("/usr/local/cuda")]).map(|folder| folder.join("bin"));
    // Ours first: its version is the one that the list of spills was made with.
    let folders = [folder()].into_iter().chain(std::env::split_paths(&path)).chain(toolkit);
    folders.map(|folder| folder.join(name)).find(|tool| tool.is_file())
}
