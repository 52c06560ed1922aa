use std::cmp::Reverse;

use cuda_std::launch::LaunchDims;
use kernels::permute::{BLOCK, DIMS, Order, Permute, PermuteRows, PermuteTiles, Side, TILE, Tiles};

use super::Copy;
use crate::device::{Gpu, OnGpu, explain, tiles};
use crate::{Element, Result};

/// Fewer elements than this go by small tiles, which are then enough for all multiprocessors.
const FEW: usize = 1 << 21;
/// How long both sides of a tile that is turned are at least, where the dimensions are, 2 to the power of this: whole sectors of
/// memory, of most elements. Kernels have it compiled in.
const LOG_SIDE: u32 = 6;
/// Tiles hold at least one in so many of the elements that they have room for.
const ROOM: usize = 8;

/// How the dimensions are gone through.
#[derive(Debug)]
enum Way {
    /// A tile a block, which is turned.
    Turned(Tiles),
    /// A tile a block.
    Rows(Tiles),
    /// An element a thread.
    Elements(Order),
}

/// A copy's dimensions with elements of so many bytes.
#[derive(Debug)]
struct Plan {
    bytes: usize,
    way: Way,
}

impl Plan {
    /// Of elements of `bytes`, whose tensors both begin at a multiple of 16 bytes where they have more than one; there are some,
    /// in at most [`DIMS`] dimensions.
    fn new(mut bytes: usize, super::Order { mut dims }: super::Order) -> Self {
        // Neighbours in both are one element of twice the size.
        while bytes < size_of::<u64>()
            && let Some(((first, 1), rest)) = dims.split_first_mut()
            && first.is_multiple_of(2)
            && rest.iter().all(|(_, stride)| stride.is_multiple_of(2))
        {
            *first /= 2;
            rest.iter_mut().for_each(|(_, stride)| *stride /= 2);
            bytes *= 2;
        }
        let mut distance = 1;
        let mut sides: Vec<Side> = Vec::new();
        for &(size, x) in &dims {
            sides.push(Side { size: size as u64, x: x as u64, y: distance as u64 });
            distance *= size;
        }
        let n = distance;
        let fastest = sides.iter().position(|side| side.x == 1).unwrap_or(0);
        // Beside one that is fastest in both, the longest.
        let other = match fastest {
            0 => (1..sides.len()).min_by_key(|&side| Reverse(sides[side].size)),
            fastest => Some(fastest),
        };
        let other = other.map_or(Side::NONE, |other| sides.remove(other));
        let first = if sides.is_empty() { Side::NONE } else { sides.remove(0) };
        let mut outer = [Side::NONE; DIMS - 2];
        outer[..sides.len()].copy_from_slice(&sides);
        let room = if n < FEW { TILE as usize / 4 } else { TILE as usize };
        let [long, wide] = [first, other].map(|side| (side.size as usize).checked_next_power_of_two().unwrap_or(room));
        // As even as it can be if turned, else as long as it can be: what one has no use for is the other's.
        let side = if fastest == 0 { room } else { (1 << LOG_SIDE).min(room / 32) };
        let wide_at_most = wide.min(room / long.min(side));
        let extents = [long.min(room / wide_at_most), wide_at_most];
        let cut = Tiles { sides: [first, other], outer, log_extents: extents.map(usize::ilog2) };
        let way = if cut.blocks() as usize * room / ROOM > n {
            let mut order = Order { sizes: [1; DIMS], strides: [0; DIMS] };
            for (i, (size, stride)) in dims.into_iter().enumerate() {
                order.sizes[i] = size as u64;
                order.strides[i] = stride as u64;
            }
            Way::Elements(order)
        } else if fastest == 0 {
            Way::Rows(cut)
        } else {
            Way::Turned(cut)
        };
        Self { bytes, way }
    }
}

impl Way {
    fn why(&self) -> &'static str {
        match self {
            Self::Turned(_) => "by tiles that are turned in shared memory",
            Self::Rows(_) => "by tiles of rows: neighbours stay neighbours",
            Self::Elements(_) => "an element a thread: tiles would be nearly empty",
        }
    }
}

impl<T: Element> OnGpu for Copy<'_, T> {
    fn on_gpu(self, gpu: &Gpu) -> Result<()> {
        const OP: &str = "permute.copy";
        let n = self.x.len();
        let (x, y) = (self.x.gpu::<T>(OP, "x")?, self.y.gpu_mut::<T>(OP, "y")?);
        let Plan { bytes, way } = Plan::new(size_of::<T>(), self.order);
        let _why = explain::because(|| format!("elements of {bytes} bytes {}", way.why()));
        macro_rules! copy {
            ($bits:ty) => {{
                let (x, y) = (&x.bits::<$bits>(), &mut y.bits_mut::<$bits>());
                let n = (n * size_of::<T>() / bytes) as u64;
                match way {
                    Way::Turned(tiles) => {
                        let dims = LaunchDims::new(tiles.blocks() as u32, BLOCK).with_shared(tiles.shared(bytes as u32));
                        // SAFETY: both hold `n` elements of this size; sizes and distances are those of two dense tensors of
                        // one shape; the grid and the shared memory are the tiles', and so is the extent that is compiled in.
                        unsafe {
                            if tiles.log_extents == [LOG_SIDE; 2] {
                                gpu.launch(dims, PermuteTiles::<$bits, LOG_SIDE> { x, y, tiles })
                            } else {
                                gpu.launch(dims, PermuteTiles::<$bits, 0> { x, y, tiles })
                            }
                        }
                    }
                    Way::Rows(tiles) => {
                        let dims = LaunchDims::new(tiles.blocks() as u32, BLOCK);
                        // SAFETY: as above; nothing is shared.
                        unsafe { gpu.launch(dims, PermuteRows { x, y, tiles }) }
                    }
                    Way::Elements(order) => {
                        let dims = LaunchDims::new(tiles(n as usize, BLOCK), BLOCK);
                        // SAFETY: as above; the grid covers `n`.
                        unsafe { gpu.launch(dims, Permute { x, y, order, n }) }
                    }
                }
            }};
        }
        match bytes {
            1 => copy!(u8),
            2 => copy!(u16),
            4 => copy!(u32),
            _ => copy!(u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(bytes: usize, dims: &[(usize, usize)]) -> Plan {
        Plan::new(bytes, super::super::Order { dims: dims.to_vec() })
    }

    #[test]
    fn what_neighbours_do_is_what_is_chosen() {
        // 64x256x56x56 to channels last: tiles of 64x64 channels and pixels.
        let to_last = [(256, 3136), (3136, 1), (64, 256 * 3136)];
        let Plan { bytes: 4, way: Way::Turned(tiles) } = plan(4, &to_last) else { panic!("{:?}", plan(4, &to_last)) };
        assert_eq!((tiles.log_extents, tiles.blocks(), tiles.shared(4)), ([LOG_SIDE; 2], 4 * 49 * 64, 64 * 65 * 4));
        assert_eq!(tiles.sides, [Side { size: 256, x: 3136, y: 1 }, Side { size: 3136, x: 1, y: 256 }]);
        assert_eq!(tiles.outer[0], Side { size: 64, x: 256 * 3136, y: 256 * 3136 });
        // Three channels: the tile is as wide as they leave it.
        let Way::Turned(tiles) = plan(1, &[(3, 50_176), (50_176, 1), (32, 3 * 50_176)]).way else {
            panic!("not turned")
        };
        assert_eq!(tiles.log_extents, [2, 10]);
        // Rows that stay rows, whose elements are taken by two: 100x200x30 with the first two dimensions exchanged.
        let Plan { bytes: 4, way: Way::Rows(tiles) } = plan(2, &[(30, 1), (100, 6000), (200, 30)]) else {
            panic!("no rows")
        };
        assert_eq!(tiles.sides, [Side { size: 15, x: 1, y: 1 }, Side { size: 200, x: 15, y: 1500 }]);
        assert_eq!(tiles.outer[0], Side { size: 100, x: 3000, y: 15 });
        assert_eq!(tiles.log_extents, [4, 6]);
        // Nothing to reorder, and an odd number of it.
        assert!(matches!(plan(1, &[(4096, 1)]), Plan { bytes: 8, way: Way::Rows(_) }));
        assert!(matches!(plan(1, &[(4095, 1)]), Plan { bytes: 1, way: Way::Rows(_) }));
        // Dimensions of two and three, reversed.
        let reversed = [(2, 108), (3, 36), (2, 18), (3, 6), (2, 3), (3, 1)];
        assert!(matches!(plan(4, &reversed).way, Way::Elements(_)));
        assert!(matches!(plan(8, &[]).way, Way::Elements(_)));
    }

    #[test]
    fn blocks_are_bounded_by_elements() {
        for dims in [vec![(2, 1)], vec![(1 << 40, 2), (2, 1)], vec![(2, 1 << 20), (1 << 20, 1), (3, 2 << 20)]] {
            let n: usize = dims.iter().map(|(size, _)| size).product();
            match plan(8, &dims).way {
                Way::Turned(tiles) | Way::Rows(tiles) => {
                    assert!(tiles.blocks() as usize * (TILE as usize / 4 / ROOM) <= n, "{dims:?}");
                }
                Way::Elements(_) => {}
            }
        }
    }
}
