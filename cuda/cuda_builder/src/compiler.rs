//! Finding a compiler that can write PTX.
//!
//! rustc's own `nvptx64-nvidia-cuda` target does it, if `core` can be compiled for it: that takes core's sources. The
//! target's ready-made `core` is not used even where it is installed, because it was compiled with the pass that
//! copies barriers (see [`crate`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest release that is used: the workspace's own.
const OLDEST: (u32, u32) = (1, 95);

/// A compiler that can write PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    rustc: PathBuf,
    cargo: PathBuf,
    sysroot: PathBuf,
    version: String,
}

impl Compiler {
    /// All that this machine has, the best first: the toolchain that the `rust-toolchain.toml` above `start` pins, then
    /// each `rustc` on `PATH` and in `/usr/bin` that is not rustup's.
    ///
    /// # Errors
    /// [`NoCompiler`] if there is none: it says what was looked at and what to install.
    pub fn find_all(start: &Path) -> Result<Vec<Self>, NoCompiler> {
        let channel = pinned_channel(start);
        let pinned = channel.iter().map(|channel| (format!("rustup's {channel}"), rustup_folder(channel)));
        let others =
            system_folders().into_iter().map(|folder| (folder.join("rustc").display().to_string(), Ok(folder)));
        let (mut found, mut rejected) = (Vec::<Self>::new(), Vec::new());
        for (what, folder) in pinned.chain(others) {
            match folder.and_then(|folder| Self::in_folder(&folder)) {
                Ok(compiler) if found.iter().any(|known| known.sysroot == compiler.sysroot) => {}
                Ok(compiler) => found.push(compiler),
                Err(why) => rejected.push(format!("{what}: {why}")),
            }
        }
        if found.is_empty() { Err(NoCompiler { channel, rejected }) } else { Ok(found) }
    }

    /// The best of [`Compiler::find_all`].
    ///
    /// # Errors
    /// [`NoCompiler`] if there is none.
    pub fn find(start: &Path) -> Result<Self, NoCompiler> {
        Self::find_all(start).map(|mut found| found.swap_remove(0))
    }

    /// What `rustc --version` says.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder with the compiler's libraries and sources.
    pub fn sysroot(&self) -> &Path {
        &self.sysroot
    }

    pub(crate) fn rustc(&self) -> &Path {
        &self.rustc
    }

    pub(crate) fn cargo(&self) -> &Path {
        &self.cargo
    }

    fn in_folder(bin: &Path) -> Result<Self, String> {
        let (rustc, cargo) = (bin.join("rustc"), bin.join("cargo"));
        let version = output(Command::new(&rustc).arg("--version"))?;
        let release = release(&version).ok_or_else(|| format!("cannot read its version, {version:?}"))?;
        if release < OLDEST {
            return Err(format!("{version} is older than {}.{}", OLDEST.0, OLDEST.1));
        }
        if !cargo.exists() {
            return Err(format!("{version} has no cargo beside it"));
        }
        let sysroot = PathBuf::from(output(Command::new(&rustc).args(["--print", "sysroot"]))?);
        if !sources_of_core(&sysroot).exists() {
            return Err(format!("{version} has no sources of core (rust-src)"));
        }
        Ok(Self { rustc, cargo, sysroot, version })
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, in {}", self.version, self.rustc.parent().unwrap_or(&self.rustc).display())
    }
}

/// There is no compiler here that can write PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCompiler {
    channel: Option<String>,
    rejected: Vec<String>,
}

impl NoCompiler {
    /// The commands of which one mends it: with rustup, and on Debian or Ubuntu.
    pub fn remedies(&self) -> [String; 2] {
        let toolchain = self.channel.as_ref().map(|channel| format!(" --toolchain {channel}")).unwrap_or_default();
        [
            format!("rustup component add rust-src{toolchain}"),
            "sudo apt-get install rustc-web cargo-web rust-web-src".to_owned(),
        ]
    }
}

impl fmt::Display for NoCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rustup, debian] = self.remedies();
        writeln!(f, "no compiler on this machine can build PTX: it takes Rust 1.95 or later and core's sources.")?;
        writeln!(f, "Install either of:")?;
        writeln!(f, "  with rustup:         {rustup}")?;
        writeln!(f, "  on Debian or Ubuntu: {debian}")?;
        write!(f, "Looked at: {}", if self.rejected.is_empty() { "nothing found" } else { "" })?;
        f.write_str(&self.rejected.join("; "))
    }
}

impl std::error::Error for NoCompiler {}

fn sources_of_core(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs")
}

/// The channel of the nearest `rust-toolchain.toml` above `start`.
fn pinned_channel(start: &Path) -> Option<String> {
    let start = start.canonicalize().ok()?;
    let text = start.ancestors().find_map(|folder| std::fs::read_to_string(folder.join("rust-toolchain.toml")).ok())?;
    let table: toml::Table = text.parse().ok()?;
    Some(table.get("toolchain")?.get("channel")?.as_str()?.to_owned())
}

fn rustup_folder(channel: &str) -> Result<PathBuf, String> {
    let mut rustup = Command::new("rustup");
    // Asking where a toolchain is must not fetch it.
    rustup.args(["which", "--toolchain", channel, "rustc"]).env("RUSTUP_AUTO_INSTALL", "0");
    let rustc = PathBuf::from(output(&mut rustup)?);
    rustc.parent().map(Path::to_owned).ok_or_else(|| format!("{} is in no folder", rustc.display()))
}

/// Folders with a `rustc` that is no proxy of rustup's: a proxy obeys `rust-toolchain.toml`, which was looked at already.
fn system_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = Vec::new();
    for folder in std::env::split_paths(&path).chain([PathBuf::from("/usr/bin")]) {
        let Ok(folder) = folder.canonicalize() else { continue };
        let proxy = folder.join("rustup").exists();
        if folder.join("rustc").exists() && !proxy && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Major and minor of `rustc 1.96.0 (ac68faa20 2026-05-25)`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix("rustc ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The first line that a command prints.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name} does not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|line| !line.is_empty()).unwrap_or("it said nothing");
        return Err(format!("{name} failed: {}", said.trim_start_matches("error: ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_from_the_version() {
        assert_eq!(release("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)"), Some((1, 96)));
        assert_eq!(release("rustc 2.0.0-nightly"), Some((2, 0)));
        assert_eq!(release("cargo 1.96.0"), None);
    }

    #[test]
    fn the_error_names_both_ways_out_and_what_was_looked_at() {
        let error = NoCompiler { channel: Some("1.95.0".into()), rejected: vec!["rustup's 1.95.0: no sources".into()] };
        let text = error.to_string();
        assert!(text.contains("rustup component add rust-src --toolchain 1.95.0"), "{text}");
        assert!(text.contains("sudo apt-get install rustc-web cargo-web rust-web-src"), "{text}");
        assert!(text.ends_with("Looked at: rustup's 1.95.0: no sources"), "{text}");
    }

    #[test]
    fn the_pinned_channel_is_the_nearest_one() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(root.path().join("rust-toolchain.toml"), "[toolchain]\nchannel = \"1.95.0\"\n").unwrap();
        assert_eq!(pinned_channel(&inner).as_deref(), Some("1.95.0"));
        std::fs::write(inner.join("rust-toolchain.toml"), "[toolchain]\nchannel = \"1.99.0\"\n").unwrap();
        assert_eq!(pinned_channel(&inner).as_deref(), Some("1.99.0"));
    }

    #[test]
    fn a_compiler_without_sources_is_rejected_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("rustc", "#!/bin/sh\n[ $1 = --version ] && echo 'rustc 1.60.0 (x)' || echo /nowhere\n");
        assert_eq!(Compiler::in_folder(folder.path()), Err("rustc 1.60.0 (x) is older than 1.95".to_owned()));
        script("rustc", "#!/bin/sh\n[ $1 = --version ] && echo 'rustc 1.97.0 (x)' || echo /nowhere\n");
        assert_eq!(Compiler::in_folder(folder.path()), Err("rustc 1.97.0 (x) has no cargo beside it".to_owned()));
        script("cargo", "#!/bin/sh\n");
        assert_eq!(
            Compiler::in_folder(folder.path()),
            Err("rustc 1.97.0 (x) has no sources of core (rust-src)".to_owned())
        );
    }
}
