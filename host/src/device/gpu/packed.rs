//! PTX that is compressed, a few kernels to a frame, so that no more is unpacked than what is launched.
//!
//! A file of Zstandard frames (RFC 8878) that together are the text, as `zstd -dc` prints it. Before them, in a frame that a
//! decoder skips, an index: a line for each frame with the bytes that it takes and the names of the kernels in it. The first
//! has none: it is what comes before all kernels. `cargo xtask build-ptx` writes such files.

use std::collections::HashMap;
use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use super::pieces::{END, ENTRY};

/// How a frame begins that a decoder skips; its length follows, in four bytes.
const SKIPPED: [u8; 4] = 0x184D_2A50_u32.to_le_bytes();

/// The frames of a compressed PTX.
#[derive(Debug)]
pub struct Packed {
    /// What comes before all kernels.
    pub head: String,
    /// The frame of each kernel, by name.
    frames: HashMap<&'static str, &'static [u8]>,
}

impl Packed {
    /// Of a file's bytes; `None` if they are not such a file's.
    pub fn of(file: &'static [u8]) -> Option<Self> {
        let (len, rest) = file.strip_prefix(&SKIPPED)?.split_first_chunk()?;
        let (index, mut rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let (mut head, mut frames) = (None, HashMap::new());
        for line in std::str::from_utf8(index).ok()?.lines() {
            let mut words = line.split(' ');
            let frame;
            (frame, rest) = rest.split_at_checked(words.next()?.parse().ok()?)?;
            match head {
                None => head = Some(unpack(frame)?),
                Some(_) => frames.extend(words.map(|name| (name, frame))),
            }
        }
        head.map(|head| Self { head, frames })
    }

    /// What is to be loaded for a kernel, if it is there.
    pub fn with(&self, name: &str) -> Option<String> {
        let text = unpack(self.frames.get(name)?)?;
        let start = text.find(&format!("{ENTRY}{name}("))?;
        let len = text[start..].find(END)? + END.len();
        Some(format!("{}{}", self.head, &text[start..start + len]))
    }

    /// The names of all kernels.
    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.frames.keys().copied()
    }
}

fn unpack(frame: &[u8]) -> Option<String> {
    let mut text = String::new();
    StreamingDecoder::new(frame).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}
