//! The spills that are known: `kernels/spills.toml`.
//!
//! ```toml
//! [[spill]]
//! kernel = "dense_forward_bf16"
//! target = "sm_80"
//! bytes = 16
//! reason = "two addresses over the main loop; 2 % slower with a smaller tile"
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

use crate::error::{Error, Result};
use crate::ptxas::Usage;

/// One spill that is known.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    kernel: String,
    target: String,
    bytes: u64,
}

/// Reads the list; there is none where there is no file.
///
/// # Errors
/// [`Error::SpillList`] for an entry that lacks something.
pub fn read(path: &Path) -> Result<Vec<Known>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
    parse(&text).map_err(|why| Error::SpillList { path: path.to_owned(), why })
}

fn parse(text: &str) -> std::result::Result<Vec<Known>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let list = table.get("spill").and_then(Value::as_array).into_iter().flatten();
    list.map(|spill| {
        let text = |key: &str| {
            let value = spill.get(key).and_then(Value::as_str).filter(|value| !value.trim().is_empty());
            value.map(str::to_owned).ok_or_else(|| format!("a [[spill]] has no `{key}`: {spill}"))
        };
        let bytes = spill.get("bytes").and_then(Value::as_integer).and_then(|bytes| u64::try_from(bytes).ok());
        text("reason")?;
        Ok(Known {
            kernel: text("kernel")?,
            target: text("target")?,
            bytes: bytes.ok_or_else(|| format!("a [[spill]] has no `bytes`: {spill}"))?,
        })
    })
    .collect()
}

/// What is wrong: spills that are not listed or more than listed, and lines for kernels that are gone.
pub fn unknown(known: &[Known], used: &[Usage]) -> Vec<String> {
    let mut wrong = Vec::new();
    for usage in used.iter().filter(|usage| usage.spills > 0) {
        let listed = known.iter().find(|known| known.kernel == usage.kernel && known.target == usage.target);
        let allowed = listed.map_or(0, |known| known.bytes);
        if usage.spills > allowed {
            wrong.push(format!(
                "{} spills {} bytes on {}, {allowed} are listed in kernels/spills.toml",
                usage.kernel, usage.spills, usage.target
            ));
        }
    }
    let kernels: BTreeSet<_> = used.iter().map(|usage| usage.kernel.as_str()).collect();
    for gone in known.iter().filter(|known| !kernels.contains(known.kernel.as_str())) {
        wrong.push(format!("kernels/spills.toml lists {}, which is no kernel", gone.kernel));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[[spill]]\nkernel = \"k\"\ntarget = \"sm_80\"\nbytes = 16\nreason = \"addresses\"\n";

    fn usage(kernel: &str, target: &str, spills: u64) -> Usage {
        Usage { kernel: kernel.into(), target: target.into(), spills, ..Usage::default() }
    }

    #[test]
    fn a_listed_spill_passes_and_no_other() {
        let known = parse(LIST).unwrap();
        assert!(unknown(&known, &[usage("k", "sm_80", 16), usage("k", "sm_90", 0)]).is_empty());
        assert_eq!(
            unknown(&known, &[usage("k", "sm_80", 20)]),
            ["k spills 20 bytes on sm_80, 16 are listed in kernels/spills.toml"]
        );
        assert_eq!(
            unknown(&known, &[usage("k", "sm_90", 4)]),
            ["k spills 4 bytes on sm_90, 0 are listed in kernels/spills.toml"]
        );
        assert_eq!(unknown(&known, &[usage("other", "sm_80", 0)]), ["kernels/spills.toml lists k, which is no kernel"]);
    }

    #[test]
    fn every_line_has_a_reason() {
        for missing in ["kernel", "target", "bytes", "reason"] {
            let text: String =
                LIST.lines().filter(|line| !line.starts_with(missing)).map(|l| format!("{l}\n")).collect();
            let why = parse(&text).unwrap_err();
            assert!(why.contains(&format!("`{missing}`")), "{why}");
        }
        assert!(parse(&LIST.replace("addresses", " ")).is_err());
    }
}
