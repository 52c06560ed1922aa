//! What rustc cannot write: launch bounds, the block's shape, clusters, and the alignment of tensor maps.
//!
//! `#[kernel]` leaves a static `__ferrolayer_kernel_NAME` beside each entry. It is read here and taken out of the text.

use std::collections::BTreeMap;

use super::{Item, Kind, items};
use crate::error::BuildError;

/// What the names of the statics begin with.
const PREFIX: &str = "__ferrolayer_kernel_";
/// Their length in 32-bit words.
const WORDS: usize = 10;
/// A `CUtensorMap` in bytes, and its alignment.
const TENSOR_MAP: (usize, usize) = (128, 64);

/// What a kernel's attribute says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// The only block that it may be launched with.
    pub block: Option<[u32; 3]>,
    /// The most threads a block may have.
    pub max_threads: Option<u32>,
    /// Blocks that must fit a multiprocessor at once.
    pub min_blocks: Option<u32>,
    /// Blocks of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// How many barriers the PTX may have, where counting those in the source does not tell.
    pub barriers: Option<u32>,
}

impl KernelAttributes {
    /// From the static's words: block, most threads, fewest blocks, cluster, whether barriers are given, barriers.
    fn from_words(words: [u32; WORDS]) -> Self {
        let [x, y, z, max_threads, min_blocks, cluster_x, cluster_y, cluster_z, given, barriers] = words;
        let shape = |shape: [u32; 3]| (shape != [0; 3]).then_some(shape);
        let number = |number: u32| (number != 0).then_some(number);
        Self {
            block: shape([x, y, z]),
            max_threads: number(max_threads),
            min_blocks: number(min_blocks),
            cluster: shape([cluster_x, cluster_y, cluster_z]),
            barriers: (given != 0).then_some(barriers),
        }
    }

    /// The directives, as they stand between an entry's parameters and its body.
    fn directives(&self, kernel: &str) -> Result<String, BuildError> {
        let refuse = |why: String| Err(BuildError::Metadata { kernel: kernel.to_owned(), why });
        for (what, shape) in [("block", self.block), ("cluster", self.cluster)] {
            if let Some(shape @ ([0, ..] | [_, 0, _] | [.., 0])) = shape {
                return refuse(format!("{what} = {shape:?}, expected numbers greater than 0"));
            }
        }
        if self.block.is_some() && self.max_threads.is_some() {
            return refuse(
                "both `block` and `max_threads` are given, expected one: a block's shape says its size".into(),
            );
        }
        if self.min_blocks.is_some() && self.block.is_none() && self.max_threads.is_none() {
            return refuse("`min_blocks` without `block` or `max_threads`: blocks of what size should fit?".into());
        }
        let mut text = String::new();
        let shape = |[x, y, z]: [u32; 3]| format!("{x}, {y}, {z}");
        let mut line = |directive: &str, value: Option<String>| {
            if let Some(value) = value {
                text += &format!(".{directive} {value}\n");
            }
        };
        line("reqntid", self.block.map(shape));
        line("maxntid", self.max_threads.map(|threads| threads.to_string()));
        line("minnctapersm", self.min_blocks.map(|blocks| blocks.to_string()));
        line("reqnctapercluster", self.cluster.map(shape));
        Ok(text)
    }
}

/// The text with the statics taken out and their directives written in, and what each entry's attribute said.
///
/// A by-value parameter of 128 bytes with the alignment that rustc can write, 16, counts as a tensor map and is aligned
/// to 64, as `cp.async.bulk.tensor` wants it. To any other parameter of that shape it does no harm.
///
/// # Errors
/// [`BuildError::Metadata`] for a static that is not of this form, or says what the hardware cannot do.
pub fn write(text: &str) -> Result<(String, BTreeMap<String, KernelAttributes>), BuildError> {
    let items = items(text)?;
    let mut kernels = BTreeMap::new();
    // Replacements of parts of the text, none inside another.
    let mut edits = Vec::new();
    let mut statics = BTreeMap::new();
    for item in &items {
        let (Kind::Variable(_), Some(kernel)) = (item.kind, item.name.strip_prefix(PREFIX)) else { continue };
        let words = words_of(text, item).ok_or_else(|| BuildError::Metadata {
            kernel: kernel.to_owned(),
            why: malformed(&text[item.range.clone()]),
        })?;
        statics.insert(kernel, KernelAttributes::from_words(words));
        let line_end = text[item.range.end..].find('\n').map_or(text.len(), |end| item.range.end + end + 1);
        edits.push((item.range.start..line_end, String::new()));
    }
    for item in items.iter().filter(|item| item.kind == Kind::Entry) {
        let attributes = statics.remove(item.name).unwrap_or_default();
        let directives = attributes.directives(item.name)?;
        if let (Some(body), false) = (&item.body, directives.is_empty()) {
            edits.push((body.start - 1..body.start - 1, directives));
        }
        if let Some(parameters) = &item.parameters {
            let list = &text[parameters.clone()];
            let aligned = align_tensor_maps(list);
            if aligned != list {
                edits.push((parameters.clone(), aligned));
            }
        }
        kernels.insert(item.name.to_owned(), attributes);
    }
    if let Some(kernel) = statics.keys().next() {
        let why = format!("the PTX has {PREFIX}{kernel} but no entry of that name");
        return Err(BuildError::Metadata { kernel: (*kernel).to_owned(), why });
    }
    edits.sort_by_key(|(range, _)| range.start);
    let (mut written, mut at) = (String::with_capacity(text.len()), 0);
    for (range, replacement) in edits {
        written.push_str(&text[at..range.start]);
        written.push_str(&replacement);
        at = range.end;
    }
    written.push_str(&text[at..]);
    Ok((written, kernels))
}

fn malformed(text: &str) -> String {
    format!("`{text}`, expected an array of {WORDS} 32-bit numbers, as #[kernel] writes it")
}

/// A static's words. LLVM writes bytes or words, and leaves out zeros at the end, or all of them with the `=`.
fn words_of(text: &str, item: &Item<'_>) -> Option<[u32; WORDS]> {
    let declaration = &text[item.range.clone()];
    let size: usize = declaration.split_once('[')?.1.split_once(']')?.0.trim().parse().ok()?;
    let bytes_each = super::words(declaration).find_map(|word| match word {
        ".b8" | ".u8" => Some(1),
        ".b32" | ".u32" => Some(4),
        _ => None,
    })?;
    if size * bytes_each != WORDS * 4 {
        return None;
    }
    let mut bytes = Vec::with_capacity(WORDS * 4);
    if let Some(initializer) = &item.initializer {
        let list = text[initializer.clone()].trim().strip_prefix('{')?.strip_suffix('}')?;
        for number in list.split(',') {
            let number: u32 = number.trim().parse().ok()?;
            bytes.extend_from_slice(number.to_le_bytes().get(..bytes_each)?);
        }
    }
    if bytes.len() > WORDS * 4 {
        return None;
    }
    bytes.resize(WORDS * 4, 0);
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

fn align_tensor_maps(parameters: &str) -> String {
    let (size, alignment) = TENSOR_MAP;
    let suffix = format!("[{size}]");
    parameters
        .split(',')
        .map(|parameter| {
            if parameter.trim_end().ends_with(&suffix) {
                parameter.replacen(".align 16 ", &format!(".align {alignment} "), 1)
            } else {
                parameter.to_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(",")
}
