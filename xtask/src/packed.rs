//! PTX as it is committed: compressed, for it is long and says the same again and again.
//!
//! A file of Zstandard frames (RFC 8878), some kernels to each, that together are the text: `zstd -dc FILE` prints it. Before
//! them, in a frame that a decoder skips, an index, from which the library unpacks a kernel that is launched and those beside it
//! (`host/src/device/gpu/packed.rs`): a line for each frame with the bytes that it takes and the names of the kernels in it. The
//! first frame is what comes before all kernels.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// How an entry begins a line in what LLVM writes, and how its last line ends.
const ENTRY: &str = ".visible .entry ";
const END: &str = "\n}\n";

/// How a frame begins that a decoder skips; its length follows, in four bytes.
const SKIPPED: [u8; 4] = 0x184D_2A50_u32.to_le_bytes();

/// Text in a frame, at least where kernels are left: unpacking that takes four milliseconds. With frames of half the length the
/// files are a sixteenth larger.
const FRAME_BYTES: usize = 1024 * 1024;

/// The highest of the ordinary ones: a file is written once and read often.
const LEVEL: i32 = 19;

/// What is in a file: as it is, or, if its name ends in `.zst`, unpacked.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Result<String> {
    if !is_packed(path) {
        return fs::read_to_string(path).map_err(Error::io("read", path));
    }
    let bytes = fs::read(path).and_then(|bytes| zstd::decode_all(bytes.as_slice()));
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    text.map_err(Error::io("read", path))
}

/// Whether a file of this name is packed.
pub fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

/// Writes a PTX packed, so that nobody reads half of it.
///
/// # Errors
/// If it cannot be written, or kernels share functions or variables.
pub fn write(path: &Path, ptx: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, pack(ptx)?).map_err(Error::io("write", &new))?;
    fs::rename(&new, path).map_err(Error::io("write", path))
}

fn pack(ptx: &str) -> Result<Vec<u8>> {
    let (mut index, mut frames) = (String::new(), Vec::new());
    for (names, text) in cut(ptx)? {
        let frame = zstd::bulk::compress(text.as_bytes(), LEVEL).map_err(Error::io("compress", "PTX"))?;
        let names: String = names.iter().map(|name| format!(" {name}")).collect();
        writeln!(index, "{}{names}", frame.len()).expect("a string takes all");
        frames.extend(frame);
    }
    let len = u32::try_from(index.len()).expect("kernels' names take some kilobytes").to_le_bytes();
    Ok([SKIPPED.as_slice(), &len, index.as_bytes(), &frames].concat())
}

/// The text of each frame and the names of its kernels.
fn cut(ptx: &str) -> Result<Vec<(Vec<&str>, &str)>> {
    let starts: Vec<usize> =
        ptx.match_indices(ENTRY).map(|(at, _)| at).filter(|&at| ptx[..at].ends_with('\n')).collect();
    let head = starts.first().map_or(ptx, |&first| &ptx[..first]);
    let mut frames = vec![(Vec::new(), head)];
    let (mut names, mut from) = (Vec::new(), head.len());
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(ptx.len());
        let (entry, after) = ptx[start..end].split_once(END).unwrap_or((&ptx[start..end], ""));
        let name = entry[ENTRY.len()..].split('(').next().unwrap_or_default();
        let shared = after.lines().find(|line| !line.trim().is_empty() && !line.trim().starts_with("//"));
        if let Some(line) = shared {
            return Err(Error::SharedByKernels { after: name.to_owned(), line: line.to_owned() });
        }
        names.push(name);
        if end - from >= FRAME_BYTES || end == ptx.len() {
            frames.push((std::mem::take(&mut names), &ptx[from..end]));
            from = end;
        }
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, lines: usize) -> String {
        format!("{ENTRY}{name}(\n)\n{{\n{}\tret;\n}}\n", "\tadd.s32 %r1, %r1, 1;\n".repeat(lines))
    }

    #[test]
    fn what_was_packed_is_read_and_what_is_plain_too() {
        let folder = tempfile::tempdir().unwrap();
        let head = "// a head\n.version 8.0\n.shared .align 16 .b8 tile[64];\n\t// .globl\ta\n";
        let text = [head, &entry("a", 1), "\t// .globl\tb\n", &entry("b", FRAME_BYTES / 10), &entry("c", 2)].concat();
        let (packed, plain) = (folder.path().join("a.ptx.zst"), folder.path().join("a.ptx"));
        write(&packed, &text).unwrap();
        fs::write(&plain, &text).unwrap();
        assert!(read(&packed).unwrap() == text && read(&plain).unwrap() == text);
        assert!(fs::metadata(&packed).unwrap().len() < 2000);
        let frames = cut(&text).unwrap();
        let names: Vec<_> = frames.iter().map(|(names, _)| names.as_slice()).collect();
        assert_eq!(names, [&[][..], &["a", "b"], &["c"]]);
        assert_eq!(frames[0].1, head);
        assert_eq!(frames.iter().map(|(_, text)| *text).collect::<String>(), text);
        fs::write(&packed, "no frames").unwrap();
        assert!(read(&packed).unwrap_err().to_string().contains("a.ptx.zst"));
    }

    #[test]
    fn a_text_without_kernels_is_a_head() {
        assert_eq!(cut("// a head\n").unwrap(), [(vec![], "// a head\n")]);
    }

    #[test]
    fn what_kernels_share_is_refused() {
        let text = format!("// a head\n{}.func f()\n{{\n}}\n{}", entry("a", 1), entry("b", 1));
        let said = pack(&text).unwrap_err().to_string();
        assert!(said.contains("`.func f()`") && said.contains("after kernel a"), "{said}");
    }
}
