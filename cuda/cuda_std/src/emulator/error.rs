//! What can go wrong on the emulated grid.

use std::fmt;
use std::panic::Location;

use thiserror::Error;

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The file, as the compiler was given it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl From<&Location<'_>> for Site {
    fn from(location: &Location<'_>) -> Self {
        Self { file: location.file().to_owned(), line: location.line(), column: location.column() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What threads wait in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    /// A barrier of the whole block.
    SyncThreads,
    /// An operation of the lanes of a warp: its function and its mask.
    Warp {
        /// As in [`warp`](crate::warp).
        function: &'static str,
        /// The lanes that it names.
        mask: u32,
    },
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SyncThreads => write!(f, "sync_threads"),
            Self::Warp { function, mask } => write!(f, "{function} (mask {mask:#010x})"),
        }
    }
}

/// Threads that wait at one place, and those they wait for. Threads are numbered as
/// [`thread::index_in_block`](crate::thread::index_in_block) does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// In what.
    pub collective: Collective,
    /// Where.
    pub site: Site,
    /// Those that wait, in order.
    pub threads: Vec<u32>,
    /// Those that did not come to this place, in order.
    pub missing: Vec<u32>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, site, threads, missing } = self;
        let (threads, missing) = (Ranges(threads), Ranges(missing));
        write!(f, "{collective} at {site} was reached by {threads} and not by {missing}")
    }
}

/// Numbers in order, as ranges.
struct Ranges<'a>(&'a [u32]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread{} ", if self.0.len() == 1 { "" } else { "s" })?;
        for (i, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            match run {
                [one] => write!(f, "{separator}{one}")?,
                run => write!(f, "{separator}{} to {}", run[0], run[run.len() - 1])?,
            }
        }
        Ok(())
    }
}

fn waiting_and_ended(waiting: &[Waiting], ended: &[u32]) -> String {
    let mut parts: Vec<String> = waiting.iter().map(ToString::to_string).collect();
    if !ended.is_empty() {
        parts.push(format!("{} ended", Ranges(ended)));
    }
    parts.join("; ")
}

/// Why a launch on the emulated grid failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EmulationError {
    /// The kernel is for one architecture, whose instructions the emulated grid does not have.
    #[error("kernel `{kernel}`: it is for {arch} alone, and cannot be emulated")]
    NotEmulated {
        /// The kernel's name.
        kernel: &'static str,
        /// The architecture.
        arch: &'static str,
    },
    /// The shape of the launch is not one that the kernel or a device takes.
    #[error("kernel `{kernel}`: the {what} is {got:?}, expected {expected}")]
    Dims {
        /// The kernel's name.
        kernel: &'static str,
        /// `grid` or `block`.
        what: &'static str,
        /// What the launch said.
        got: [u32; 3],
        /// What it should have said.
        expected: String,
    },
    /// More dynamic shared memory than a block can have.
    #[error("kernel `{kernel}`: {bytes} bytes of dynamic shared memory, expected at most {limit}")]
    SharedMemory {
        /// The kernel's name.
        kernel: &'static str,
        /// What the launch said.
        bytes: u32,
        /// What a block can have.
        limit: u32,
    },
    /// A buffer is in a device's memory.
    #[error("kernel `{kernel}`: `{argument}` is in the memory of device {ordinal}, expected host memory")]
    NotHostMemory {
        /// The kernel's name.
        kernel: &'static str,
        /// The parameter.
        argument: &'static str,
        /// The device.
        ordinal: u32,
    },
    /// Some threads wait for others that will not come: they have ended or wait elsewhere.
    #[error("kernel `{kernel}`, block {block:?}: {}", waiting_and_ended(waiting, ended))]
    Divergence {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// Where threads wait, by place.
        waiting: Vec<Waiting>,
        /// The threads that have ended.
        ended: Vec<u32>,
    },
    /// A thread panicked: an index out of bounds, an overflow, an assertion.
    #[error(
        "kernel `{kernel}`, block {block:?}, thread {thread:?}, at {}: {message}",
        site.as_ref().map_or_else(|| String::from("an unknown place"), ToString::to_string)
    )]
    Fault {
        /// The kernel's name.
        kernel: &'static str,
        /// The block.
        block: [u32; 3],
        /// The thread in the block.
        thread: [u32; 3],
        /// What it said.
        message: String,
        /// Where; unknown only when the program has replaced the panic hook.
        site: Option<Site>,
    },
    /// The operating system gave no more threads, or no more memory for their stacks.
    #[error("kernel `{kernel}`: the emulated grid got {got} of {expected} threads: {reason}")]
    Threads {
        /// The kernel's name.
        kernel: &'static str,
        /// Threads that could be made.
        got: u32,
        /// Threads of the block.
        expected: u32,
        /// What the operating system said.
        reason: String,
    },
}
