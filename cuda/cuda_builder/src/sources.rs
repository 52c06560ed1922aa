//! Which sources a PTX comes from, and their hash.
//!
//! They are: `Cargo.toml`, `build.rs` and `src` of the crate of kernels, or the module `kernels` of the file, and of each crate it depends on by path; the name, version
//! and checksum of each crate from a registry that these depend on, directly or not, as the lock file has them, and what
//! the manifests ask of them; and the code of this crate that writes the text. Dependencies for the host only
//! (`[target.'cfg(not(target_arch = "nvptx64"))'.dependencies]`), for tests and of build scripts do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::{Table, Value};

use crate::error::BuildError;
use crate::file::Module;

/// This crate's code that writes the text; the rest of it can only refuse one.
const OWN_CODE: &[(&str, &str)] = &[
    ("compile.rs", include_str!("compile.rs")),
    ("file.rs", include_str!("file.rs")),
    ("head.rs", include_str!("head.rs")),
    ("lib.rs", include_str!("lib.rs")),
    ("ptx/directives.rs", include_str!("ptx/directives.rs")),
    ("ptx/mod.rs", include_str!("ptx/mod.rs")),
    ("ptx/names.rs", include_str!("ptx/names.rs")),
];

/// A crate of kernels and what it is built from.
#[derive(Clone, Debug)]
pub(crate) struct KernelCrate {
    /// The folder of the crate of kernels.
    pub folder: PathBuf,
    /// Its name.
    pub package: String,
    /// The folder with the lock file.
    pub root: PathBuf,
    /// It and the crates that it depends on by path: name and folder.
    pub local: BTreeMap<String, PathBuf>,
    /// What manifests ask of crates from a registry, as text.
    asked: BTreeSet<String>,
    /// These crates, as the lock file has them.
    locked: BTreeSet<String>,
    /// The source of a crate that is still to be made.
    pub module: Option<Module>,
}

impl KernelCrate {
    /// Reads the manifests and the lock file.
    pub fn open(folder: &Path) -> Result<Self, BuildError> {
        if folder.is_file() {
            return Self::open_file(folder);
        }
        let not_a_crate = |why: String| BuildError::NotACrate { path: folder.to_owned(), why };
        let folder = folder.canonicalize().map_err(|error| not_a_crate(error.to_string()))?;
        if !folder.join("Cargo.toml").is_file() {
            return Err(not_a_crate("it has no Cargo.toml".into()));
        }
        let root = workspace_root(&folder)?;
        let mut reader = Reader::default();
        let package = reader.add(&folder)?;
        let lock = root.join("Cargo.lock");
        let locked = if lock.is_file() { locked(&read_toml(&lock)?, &reader) } else { BTreeSet::new() };
        Ok(Self { folder, package, root, local: reader.local, asked: reader.asked, locked, module: None })
    }

    /// Reads the module `kernels` of a file, and what the manifest above it asks of `cuda_std`.
    fn open_file(file: &Path) -> Result<Self, BuildError> {
        let not_a_crate = |why: String| BuildError::NotACrate { path: file.to_owned(), why };
        let file = file.canonicalize().map_err(|error| not_a_crate(error.to_string()))?;
        let mut above = file.ancestors().skip(1);
        let Some(folder) = above.find(|folder| folder.join("Cargo.toml").is_file()) else {
            return Err(not_a_crate("no folder above it has a Cargo.toml".into()));
        };
        let root = workspace_root(folder)?;
        let mut reader = Reader::default();
        let manifest = read_toml(&folder.join("Cargo.toml"))?;
        let tables = ["dependencies", "dev-dependencies"].map(|name| manifest.get(name).and_then(Value::as_table));
        let Some(asked) = tables.into_iter().flatten().find_map(|table| table.get("cuda_std")) else {
            return Err(not_a_crate(format!("{} has no dependency cuda_std", folder.join("Cargo.toml").display())));
        };
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        let cuda_std = reader.follow(name.unwrap_or_default(), folder, "cuda_std", asked)?;
        let lock = root.join("Cargo.lock");
        let locked = if lock.is_file() { locked(&read_toml(&lock)?, &reader) } else { BTreeSet::new() };
        let module = Module::read(&file, cuda_std)?;
        let Reader { local, asked, .. } = reader;
        Ok(Self {
            folder: folder.to_owned(),
            package: module.package.clone(),
            root,
            local,
            asked,
            locked,
            module: Some(module),
        })
    }

    /// The hash of the sources, 64 hexadecimal digits.
    pub fn hash(&self) -> Result<String, BuildError> {
        let mut parts = BTreeMap::new();
        for (name, text) in OWN_CODE {
            parts.insert(format!("cuda_builder {name}"), (*text).to_owned());
        }
        for (package, folder) in &self.local {
            let mut files = files_under(&folder.join("src"))?;
            files.extend(
                ["Cargo.toml", "build.rs"].map(|name| folder.join(name)).into_iter().filter(|path| path.is_file()),
            );
            for path in files {
                let text = std::fs::read_to_string(&path).map_err(BuildError::read(&path))?;
                let inside = path.strip_prefix(folder).unwrap_or(&path);
                let parts_of_path: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
                parts.insert(format!("{package} {}", parts_of_path.join("/")), text);
            }
        }
        if let Some(module) = &self.module {
            parts.insert(format!("{} kernels", module.package), module.text.clone());
        }
        for (what, texts) in [("asked", &self.asked), ("locked", &self.locked)] {
            parts.insert(what.to_owned(), texts.iter().cloned().collect::<Vec<_>>().join("\n"));
        }
        let mut hash = Sha256::new();
        for (name, text) in parts {
            // As checked out with any line ends.
            let text = text.replace("\r\n", "\n");
            hash.update(format!("{name}\n{}\n{text}", text.len()));
        }
        let mut digits = String::with_capacity(64);
        for byte in hash.finalize() {
            write!(digits, "{byte:02x}").expect("a String takes any text");
        }
        Ok(digits)
    }
}

/// The hash of the sources that determine the PTX of a crate, or of a file's kernels, together with the compiler's version.
///
/// It is the same wherever the sources lie.
///
/// # Errors
/// If it is neither, or a file cannot be read.
pub fn source_hash(kernel_crate: &Path) -> Result<String, BuildError> {
    KernelCrate::open(kernel_crate)?.hash()
}

/// All files under a folder, in the order of their names.
pub(crate) fn files_under(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(BuildError::read(folder))?;
    for entry in entries {
        let path = entry.map_err(BuildError::read(folder))?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() {
            files.extend(files_under(&path)?);
        } else if !hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The nearest folder at or above the crate whose manifest has a `[workspace]`; the crate's own if there is none.
fn workspace_root(folder: &Path) -> Result<PathBuf, BuildError> {
    for ancestor in folder.ancestors() {
        let manifest = ancestor.join("Cargo.toml");
        if manifest.is_file() && read_toml(&manifest)?.contains_key("workspace") {
            return Ok(ancestor.to_owned());
        }
    }
    Ok(folder.to_owned())
}

fn read_toml(path: &Path) -> Result<Table, BuildError> {
    let text = std::fs::read_to_string(path).map_err(BuildError::read(path))?;
    text.parse().map_err(|error: toml::de::Error| BuildError::Manifest {
        path: path.to_owned(),
        why: error.message().to_owned(),
    })
}

/// Follows dependencies from manifest to manifest.
#[derive(Default)]
struct Reader {
    local: BTreeMap<String, PathBuf>,
    asked: BTreeSet<String>,
    /// For each local crate the registry crates it names.
    registry: BTreeMap<String, BTreeSet<String>>,
}

impl Reader {
    /// Adds the crate in a folder and those it depends on by path; its name.
    fn add(&mut self, folder: &Path) -> Result<String, BuildError> {
        let path = folder.join("Cargo.toml");
        let manifest = read_toml(&path)?;
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        let Some(name) = name.map(str::to_owned) else {
            return Err(BuildError::Manifest { path, why: "it has no package.name".into() });
        };
        if self.local.insert(name.clone(), folder.to_owned()).is_some() {
            return Ok(name);
        }
        for (key, asked) in dependencies(&manifest) {
            self.follow(&name, folder, key, asked)?;
        }
        Ok(name)
    }

    /// Adds what the crate `name` in `folder` asks for under `key`; what is asked, with no path but a whole one.
    fn follow(&mut self, name: &str, folder: &Path, key: &str, asked: &Value) -> Result<Value, BuildError> {
        let inherited = asked.get("workspace").and_then(Value::as_bool) == Some(true);
        let (mut asked_for, base) = if inherited {
            // Its own workspace's, which is another where a crate of ours is used elsewhere.
            let root = workspace_root(folder)?;
            let workspace = read_toml(&root.join("Cargo.toml"))?;
            let all = workspace.get("workspace").and_then(|workspace| workspace.get("dependencies"));
            let Some(asked_for) = all.and_then(|all| all.get(key)) else {
                let why = format!("`{key}.workspace = true`, and the workspace has no such dependency");
                return Err(BuildError::Manifest { path: folder.join("Cargo.toml"), why });
            };
            (asked_for.clone(), root)
        } else {
            (asked.clone(), folder.to_owned())
        };
        if let Some(local) = asked_for.get("path").and_then(Value::as_str) {
            let local = base.join(local);
            let local = local.canonicalize().map_err(BuildError::read(&local))?;
            self.add(&local)?;
            if let Value::Table(table) = &mut asked_for {
                table.insert("path".into(), local.display().to_string().into());
            }
        } else {
            let package = asked_for.get("package").and_then(Value::as_str).unwrap_or(key);
            self.asked.insert(format!("{name}: {key} = {asked_for}"));
            self.registry.entry(name.to_owned()).or_default().insert(package.to_owned());
        }
        Ok(asked_for)
    }
}

/// The dependencies that matter for the device: name and what is asked.
fn dependencies(manifest: &Table) -> Vec<(&String, &Value)> {
    let mut tables: Vec<&Table> = manifest.get("dependencies").and_then(Value::as_table).into_iter().collect();
    for (condition, table) in manifest.get("target").and_then(Value::as_table).into_iter().flatten() {
        let condition: String = condition.split_whitespace().collect();
        if condition != "cfg(not(target_arch=\"nvptx64\"))" {
            tables.extend(table.get("dependencies").and_then(Value::as_table));
        }
    }
    tables.into_iter().flatten().collect()
}

/// The lock file's entries of the registry crates that local ones name, and of all that those depend on.
fn locked(lock: &Table, reader: &Reader) -> BTreeSet<String> {
    let packages: Vec<&Table> =
        lock.get("package").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table).collect();
    let text = |package: &Table, key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    // A dependency is written `name`, or `name version` where there are several versions.
    let find = |asked: &str| {
        let mut words = asked.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        packages.iter().copied().find(|package| {
            text(package, "name") == name && version.is_none_or(|version| text(package, "version") == version)
        })
    };
    let dependencies_of = |package: &Table| -> Vec<String> {
        let list = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut waiting = Vec::new();
    for (name, named) in &reader.registry {
        let dependencies = find(name).map(dependencies_of).unwrap_or_default();
        waiting.extend(
            dependencies
                .into_iter()
                .filter(|dependency| dependency.split(' ').next().is_some_and(|dependency| named.contains(dependency))),
        );
    }
    let mut found = BTreeSet::new();
    while let Some(asked) = waiting.pop() {
        let Some(package) = find(&asked) else { continue };
        let line = format!("{} {} {}", text(package, "name"), text(package, "version"), text(package, "checksum"));
        if found.insert(line) {
            waiting.extend(dependencies_of(package));
        }
    }
    found
}

#[cfg(test)]
mod tests;
