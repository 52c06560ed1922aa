//! What the linker made of programs and shared objects.

use std::path::{Path, PathBuf};

use libtest_mimic::Completion;
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Sym as _};
use object::{Endianness, elf};

use crate::Outcome;

/// The binary that runs this test, which calls cust in `child.rs`.
pub fn this_binary() -> Outcome {
    check(&std::env::current_exe()?)
}

/// A `cdylib` that calls cust.
pub fn shared_object() -> Outcome {
    match example("uses_driver") {
        Some(path) => check(&path),
        None => Ok(Completion::ignored_with("libuses_driver.so is not built (cargo test without --test builds it)")),
    }
}

/// A `cdylib` of `tests/fixtures`, which Cargo puts beside the test binaries' folder.
pub fn example(name: &str) -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    let path = executable.parent()?.parent()?.join("examples").join(format!("lib{name}.so"));
    path.is_file().then_some(path)
}

/// No dependency on the driver, no symbol of it wanted or offered.
fn check(path: &Path) -> Outcome {
    let (needed, symbols) = dynamic(path)?;
    if needed.is_empty() || symbols.is_empty() {
        return Err(format!("{}: no dynamic section was read", path.display()).into());
    }
    if let Some(library) = needed.iter().find(|library| library.contains("cuda") || library.contains("nvrtc")) {
        return Err(format!("{} needs {library}", path.display()).into());
    }
    let driver: Vec<&str> = ferrolayer_libcuda::symbols().collect();
    if let Some(symbol) = symbols.iter().find(|symbol| driver.contains(&symbol.as_str())) {
        return Err(format!("{symbol} is among the dynamic symbols of {}", path.display()).into());
    }
    Ok(Completion::Completed)
}

/// The libraries that an ELF file asks for, and its dynamic symbols, wanted or offered.
fn dynamic(path: &Path) -> Result<(Vec<String>, Vec<String>), Box<dyn std::error::Error>> {
    let data = std::fs::read(path)?;
    let data = data.as_slice();
    let header = elf::FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
    let mut names = Vec::new();
    for symbol in symbols.iter() {
        names.push(String::from_utf8_lossy(symbol.name(endian, symbols.strings())?).into_owned());
    }
    let mut needed = Vec::new();
    for segment in header.program_headers(endian, data)? {
        for entry in segment.dynamic(endian, data)?.unwrap_or_default() {
            if entry.tag(endian) == elf::DT_NEEDED {
                let name = entry.string(endian, symbols.strings())?;
                needed.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Ok((needed, names))
}
