//! A PTX text in pieces, so that the driver compiles the kernels that are launched and no others.

use std::borrow::Cow;
use std::collections::HashMap;

use super::module::Ptx;
use super::packed::Packed;

/// How an entry begins a line in what LLVM writes.
pub const ENTRY: &str = ".visible .entry ";
/// How its last line ends.
pub const END: &str = "\n}\n";

/// The kernels of a PTX, each of which may be loaded without the others.
#[derive(Debug)]
pub enum Pieces {
    /// A text that is not as LLVM writes it, or whose kernels share functions or variables.
    Whole(&'static str),
    Text {
        /// What is outside of kernels.
        common: String,
        /// The text of each kernel, by name.
        kernels: HashMap<&'static str, &'static str>,
    },
    Packed(Packed),
}

impl Pieces {
    pub fn of(ptx: Ptx) -> Self {
        match ptx {
            Ptx::Text(text) => Self::of_text(text),
            // What is no such file has no kernel, as the driver then says of the empty text.
            Ptx::Packed(file) => Packed::of(file).map_or(Self::Whole(""), Self::Packed),
        }
    }

    fn of_text(text: &'static str) -> Self {
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
        if common.lines().all(is_declaration) { Self::Text { common, kernels } } else { Self::Whole(text) }
    }

    /// What is to be loaded for a kernel: all there is, or what is outside of kernels, where it has no piece of its own.
    pub fn with(&self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Whole(text) => Cow::Borrowed(text),
            Self::Text { common, kernels } => Cow::Owned(format!("{common}{}", kernels.get(name).unwrap_or(&""))),
            Self::Packed(packed) => packed.with(name).map_or(Cow::Borrowed(&packed.head), Cow::Owned),
        }
    }

    /// Whether all kernels wait for the grid before theirs, so that none needs to be launched after it: as the head says that
    /// `cuda_builder` writes.
    pub fn wait(&self) -> bool {
        let text = match self {
            Self::Whole(text) => text,
            Self::Text { common, .. } => common.as_str(),
            Self::Packed(packed) => packed.head.as_str(),
        };
        text.lines().next().is_some_and(|head| head.contains(" waits=yes "))
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

    /// Of the library's own kernels each is in one piece, with what is outside of kernels and no other.
    #[test]
    fn every_kernel_has_a_piece() {
        for family in [PtxFamily::Sm80, PtxFamily::Sm90a] {
            let pieces = Pieces::of(FERROLAYER.ptx(family));
            let Pieces::Packed(packed) = &pieces else { panic!("not packed: {pieces:?}") };
            assert!(packed.head.lines().all(is_declaration));
            assert_eq!(pieces.wait(), family == PtxFamily::Sm90a);
            for name in packed.names() {
                let piece = pieces.with(name);
                let kernel = piece.strip_prefix(&packed.head).expect("what is outside comes first");
                assert!(kernel.starts_with(&format!("{ENTRY}{name}(")) && kernel.ends_with(END), "{name}");
                assert_eq!(kernel.matches(".entry ").count(), 1, "{name}");
            }
            assert!(packed.names().count() > 400);
            assert_eq!(pieces.with("no_such_kernel"), packed.head);
        }
    }

    #[test]
    fn what_is_no_packed_file_has_no_kernel() {
        let file = |index: &str, frames: &[u8]| -> &'static [u8] {
            let len = u32::try_from(index.len()).expect("short").to_le_bytes();
            [&[0x50, 0x2A, 0x4D, 0x18], len.as_slice(), index.as_bytes(), frames].concat().leak()
        };
        // One frame of one block, which is stored as it is: "// b\n".
        let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 41, 0, 0, b'/', b'/', b' ', b'b', b'\n'];
        assert!(
            matches!(Pieces::of(Ptx::Packed(file("14\n", &frame))), Pieces::Packed(Packed { head, .. }) if head == "// b\n")
        );
        let whole = file("14\n14 a\n", &[frame, frame].concat());
        assert_eq!(Pieces::of(Ptx::Packed(whole)).with("a"), "// b\n", "its frame has no such entry");
        for end in 0..whole.len() {
            let pieces = Pieces::of(Ptx::Packed(&whole[..end]));
            assert!(matches!(pieces, Pieces::Whole("")), "{end} bytes: {pieces:?}");
        }
        assert!(matches!(Pieces::of(Ptx::Packed(file("x\n", &frame))), Pieces::Whole("")));
        assert!(matches!(Pieces::of(Ptx::Packed(file("9\n", &frame))), Pieces::Whole("")));
    }

    #[test]
    fn a_text_is_cut_where_a_kernel_begins() {
        let common =
            ".version 7.0\n// a comment\n\n.shared .align 16 .b8 tile[64];\n.extern .shared .align 16 .b8 all[];\n";
        let [a, b] = ["a", "b"].map(|name| format!("{ENTRY}{name}(\n)\n{{\n\tret;\n}}\n"));
        let pieces = Pieces::of(Ptx::Text(format!("{common}{a}// more\n{b}").leak()));
        assert_eq!(pieces.with("a"), format!("{common}// more\n{a}"));
        assert_eq!(pieces.with("b"), format!("{common}// more\n{b}"));
        assert_eq!(pieces.with("c"), format!("{common}// more\n"));
        assert!(!pieces.wait());
        let head = "// ferrolayer-ptx arch=sm_80 waits=yes sources=0 compiler=\"\"\n";
        assert!(Pieces::of(Ptx::Text(format!("{head}{common}{a}").leak())).wait());
    }

    #[test]
    fn what_shares_more_than_declarations_stays_whole() {
        let kernels = ".visible .entry a(\n)\n{\n\tret;\n}\n.visible .entry b(\n)\n{\n\tret;\n}\n";
        let head = ".version 7.0\n.target sm_80\n.address_size 64\n";
        let whole = |common: &str| {
            let text: &'static str = format!("{head}{common}{kernels}").leak();
            Pieces::of(Ptx::Text(text)).with("a") == text
        };
        assert!(!whole("// a comment\n\n.shared .align 16 .b8 tile[64];\n.extern .shared .align 16 .b8 all[];\n"));
        assert!(whole(".visible .global .align 4 .u32 counter;\n"));
        assert!(whole(".func f()\n{\n\tret;\n}\n"));
        assert!(whole(".const .align 4 .b8 table[8] = {1, 2};\n"));
    }
}
