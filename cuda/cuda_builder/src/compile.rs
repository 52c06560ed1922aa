//! Calling the compiler.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Arch;
use crate::compiler::Compiler;
use crate::error::BuildError;
use crate::sources::KernelCrate;

const TARGET: &str = "nvptx64-nvidia-cuda";

/// Of Cargo's own variables these say where crates come from; all others may carry flags of the build that calls.
const KEPT: [&str; 6] =
    ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_"];

/// Settings that decide about the PTX, whatever the workspace's profile says.
const PROFILE: [&str; 9] = [
    "opt-level=3",
    "lto=\"fat\"",
    "codegen-units=1",
    "panic=\"abort\"",
    "debug=false",
    "debug-assertions=false",
    "overflow-checks=false",
    "incremental=false",
    "strip=false",
];

/// Compiles the crate; the PTX as the compiler wrote it.
pub fn compile(
    kernels: &KernelCrate,
    compiler: &Compiler,
    arch: Arch,
    target_dir: &Path,
) -> Result<String, BuildError> {
    let assembly = target_dir.join(format!("{}.{arch}.s", kernels.package));
    let mut cargo = Command::new(compiler.cargo());
    for (name, _) in std::env::vars_os() {
        if leaks(&name) {
            cargo.env_remove(name);
        }
    }
    cargo
        .current_dir(&kernels.folder)
        .env("RUSTC", compiler.rustc())
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        // Stable compilers have the features that PTX takes, and ask to be told that their use is meant.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(kernels, compiler, arch))
        .args(["rustc", "--release", "--lib", "--package", &kernels.package])
        // Both kinds of library in one build would switch link-time optimisation off.
        .args(["--crate-type", "cdylib"])
        .args(["--target", TARGET, "-Zbuild-std=core"])
        .arg("--target-dir")
        .arg(target_dir);
    for setting in PROFILE {
        cargo.arg("--config").arg(format!("profile.release.{setting}"));
    }
    let mut emit = OsString::from("--emit=asm=");
    emit.push(&assembly);
    // Cargo's messages go to standard error; standard output is the caller's.
    cargo.arg("--").arg(emit).arg(remap(&kernels.root, "")).stdin(Stdio::null()).stdout(Stdio::null());
    let status =
        cargo.status().map_err(|source| BuildError::Io { action: "run", path: compiler.cargo().to_owned(), source })?;
    if !status.success() {
        return Err(BuildError::Compile {
            compiler: compiler.to_string(),
            package: kernels.package.clone(),
            arch: arch.name(),
            status,
        });
    }
    if !assembly.is_file() {
        return Err(BuildError::NoAssembly { path: assembly });
    }
    std::fs::read_to_string(&assembly).map_err(BuildError::read(&assembly))
}

/// Whether a variable could change what is built: a calling Cargo's, rustup's, or flags for another target.
fn leaks(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    let starts = |prefix: &str| name.starts_with(prefix);
    (name.starts_with("CARGO") && !KEPT.iter().any(|kept| starts(kept)))
        || ["RUSTFLAGS", "RUSTDOCFLAGS", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "MAKEFLAGS", "MFLAGS"]
            .iter()
            .any(|leak| starts(leak))
}

fn rustflags(kernels: &KernelCrate, compiler: &Compiler, arch: Arch) -> OsString {
    let mut flags = vec![
        OsString::from(format!("-Ctarget-cpu={arch}")),
        // There is nothing to link: the PTX is complete.
        OsString::from("-Clinker=true"),
        // These two passes copy barriers into branches: one of rustc, and LLVM's CallSiteSplitting, which copies calls of
        // functions that are inlined only afterwards. In dependencies too: their code is inlined here.
        OsString::from("-Zmir-enable-passes=-JumpThreading"),
        OsString::from("-Cllvm-args=-callsite-splitting-duplication-threshold=0"),
        // A PTX names no folder of the machine that built it. (Cargo names those of the workspace relative to it.)
        remap(&cargo_home().join("registry/src"), "registry"),
        remap(&compiler.sysroot().join("lib/rustlib/src/rust"), "rust"),
    ];
    if kernels.module.is_some() {
        // The made crate is in another workspace than those it depends on by path: Cargo names their folders.
        flags.extend(kernels.local.iter().map(|(package, folder)| remap(folder, package)));
    }
    flags.join(&OsString::from("\x1f"))
}

fn remap(from: &Path, to: &str) -> OsString {
    let mut flag = OsString::from("--remap-path-prefix=");
    flag.push(from);
    flag.push("=");
    flag.push(to);
    flag
}

fn cargo_home() -> PathBuf {
    std::env::var_os("CARGO_HOME").map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE")).unwrap_or_default();
        PathBuf::from(home).join(".cargo")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_calling_build_do_not_leak_in() {
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_OPT_LEVEL",
            "CARGO_TARGET_DIR",
            "RUSTC_WRAPPER",
            "RUSTUP_TOOLCHAIN",
            "CARGO",
        ] {
            assert!(leaks(name.as_ref()), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_PROXY", "PATH", "HOME", "HTTPS_PROXY"] {
            assert!(!leaks(name.as_ref()), "{name}");
        }
    }
}
