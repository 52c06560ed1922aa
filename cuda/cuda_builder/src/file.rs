//! Kernels that stand in one file with other code: its module `kernels` becomes a crate of its own.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use toml::{Table, Value};

use crate::error::BuildError;

/// What the made crate begins with.
const START: &str = "#![no_std]\n#![feature(abi_ptx)]\n#![allow(missing_docs)]\n\n";

/// The module `kernels` of a file.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// The made crate's name: the file's.
    pub package: String,
    /// `mod kernels { .. }`, as it stands in the file.
    pub text: String,
    /// What is asked of `cuda_std`.
    cuda_std: Value,
}

impl Module {
    pub fn read(file: &Path, cuda_std: Value) -> Result<Self, BuildError> {
        let text = std::fs::read_to_string(file).map_err(BuildError::read(file))?;
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| BuildError::Source {
            path: file.to_owned(),
            why: error.to_string(),
        })?;
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |token: &TokenTree, word| matches!(token, TokenTree::Ident(ident) if ident == word);
        let module = tokens.windows(3).find(|tokens| {
            let body = matches!(&tokens[2], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            is(&tokens[0], "mod") && is(&tokens[1], "kernels") && body
        });
        let Some([begin, _, end]) = module else {
            let why = "it has no module `mod kernels { .. }`".into();
            return Err(BuildError::NotACrate { path: file.to_owned(), why });
        };
        let range = begin.span().byte_range().start..end.span().byte_range().end;
        let package = file.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
        // Spans count from the text's first byte, which a parser may have skipped a mark before.
        let text = text.trim_start_matches('\u{feff}')[range].to_owned();
        Ok(Self { package, text, cuda_std })
    }

    /// Writes the crate into `folder`, with the versions of `lock` if there is one, and gives its folder.
    pub fn make(&self, folder: &Path, lock: &Path) -> Result<PathBuf, BuildError> {
        let folder = folder.join(&self.package);
        let src = folder.join("src");
        std::fs::create_dir_all(&src).map_err(BuildError::write(&src))?;
        let package = [("name", self.package.as_str()), ("version", "0.0.0"), ("edition", "2024")];
        let package: Table = package.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        let dependencies = Table::from_iter([("cuda_std".to_owned(), self.cuda_std.clone())]);
        // A workspace of its own, whatever it lies in.
        let tables = [("package", package), ("dependencies", dependencies), ("workspace", Table::new())];
        let manifest = Table::from_iter(tables.map(|(key, table)| (key.to_owned(), Value::Table(table))));
        write_new(&folder.join("Cargo.toml"), &manifest.to_string())?;
        write_new(&src.join("lib.rs"), &format!("{START}pub {}\n", self.text))?;
        if lock.is_file() {
            let lock = std::fs::read_to_string(lock).map_err(BuildError::read(lock))?;
            write_new(&folder.join("Cargo.lock"), &lock)?;
        }
        Ok(folder)
    }
}

/// Writes a file that has another text: Cargo builds again what is newer.
fn write_new(path: &Path, text: &str) -> Result<(), BuildError> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(path, text).map_err(BuildError::write(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(text: &str) -> Result<Module, BuildError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my-op.rs");
        std::fs::write(&path, text).unwrap();
        Module::read(&path, "1".into())
    }

    #[test]
    fn only_the_module_is_taken() {
        let found = module(
            "//! ä\nuse std::fs;\nmod kernels2 {}\n/// Doc.\npub mod kernels {\n    fn ü() {}\n}\nfn main() {}\n",
        );
        let found = found.unwrap();
        assert_eq!(found.text, "mod kernels {\n    fn ü() {}\n}");
        assert_eq!(found.package, "my_op");
    }

    #[test]
    fn a_file_without_it_is_refused() {
        for text in ["fn main() {}", "mod kernels;", "mod other { mod kernels {} }"] {
            let error = module(text).unwrap_err().to_string();
            assert!(error.ends_with("it has no module `mod kernels { .. }`"), "{error}");
        }
        assert!(matches!(module("fn main( {}"), Err(BuildError::Source { .. })));
    }

    #[test]
    fn the_made_crate_is_one() {
        let found = module("mod kernels {}").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let made = found.make(folder.path(), &folder.path().join("none")).unwrap();
        let manifest: Table = std::fs::read_to_string(made.join("Cargo.toml")).unwrap().parse().unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some("my_op"));
        assert_eq!(manifest["dependencies"]["cuda_std"].as_str(), Some("1"));
        let source = std::fs::read_to_string(made.join("src/lib.rs")).unwrap();
        assert!(source.starts_with("#![no_std]") && source.ends_with("pub mod kernels {}\n"), "{source}");
    }
}
