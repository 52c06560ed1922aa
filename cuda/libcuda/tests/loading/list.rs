//! The list of symbols against `cust_raw`'s source.

use std::path::PathBuf;

use libtest_mimic::Completion;

use crate::Outcome;

/// The one list is the other.
pub fn complete() -> Outcome {
    let Some(source) = cust_raw_source() else {
        return Ok(Completion::ignored_with(
            "this binary is not where it was built, so that cust_raw's source is not known",
        ));
    };
    let declared = declarations(&std::fs::read_to_string(&source)?);
    if declared.len() < 300 {
        return Err(format!("only {} functions found in {}", declared.len(), source.display()).into());
    }
    let defined: Vec<&str> = ferrolayer_libcuda::symbols().collect();
    let missing: Vec<&String> = declared.iter().filter(|name| !defined.contains(&name.as_str())).collect();
    let unknown: Vec<&&str> = defined.iter().filter(|name| !declared.iter().any(|other| other == **name)).collect();
    if !missing.is_empty() || !unknown.is_empty() {
        return Err(format!("missing: {missing:?}; not declared: {unknown:?}").into());
    }
    assert_eq!(declared, defined, "the same names in another order, or twice");
    Ok(Completion::Completed)
}

/// Where rustc read `cust_raw` from, which it noted in the dependency file beside this binary.
fn cust_raw_source() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    std::fs::read_dir(executable.parent()?).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        if !(name.starts_with("cust_raw-") && name.ends_with(".d")) {
            return None;
        }
        let text = std::fs::read_to_string(entry.path()).ok()?;
        // "<output>: <source> <source> ..", with spaces in paths escaped; and a line "<source>:" for each.
        let source = text.lines().find_map(|line| line.strip_suffix("/src/cuda.rs:"))?;
        Some(PathBuf::from(format!("{}/src/cuda.rs", source.replace("\\ ", " ")))).filter(|path| path.is_file())
    })
}

/// The names of the functions that bindgen's output declares, sorted.
fn declarations(source: &str) -> Vec<String> {
    let mut names: Vec<String> = source
        .split("pub fn ")
        .skip(1)
        .filter_map(|rest| rest.split_once('('))
        .map(|(name, _)| name.trim().to_owned())
        .filter(|name| name.starts_with("cu"))
        .collect();
    names.sort();
    names.dedup();
    names
}
