//! `cargo xtask new-op --python NAME`: a package that gives PyTorch an op whose kernels are written in Rust.
//!
//! It is a copy of `python/examples/your_own_op`, which CI builds and tests: so the copy builds and passes.

use std::path::{Path, PathBuf};

use super::{COPIED, camel_case, check_name};
use crate::error::{Error, Result};
use crate::workspace::root;

/// What is copied: a file's path, in which `swish` is the name, and its text.
macro_rules! files {
    ($($path:literal)*) => {
        [$(($path, include_str!(concat!("../../../python/examples/your_own_op/", $path)))),*]
    };
}

const FILES: [(&str, &str); 12] = files! {
    ".cargo/config.toml"
    ".gitignore"
    "Cargo.toml"
    "README.md"
    "examples/build_ptx.rs"
    "pyproject.toml"
    "python/swish/__init__.py"
    "src/lib.rs"
    "src/op.rs"
    "src/op.sm_80.ptx"
    "tests/op.rs"
    "tests/test_swish.py"
};

/// Where the repository lies, as the copied files have it.
const TO_ROOT: &str = "../../..";

/// What Python keeps for itself and Rust does not (The Python Language Reference, Keywords), modules that it has, and names
/// that the files have for something else.
const RESERVED: [&str; 51] = [
    "and",
    "annotations",
    "any",
    "assert",
    "backward",
    "beta",
    "class",
    "compiled",
    "def",
    "define",
    "del",
    "device",
    "dtype",
    "dx",
    "dy",
    "elif",
    "except",
    "expected",
    "finally",
    "forward",
    "from",
    "function",
    "global",
    "gradients",
    "import",
    "inputs",
    "is",
    "lambda",
    "layer",
    "layout",
    "math",
    "needed",
    "nonlocal",
    "not",
    "numpy",
    "op",
    "optimiser",
    "or",
    "pass",
    "pytest",
    "raise",
    "random",
    "reference",
    "says",
    "signal",
    "together",
    "torch",
    "typing",
    "wanted",
    "x",
    "y",
];

pub fn run(name: &str, into: Option<&Path>) -> Result<()> {
    let folder = match into {
        Some(folder) => folder.to_owned(),
        None => root().parent().unwrap_or(&root()).join(name),
    };
    let written = write(&folder, name)?;
    super::show(&written);
    let folder = folder.display();
    println!("It computes {COPIED} and passes: pip install ./python {folder} && pytest {folder}");
    println!(
        "Then make it yours: src/op.rs, its PTX by `cargo run --example build_ptx`, the schemas, shapes and tests"
    );
    Ok(())
}

/// Writes the package into a folder that is not there or empty; what was written.
///
/// # Errors
/// [`Error::NewOp`] for a name that is none, or a folder that cannot be the package's: then nothing is written.
fn write(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    check_name(name)?;
    if RESERVED.contains(&name) {
        return Err(Error::NewOp(format!(
            "{name} is no name for a package: it means something else in it, or to Python"
        )));
    }
    let absolute = std::path::absolute(folder).map_err(Error::io("find", folder))?;
    if absolute.starts_with(root()) {
        return Err(Error::NewOp(format!(
            "{} is inside of the repository, which is a workspace of its own: name another with --into",
            folder.display()
        )));
    }
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::NewOp(format!("{} is there, and not empty", folder.display())));
    }
    let mut written = Vec::new();
    for (path, text) in FILES {
        let path = folder.join(named(path, name));
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(Error::io("write", parent))?;
        let text = named(text, name).replace(TO_ROOT, &root().display().to_string());
        std::fs::write(&path, text).map_err(Error::io("write", &path))?;
        written.push(path);
    }
    Ok(written)
}

fn named(text: &str, name: &str) -> String {
    text.replace(COPIED, name).replace(&camel_case(COPIED), &camel_case(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;

    use super::*;
    use crate::workspace::answer;

    const EXAMPLE: &str = "python/examples/your_own_op";
    const PAGE: &str = include_str!("../../../python/examples/your_own_op.md");

    fn read(folder: &Path, path: &str) -> String {
        std::fs::read_to_string(folder.join(path)).unwrap()
    }

    #[test]
    fn the_example_is_what_is_written_for_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("package");
        let written = write(&folder, COPIED).unwrap();
        let written: BTreeMap<String, String> = written
            .iter()
            .map(|path| {
                let text = std::fs::read_to_string(path).unwrap().replace(&root().display().to_string(), TO_ROOT);
                (path.strip_prefix(&folder).unwrap().display().to_string(), text)
            })
            .collect();
        for (path, text) in &written {
            assert_eq!(*text, read(&root().join(EXAMPLE), path), "{path}");
        }
        // What is committed, where there is a git that can say it.
        if let Some(committed) = answer(Command::new("git").arg("ls-files").current_dir(root().join(EXAMPLE))) {
            assert_eq!(committed.lines().collect::<Vec<_>>(), written.keys().collect::<Vec<_>>());
        }
    }

    #[test]
    fn another_name_is_everywhere() {
        let folder = tempfile::tempdir().unwrap();
        for path in write(folder.path(), "leaky_relu").unwrap() {
            let text = std::fs::read_to_string(&path).unwrap();
            let path = path.display().to_string();
            assert!(!path.contains("swish") && !text.contains("swish") && !text.contains("Swish"), "{path}");
            assert!(!text.contains(TO_ROOT), "{path}");
        }
        assert!(read(folder.path(), "python/leaky_relu/__init__.py").contains("class LeakyRelu(torch.nn.Module):"));
    }

    #[test]
    fn a_name_or_a_folder_that_will_not_do_is_refused_and_nothing_written() {
        let folder = tempfile::tempdir().unwrap();
        let (new, full) = (folder.path().join("new"), folder.path().join("full"));
        std::fs::create_dir(&full).unwrap();
        std::fs::write(full.join("file"), "").unwrap();
        for name in ["lambda", "torch", "fn", "a-b", "op"] {
            assert!(write(&new, name).unwrap_err().to_string().contains("is no name"), "{name}");
        }
        assert!(write(&full, "a").unwrap_err().to_string().contains("not empty"));
        let inside = root().join("target/a");
        assert!(write(&inside, "a").unwrap_err().to_string().contains("inside of the repository"));
        assert!(!new.exists() && !inside.exists() && std::fs::read_dir(&full).unwrap().count() == 1);
        assert!(RESERVED.is_sorted());
    }

    /// A block of code on the page stands, as it does there, in the file that the last link before it goes to, after the
    /// blocks before it.
    #[test]
    fn the_page_shows_the_example() {
        let (mut rest, mut path) = (BTreeMap::new(), "");
        let mut parts = PAGE.split("```");
        while let (Some(words), Some(block)) = (parts.next(), parts.next()) {
            if let Some((_, link)) = words.rsplit_once("](your_own_op/") {
                path = link.split(')').next().unwrap();
            }
            let (language, block) = block.split_once('\n').unwrap();
            if language == "console" {
                continue;
            }
            let text = rest.entry(path).or_insert_with(|| read(&root().join(EXAMPLE), path));
            let place =
                text.find(block).unwrap_or_else(|| panic!("not in {path}, or not after those before:\n{block}"));
            text.replace_range(..place + block.len(), "");
        }
        // These are shown to their ends.
        for path in ["src/lib.rs", "python/swish/__init__.py"] {
            assert_eq!(rest[path].trim(), "", "{path}");
        }
    }
}
