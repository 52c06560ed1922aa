//! `cargo xtask bundle DIR`: tests, benches and examples for a machine without cargo.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::workspace::{cargo, commit, run as run_command, succeeded, typed};

/// What is packed: a package, what Cargo builds of it, and the folder in the bundle.
const PACKED: [(&str, &[&str], &str); 4] = [
    ("ferrolayer-tests", &["--tests"], "tests"),
    // Its other tests need a compiler.
    ("ferrolayer-libcuda", &["--test", "driver"], "tests"),
    ("ferrolayer", &["--examples"], "examples"),
    ("ferrolayer", &["--bench", "*"], "benches"),
];

/// Runs what is in the bundle.
const RUN: &str = include_str!("run.sh");

#[derive(clap::Args)]
pub struct Options {
    /// The folder to fill; made if it does not exist, emptied of an older bundle
    dir: PathBuf,
}

pub fn run(options: &Options) -> Result<()> {
    let dir = &options.dir;
    clear(dir)?;
    let mut bytes = 0;
    for (package, targets, folder) in PACKED {
        for binary in build(package, targets)? {
            let to = dir.join(folder).join(&binary.name);
            bytes += copy_stripped(&binary.path, &to)?;
            println!("{}", to.display());
        }
    }
    let script = dir.join("run.sh");
    std::fs::write(&script, RUN).map_err(Error::io("write", &script))?;
    make_executable(&script)?;
    println!("{}: {:.1} MB. Run it with ./run.sh (./run.sh --help says more)", dir.display(), bytes as f64 / 1e6);
    Ok(())
}

/// Empties the folder, if what is in it is a bundle.
fn clear(dir: &Path) -> Result<()> {
    if dir.is_dir() && std::fs::read_dir(dir).map_err(Error::io("read", dir))?.next().is_some() {
        if !dir.join("run.sh").is_file() {
            return Err(Error::Bundle(format!("{} is neither empty nor a bundle: it is left as it is", dir.display())));
        }
        std::fs::remove_dir_all(dir).map_err(Error::io("remove", dir))?;
    }
    for (.., folder) in PACKED {
        let folder = dir.join(folder);
        std::fs::create_dir_all(&folder).map_err(Error::io("write", folder))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binary {
    name: String,
    pub path: PathBuf,
}

/// Builds some of a package's targets for release; the binaries know of which commit they are.
pub fn build(package: &str, targets: &[&str]) -> Result<BTreeSet<Binary>> {
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--package", package]).args(targets);
    cargo.envs(commit().map(|commit| ("FERROLAYER_COMMIT", commit)));
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    eprintln!("$ {}", typed(&cargo));
    let output = cargo.output().map_err(|source| Error::Start { command: typed(&cargo), source })?;
    succeeded(&cargo, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(binary).collect())
}

/// The binary that one of Cargo's messages is about.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = PathBuf::from(message.get("executable")?.as_str()?);
    let target = message.get("target")?;
    let kind = target.get("kind")?.get(0)?.as_str()?;
    let name = target.get("name")?.as_str()?;
    // A library's unit tests bear its name.
    let name = if matches!(kind, "lib" | "rlib") { format!("{name}-unit") } else { name.to_owned() };
    Some(Binary { name, path })
}

/// Copies a binary and takes its symbols out; how large it is then.
fn copy_stripped(from: &Path, to: &Path) -> Result<u64> {
    std::fs::copy(from, to).map_err(Error::io("copy", from))?;
    run_command(Command::new("strip").arg(to))?;
    Ok(std::fs::metadata(to).map_err(Error::io("read", to))?.len())
}

fn make_executable(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(Error::io("write", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_are_found_among_cargo_s_messages() {
        let message = |kind: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"],"name":"ops"}},"executable":{executable}}}"#
            )
        };
        let found = |name: &str| Some(Binary { name: name.into(), path: "/t/ops-1".into() });
        assert_eq!(binary(&message("test", "\"/t/ops-1\"")), found("ops"));
        assert_eq!(binary(&message("lib", "\"/t/ops-1\"")), found("ops-unit"));
        assert_eq!(binary(&message("lib", "null")), None);
        assert_eq!(binary(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn a_folder_with_something_else_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let error = clear(folder.path()).unwrap_err().to_string();
        assert!(error.contains("neither empty nor a bundle"), "{error}");
        assert!(folder.path().join("thesis.tex").exists());
        std::fs::write(folder.path().join("run.sh"), "").unwrap();
        clear(folder.path()).unwrap();
        assert!(!folder.path().join("thesis.tex").exists());
        assert!(folder.path().join("tests").is_dir());
    }

    /// The script against programs that pass, fail and hang.
    #[test]
    #[cfg(unix)]
    fn the_script_runs_every_test_and_says_what_failed() {
        let folder = tempfile::tempdir().unwrap();
        clear(folder.path()).unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            make_executable(&path).unwrap();
        };
        script("run.sh", RUN);
        script("tests/a_pass", "#!/bin/sh\necho required=$FERROLAYER_REQUIRE_GPU filter=$1\n");
        let run = |arguments: &[&str]| {
            let output = Command::new(folder.path().join("run.sh")).args(arguments).output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        let (code, text) = run(&["relu"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("required=1 filter=relu\n"), "{text}");
        assert!(text.ends_with("all passed\n"), "{text}");
        script("tests/b_fail", "#!/bin/sh\nexit 3\n");
        let (code, text) = run(&[]);
        assert_eq!(code, Some(1), "{text}");
        assert_eq!(last_rows(&text, 3)[0][..2], ["a_pass", "passed"], "{text}");
        assert_eq!(last_rows(&text, 3)[1][..5], ["b_fail", "FAILED", "(exit", "code", "3)"], "{text}");
        assert_eq!(last_rows(&text, 3)[2].join(" "), "1 of 2 failed", "{text}");
        script("tests/c_hang", "#!/bin/sh\nexec sleep 60\n");
        let (code, text) = run(&["--timeout", "1"]);
        assert_eq!(code, Some(1), "{text}");
        assert_eq!(last_rows(&text, 2)[0][..3], ["c_hang", "FAILED", "(timeout"], "{text}");
    }

    fn last_rows(text: &str, rows: usize) -> Vec<Vec<&str>> {
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len() - rows..].iter().map(|row| row.split_whitespace().collect()).collect()
    }
}
