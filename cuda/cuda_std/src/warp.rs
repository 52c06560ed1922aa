//! What the 32 threads of a warp do together: shuffles, votes, reductions.
//!
//! The short names ([`shuffle_xor`], [`ballot`], ..) mean the whole warp. The long ones, rust-cuda's, take a mask of
//! lanes: each lane that calls must be in its mask, and all lanes of the mask that have not ended must call with the
//! same mask. A warp that a block does not fill counts as if the rest had ended.
//!
//! A shuffle that reads from a lane which takes no part gives an undefined value on the device, all bits set on the
//! emulated grid. Shuffles and votes order no memory: [`sync_warp`] does.

use crate::machine;
use crate::thread;

/// All lanes of a warp.
pub const FULL_MASK: u32 = u32::MAX;
/// Lanes of a warp.
pub const WARP_SIZE: u32 = 32;

/// The kinds of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Index,
    Up,
    Down,
    Xor,
}

mod sealed {
    /// What goes through 32-bit shuffles.
    pub trait Word: Copy {
        fn shuffle(self, exchange: impl FnMut(u32) -> u32) -> Self;
    }

    macro_rules! words {
        ($($t:ty: $into:expr, $from:expr;)*) => {$(
            impl Word for $t {
                #[inline(always)]
                fn shuffle(self, mut exchange: impl FnMut(u32) -> u32) -> Self {
                    $from(exchange($into(self)))
                }
            }
        )*};
    }
    words! {
        u32: core::convert::identity, core::convert::identity;
        i32: i32::cast_unsigned, u32::cast_signed;
        f32: f32::to_bits, f32::from_bits;
    }

    macro_rules! double_words {
        ($($t:ty: $into:expr, $from:expr;)*) => {$(
            impl Word for $t {
                #[inline(always)]
                fn shuffle(self, mut exchange: impl FnMut(u32) -> u32) -> Self {
                    let bits: u64 = $into(self);
                    let (low, high) = (exchange(bits as u32), exchange((bits >> 32) as u32));
                    $from(u64::from(high) << 32 | u64::from(low))
                }
            }
        )*};
    }
    double_words! {
        u64: core::convert::identity, core::convert::identity;
        i64: i64::cast_unsigned, u64::cast_signed;
        f64: f64::to_bits, f64::from_bits;
    }
}

/// What a shuffle moves: 32-bit values in one instruction, 64-bit values in two.
pub trait Value: sealed::Word {}
impl Value for u32 {}
impl Value for i32 {}
impl Value for f32 {}
impl Value for u64 {}
impl Value for i64 {}
impl Value for f64 {}

/// The thread's number in its warp, 0 to 31. PTX: `%laneid` (PTX ISA, Special Registers).
#[inline(always)]
pub fn lane_id() -> u32 {
    machine::lane_id()
}

/// The warp's number in its block: [`thread::index_in_block`] by 32. (PTX's `%warpid` is another thing and may change
/// while a thread runs.)
#[inline(always)]
pub fn warp_id() -> u32 {
    thread::index_in_block() / WARP_SIZE
}

/// The lanes that happen to run together. A hint only: never a mask for a shuffle. PTX: `activemask` (PTX ISA,
/// Parallel Synchronization and Communication). On the emulated grid: the lanes that have not ended.
#[inline(always)]
pub fn activemask() -> u32 {
    machine::activemask()
}

/// Waits for the lanes of the mask; what each wrote before, all of them see after.
/// PTX: `bar.warp.sync` (PTX ISA, Parallel Synchronization and Communication).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync_warp(mask: u32) {
    machine::sync_warp(mask);
}

/// The instruction's operand `c` for segments of `width` lanes.
#[inline(always)]
const fn clamp_and_segment(kind: Shuffle, width: u32) -> u32 {
    let segment = (32 - width) << 8;
    match kind {
        Shuffle::Up => segment,
        Shuffle::Index | Shuffle::Down | Shuffle::Xor => segment | 0x1f,
    }
}

/// The lane that a shuffle reads for `lane`, and whether it is within the segment (else the lane's own).
/// The arithmetic is that of PTX ISA, `shfl.sync`.
#[inline(always)]
pub(crate) const fn source_lane(kind: Shuffle, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let last = (lane & segment) | (clamp & !segment);
    let (source, valid) = match kind {
        Shuffle::Up => {
            let source = lane as i32 - b as i32;
            (source as u32, source >= last as i32)
        }
        Shuffle::Down => (lane + b, lane + b <= last),
        Shuffle::Xor => (lane ^ b, lane ^ b <= last),
        Shuffle::Index => {
            let source = (lane & segment) | (b & !segment);
            (source, source <= last)
        }
    };
    if valid { (source, true) } else { (lane, false) }
}

#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
fn shuffled<T: Value>(kind: Shuffle, mask: u32, value: T, b: u32, width: u32) -> (T, bool) {
    let c = clamp_and_segment(kind, width);
    #[cfg(target_arch = "nvptx64")]
    let exchanged = value.shuffle(|word| machine::shuffle(kind, mask, word, b, c));
    #[cfg(not(target_arch = "nvptx64"))]
    let exchanged = {
        let site = core::panic::Location::caller();
        value.shuffle(|word| machine::shuffle(kind, mask, word, b, c, site))
    };
    (exchanged, source_lane(kind, lane_id(), b, c).1)
}

macro_rules! shuffles {
    ($($short:ident $long:ident $kind:ident $operand:ident: $which:literal, $ptx:literal;)*) => {$(
        #[doc = concat!("The value of ", $which, ". PTX: `", $ptx, "` (PTX ISA, Data Movement: `shfl.sync`).")]
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub fn $short<T: Value>(value: T, $operand: u32) -> T {
            shuffled(Shuffle::$kind, FULL_MASK, value, $operand, WARP_SIZE).0
        }

        #[doc = concat!("The value of ", $which, ", within segments of `width` lanes (a power of two up to 32), and ")]
        #[doc = concat!("whether that lane is in the segment; if not, the own value. PTX: `", $ptx, "`.")]
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub fn $long<T: Value>(mask: u32, value: T, $operand: u32, width: u32) -> (T, bool) {
            shuffled(Shuffle::$kind, mask, value, $operand, width)
        }
    )*};
}
shuffles! {
    shuffle warp_shuffle_idx Index lane: "the lane `lane`", "shfl.sync.idx.b32";
    shuffle_up warp_shuffle_up Up delta: "the lane `delta` below", "shfl.sync.up.b32";
    shuffle_down warp_shuffle_down Down delta: "the lane `delta` above", "shfl.sync.down.b32";
    shuffle_xor warp_shuffle_xor Xor lane_mask: "the lane whose number is the own xor `lane_mask`", "shfl.sync.bfly.b32";
}

macro_rules! votes {
    ($($short:ident $long:ident -> $r:ty: $what:literal, $ptx:literal;)*) => {$(
        #[doc = concat!($what, " of the warp. PTX: `", $ptx, "` (PTX ISA, Parallel Synchronization and Communication: `vote.sync`).")]
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub fn $short(predicate: bool) -> $r {
            machine::$short(FULL_MASK, predicate)
        }

        #[doc = concat!($what, " of the mask. PTX: `", $ptx, "`.")]
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub fn $long(mask: u32, predicate: bool) -> $r {
            machine::$short(mask, predicate)
        }
    )*};
}
votes! {
    ballot warp_vote_ballot -> u32: "A bit for each lane for which the predicate is true, of the lanes", "vote.sync.ballot.b32";
    any warp_vote_any -> bool: "Whether the predicate is true for any lane", "vote.sync.any.pred";
    all warp_vote_all -> bool: "Whether the predicate is true for every lane", "vote.sync.all.pred";
}

/// The lanes of the mask that gave the same value. PTX: `match.any.sync.b32` (PTX ISA, Parallel Synchronization and
/// Communication).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn warp_match_any(mask: u32, value: u32) -> u32 {
    machine::matching(mask, value)
}

/// What the reductions take.
pub trait Reduce: Value {
    /// The sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// The greater; of a number and a NaN the number.
    fn greater(self, other: Self) -> Self;
    /// The lesser; of a number and a NaN the number.
    fn lesser(self, other: Self) -> Self;
}

macro_rules! reduce {
    ($add:expr; $($t:ident)*) => {$(
        impl Reduce for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                $add(self, other)
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                self.min(other)
            }
        }
    )*};
}
reduce!(|a, b| a + b; f32 f64);
reduce!(Self::wrapping_add; u32 i32 u64 i64);

macro_rules! reductions {
    ($($name:ident $combine:ident: $what:literal;)*) => {$(
        #[doc = concat!("The ", $what, " over the whole warp, in every lane and the same bits in each: a butterfly over the lane ")]
        #[doc = "distances 16, 8, 4, 2, 1. All 32 lanes must exist and call. PTX: five `shfl.sync.bfly.b32`."]
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub fn $name<T: Reduce>(value: T) -> T {
            let value = value.$combine(shuffle_xor(value, 16));
            let value = value.$combine(shuffle_xor(value, 8));
            let value = value.$combine(shuffle_xor(value, 4));
            let value = value.$combine(shuffle_xor(value, 2));
            value.$combine(shuffle_xor(value, 1))
        }
    )*};
}
reductions! {
    reduce_sum add: "sum";
    reduce_max greater: "greatest value";
    reduce_min lesser: "least value";
}
