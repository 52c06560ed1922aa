//! A PTX text in pieces, so that the driver compiles the kernels that are launched and no others.

use std::borrow::Cow;
use std::collections::HashMap;

/// How an entry begins a line in what LLVM writes.
const ENTRY: &str = ".visible .entry ";
/// How its last line ends.
const END: &str = "\n}\n";

/// The kernels of a PTX text, each of which may be loaded without the others.
#[derive(Debug)]
pub struct Pieces {
    text: &'static str,
    /// What is outside of kernels.
    common: String,
    /// The text of each kernel, by name; none where kernels share more than declarations.
    kernels: HashMap<&'static str, &'static str>,
}

impl Pieces {
    /// Of a text; one that is not as LLVM writes it, or whose kernels share functions or variables, stays whole.
    pub fn of(text: &'static str) -> Self {
        let (mut common, mut kernels) = (String::new(), HashMap::new());
        let mut rest = text;
        while let Some(start) = entry_line(rest) {
            let (before, entry) = rest.split_at(start);
            let name = &entry[ENTRY.len()..];
            let (Some(name), Some(end)) = (name.find('(').map(|end| name[..end].trim()), entry.find(END)) else {
                break;
            };
            let (entry, after) = entry.split_at(end + END.len());
            common.push_str(before);
            kernels.insert(name, entry);
            rest = after;
        }
        common.push_str(rest);
        if !common.lines().all(is_declaration) {
            kernels.clear();
        }
        Self { text, common, kernels }
    }

    /// What is to be loaded for a kernel: all of the text where it is in no piece of its own.
    pub fn with(&self, name: &str) -> Cow<'static, str> {
        self.kernels.get(name).map_or(Cow::Borrowed(self.text), |kernel| Cow::Owned(format!("{}{kernel}", self.common)))
    }
}

/// Where the first entry begins that begins a line.
fn entry_line(text: &str) -> Option<usize> {
    if text.starts_with(ENTRY) {
        return Some(0);
    }
    text.match_indices(ENTRY).map(|(at, _)| at).find(|&at| text.as_bytes()[at - 1] == b'\n')
}

/// Whether a line outside of kernels may be in several modules: directives, comments, and shared memory, which each launch has
/// anew.
fn is_declaration(line: &str) -> bool {
    let line = line.trim();
    let starts = ["//", ".version", ".target", ".address_size", ".shared", ".extern .shared"];
    line.is_empty() || starts.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::PtxFamily;
    use crate::device::gpu::FERROLAYER;

    /// Of the library's own kernels each is in one piece, with all that is outside and no other.
    #[test]
    fn every_kernel_has_a_piece() {
        for family in [PtxFamily::Sm80, PtxFamily::Sm90a] {
            let text = FERROLAYER.ptx(family);
            let pieces = Pieces::of(text);
            let names = text.lines().filter_map(|line| line.strip_prefix(ENTRY)).map(|line| line.trim_end_matches('('));
            let mut together = pieces.common.len();
            for name in names.clone() {
                let piece = pieces.with(name);
                let kernel = piece.strip_prefix(&pieces.common).expect("what is outside comes first");
                assert!(kernel.starts_with(&format!("{ENTRY}{name}(")) && kernel.ends_with(END), "{name}");
                assert_eq!(kernel.matches(".entry ").count(), 1, "{name}");
                together += kernel.len();
            }
            assert!(names.count() > 400);
            assert_eq!(together, text.len(), "nothing is left out or there twice");
            assert_eq!(pieces.with("no_such_kernel"), text);
        }
    }

    #[test]
    fn what_shares_more_than_declarations_stays_whole() {
        let kernels = ".visible .entry a(\n)\n{\n\tret;\n}\n.visible .entry b(\n)\n{\n\tret;\n}\n";
        let head = ".version 7.0\n.target sm_80\n.address_size 64\n";
        let whole = |common: &str| {
            let text: &'static str = format!("{head}{common}{kernels}").leak();
            Pieces::of(text).with("a") == text
        };
        assert!(!whole("// a comment\n\n.shared .align 16 .b8 tile[64];\n.extern .shared .align 16 .b8 all[];\n"));
        assert!(whole(".visible .global .align 4 .u32 counter;\n"));
        assert!(whole(".func f()\n{\n\tret;\n}\n"));
        assert!(whole(".const .align 4 .b8 table[8] = {1, 2};\n"));
    }
}
