//! `cargo xtask new-op NAME`: the files of a new op, and the lines that list it.
//!
//! The new op begins as a copy of `swish`, which is compiled and tested like any other: so the copy compiles and passes.
//! With `--python` it is a package of its own ([`package`]).

mod package;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::workspace::{root, shown};

/// The op that is copied.
const COPIED: &str = "swish";

/// Its files, `swish` in their paths being the name.
const FILES: [(&str, &str); 6] = [
    ("kernels/src/swish.rs", include_str!("../../kernels/src/swish.rs")),
    ("host/src/ops/swish/mod.rs", include_str!("../../host/src/ops/swish/mod.rs")),
    ("host/src/ops/swish/cpu.rs", include_str!("../../host/src/ops/swish/cpu.rs")),
    ("host/src/ops/swish/gpu.rs", include_str!("../../host/src/ops/swish/gpu.rs")),
    ("host/src/ops/swish/contract.rs", include_str!("../../host/src/ops/swish/contract.rs")),
    ("tests/ops/swish.rs", include_str!("../../tests/ops/swish.rs")),
];

/// Where ops are listed, one a line.
const LISTS: [&str; 3] = ["kernels/src/lib.rs", "host/src/ops/mod.rs", "tests/ops/main.rs"];

/// What Rust keeps for itself (The Rust Reference, Keywords), and crates that a module would hide.
const RESERVED: [&str; 58] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "cuda_std",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "ferrolayer",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "kernels",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
];

#[derive(clap::Args)]
pub struct Options {
    /// The op's name, in snake_case: of its files, its modules and, in CamelCase, its launch types
    name: String,
    /// Write a package of its own, outside of the repository, that gives the op to PyTorch
    #[arg(long)]
    python: bool,
    /// The package's folder, which is made; NAME beside the repository if left out
    #[arg(long, requires = "python", value_name = "DIR")]
    into: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let name = &options.name;
    if options.python {
        return package::run(name, options.into.as_deref());
    }
    let written = write(&root(), name)?;
    show(&written);
    println!("It computes {COPIED} and passes: cargo test -p ferrolayer-tests -- {name}");
    println!("Then make it yours: the formula, the kernels, the CPU version, the test; and cargo xtask build-ptx");
    Ok(())
}

/// Formats what was written, and says what it is.
fn show(written: &[PathBuf]) {
    let sources = written.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    // A longer name may break lines elsewhere.
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--config-path"]).arg(root()).args(sources).current_dir(root());
    let formatted = rustfmt.status();
    for path in written {
        println!("{}", shown(path));
    }
    if !formatted.is_ok_and(|status| status.success()) {
        println!("rustfmt did not run: `cargo fmt --all` before you commit");
    }
}

/// Writes the files of an op into the repository at `root`; what was written or changed.
///
/// # Errors
/// [`Error::NewOp`] for a name that is none, or taken: then nothing is written.
fn write(root: &Path, name: &str) -> Result<Vec<PathBuf>> {
    check_name(name)?;
    let camel = camel_case(name);
    let named = |text: &str| text.replace(COPIED, name).replace(&camel_case(COPIED), &camel);
    let mut texts = Vec::new();
    for list in LISTS {
        let path = root.join(list);
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let text = listed(&text, name).ok_or_else(|| Error::NewOp(format!("{list} has a {name} already")))?;
        texts.push((path, text));
    }
    for (path, text) in FILES {
        let path = root.join(named(path));
        // The op may be a folder where this one is a file, and the reverse.
        let others = [path.clone(), path.with_extension(""), path.parent().unwrap_or(root).with_extension("rs")];
        if let Some(taken) = others.iter().find(|path| path.exists()) {
            return Err(Error::NewOp(format!("{} exists: {name} is taken", taken.display())));
        }
        texts.push((path, named(text)));
    }
    for (path, text) in &texts {
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).map_err(Error::io("write", folder))?;
        std::fs::write(path, text).map_err(Error::io("write", path))?;
    }
    Ok(texts.into_iter().map(|(path, _)| path).collect())
}

fn check_name(name: &str) -> Result<()> {
    let words = name.split('_').all(|word| {
        !word.is_empty() && word.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    });
    if !words || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err(Error::NewOp(format!("{name:?} is no name for an op: words of a-z and 0-9, joined by single `_`")));
    }
    if RESERVED.contains(&name) {
        return Err(Error::NewOp(format!(
            "{name} is no name for an op: it means something else to Rust or to the build"
        )));
    }
    Ok(())
}

/// As `#[kernel]` writes launch types.
fn camel_case(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect()
}

/// A list with `name` in it, before the first that comes after it; nothing when it is there.
///
/// Beside each line of the copied op there will be one of the new op.
fn listed(text: &str, name: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let of_copied: Vec<usize> = (0..lines.len()).filter(|&i| item(&lines[i]) == Some(COPIED)).collect();
    for place in of_copied.into_iter().rev() {
        let line = lines[place].replace(COPIED, name);
        // The lines around that list others in the same way.
        let begin = (0..place).rev().find(|&i| item(&lines[i]).is_none()).map_or(0, |i| i + 1);
        let end = (place..lines.len()).find(|&i| item(&lines[i]).is_none()).unwrap_or(lines.len());
        if lines[begin..end].iter().any(|line| item(line) == Some(name)) {
            return None;
        }
        let at = (begin..end).find(|&i| item(&lines[i]).is_some_and(|other| other > name)).unwrap_or(end);
        lines.insert(at, line);
    }
    Some(lines.join("\n") + "\n")
}

/// What a line lists: a module, or its tests.
fn item(line: &str) -> Option<&str> {
    let line = line.trim();
    let module = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
    module.or_else(|| line.strip_suffix("::tests(),"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the repository's lists.
    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for list in LISTS {
            let path = folder.path().join(list);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::copy(root().join(list), path).unwrap();
        }
        folder
    }

    fn read(folder: &tempfile::TempDir, path: &str) -> String {
        std::fs::read_to_string(folder.path().join(path)).unwrap()
    }

    #[test]
    fn the_files_of_an_op_are_written_and_listed() {
        let folder = repository();
        let written = write(folder.path(), "leaky_relu").unwrap();
        assert_eq!(written.len(), LISTS.len() + FILES.len());
        for (path, _) in FILES {
            let text = read(&folder, &path.replace("swish", "leaky_relu"));
            assert!(!text.contains("swish") && !text.contains("Swish"), "{path}");
        }
        assert!(read(&folder, "host/src/ops/leaky_relu/gpu.rs").contains("LeakyReluForward { x, beta, y"));
        // In their place, and in it only.
        assert!(read(&folder, "kernels/src/lib.rs").contains("pub mod leaky_relu;\npub mod max_pool;\n"));
        assert!(read(&folder, "host/src/ops/mod.rs").contains("pub mod leaky_relu;\npub mod max_pool;\n"));
        let tests = read(&folder, "tests/ops/main.rs");
        assert!(tests.contains("mod leaky_relu;\nmod max_pool;\n"), "{tests}");
        assert!(tests.contains("        leaky_relu::tests(),\n        max_pool::tests(),\n"), "{tests}");
        for list in LISTS {
            let original = std::fs::read_to_string(root().join(list)).unwrap();
            let others: String = read(&folder, list).split_inclusive('\n').filter(|l| !l.contains("leaky")).collect();
            assert_eq!(others, original, "{list}");
        }
    }

    #[test]
    fn the_last_name_comes_last() {
        let folder = repository();
        write(folder.path(), "zero").unwrap();
        assert!(read(&folder, "host/src/ops/mod.rs").contains("pub mod swish;\npub mod zero;\n"));
    }

    #[test]
    fn a_name_that_is_taken_or_none_is_refused_and_nothing_written() {
        for name in [
            "relu",
            "dense",
            "permute",
            "window",
            "elementwise",
            "graphs",
            "swish",
            "fn",
            "std",
            "",
            "2d",
            "_a",
            "a__b",
            "a_",
            "Relu",
            "a-b",
            "é",
        ] {
            let folder = repository();
            let error = write(folder.path(), name).unwrap_err().to_string();
            assert!(error.contains("is no name") || error.contains("already") || error.contains("taken"), "{error}");
            for list in LISTS {
                assert_eq!(read(&folder, list), std::fs::read_to_string(root().join(list)).unwrap(), "{name}");
            }
            assert!(name.is_empty() || !folder.path().join("host/src/ops").join(name).exists(), "{name}");
        }
        // A file that no list has.
        let folder = repository();
        std::fs::write(folder.path().join("tests/ops/stray.rs"), "").unwrap();
        let error = write(folder.path(), "stray").unwrap_err().to_string();
        assert!(error.contains("stray.rs exists"), "{error}");
        assert!(!folder.path().join("kernels/src/stray.rs").exists());
    }

    #[test]
    fn the_reserved_names_are_sorted() {
        assert!(RESERVED.is_sorted());
    }
}
