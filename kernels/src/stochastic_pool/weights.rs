//! What elements weigh, several of a row at once.

use cuda_std::arch::sm_80::Paired;
use cuda_std::prelude::*;

/// How elements are loaded, and what they weigh: the larger of each and zero. NaN stays.
pub trait Weighed: Storage {
    /// Eight of a row, as loaded.
    type Eight: Copy;
    /// Four of a row.
    type Four: Copy;
    /// Two channels.
    type Two: Copy;

    /// Eight of a row, of which this is the number among eights, if they are inside; zeros else.
    ///
    /// # Safety
    /// They exist if inside, and `x` begins at a multiple of 16 bytes.
    unsafe fn load_eight(x: Global<Self>, inside: bool, number: usize) -> Self::Eight;

    /// The first four.
    ///
    /// # Safety
    /// They exist, and `x` begins at a multiple of four elements.
    unsafe fn load_four(x: Global<Self>) -> Self::Four;

    /// The first two.
    ///
    /// # Safety
    /// They exist, and `x` begins at a multiple of two elements.
    unsafe fn load_two(x: Global<Self>) -> Self::Two;

    /// The weights of eight.
    fn of_eight(eight: Self::Eight) -> [f32; 8];

    /// The weights of four.
    fn of_four(four: Self::Four) -> [f32; 4];

    /// The weights of two.
    fn of_two(two: Self::Two) -> [f32; 2];

    /// Stores two numbers, which memory can hold as they are or rounds.
    ///
    /// # Safety
    /// Two of this number exist, and `y` begins at a multiple of 16 bytes.
    unsafe fn store_two(y: GlobalMut<Self>, number: usize, values: [f32; 2]);

    /// Stores four numbers, which memory can hold as they are or rounds.
    ///
    /// # Safety
    /// Four of this number exist, and `y` begins at a multiple of 16 bytes.
    unsafe fn store_four(y: GlobalMut<Self>, number: usize, values: [f32; 4]);

    /// The weight of one.
    #[device_inline]
    fn weight(self) -> f32 {
        float::maximum(self.to_f32(), 0.0)
    }
}

impl Weighed for f32 {
    type Eight = [Vec4<f32>; 2];
    type Four = Vec4<f32>;
    type Two = Vec2<f32>;

    #[device_inline]
    unsafe fn load_eight(x: Global<Self>, inside: bool, number: usize) -> Self::Eight {
        let zeros = Vec4::splat(0.0);
        // SAFETY: the caller's.
        [0, 4].map(|from| unsafe { x.load4_if(inside, number.wrapping_mul(8).wrapping_add(from), zeros) })
    }

    #[device_inline]
    unsafe fn load_four(x: Global<Self>) -> Self::Four {
        // SAFETY: the caller's.
        unsafe { x.load4(0) }
    }

    #[device_inline]
    unsafe fn load_two(x: Global<Self>) -> Self::Two {
        // SAFETY: the caller's.
        unsafe { x.load2(0) }
    }

    #[device_inline]
    fn of_eight(eight: Self::Eight) -> [f32; 8] {
        let [[a, b, c, d], [e, f, g, h]] = eight.map(Self::of_four);
        [a, b, c, d, e, f, g, h]
    }

    #[device_inline]
    fn of_four(four: Self::Four) -> [f32; 4] {
        four.to_array().map(Self::weight)
    }

    #[device_inline]
    fn of_two(Vec2 { x, y }: Self::Two) -> [f32; 2] {
        [x, y].map(Self::weight)
    }

    #[device_inline]
    unsafe fn store_two(y: GlobalMut<Self>, number: usize, values: [f32; 2]) {
        // SAFETY: the caller's.
        unsafe { y.store2(number * 2, Vec2::from(values)) }
    }

    #[device_inline]
    unsafe fn store_four(y: GlobalMut<Self>, number: usize, values: [f32; 4]) {
        // SAFETY: the caller's.
        unsafe { y.store4(number * 4, Vec4::from(values)) }
    }
}

macro_rules! of_pairs {
    ($($t:ty)*) => {$(
        impl Weighed for $t {
            type Eight = [u32; 4];
            type Four = Vec2<u32>;
            type Two = u32;

            #[device_inline]
            unsafe fn load_eight(x: Global<Self>, inside: bool, number: usize) -> Self::Eight {
                // SAFETY: the caller's.
                unsafe { x.cast::<u32>().load4_if(inside, number.wrapping_mul(4), Vec4::splat(0)) }.to_array()
            }

            #[device_inline]
            unsafe fn load_four(x: Global<Self>) -> Self::Four {
                // SAFETY: the caller's.
                unsafe { x.cast::<u32>().load2(0) }
            }

            #[device_inline]
            unsafe fn load_two(x: Global<Self>) -> Self::Two {
                // SAFETY: the caller's.
                unsafe { x.cast::<u32>().load(0) }
            }

            #[device_inline]
            fn of_two(two: Self::Two) -> [f32; 2] {
                of_pair::<Self>(two)
            }

            #[device_inline]
            unsafe fn store_two(y: GlobalMut<Self>, number: usize, values: [f32; 2]) {
                // SAFETY: the caller's.
                unsafe { y.cast::<u32>().store(number, Self::join(values)) }
            }

            #[device_inline]
            fn of_eight(eight: Self::Eight) -> [f32; 8] {
                let [[a, b], [c, d], [e, f], [g, h]] = eight.map(of_pair::<Self>);
                [a, b, c, d, e, f, g, h]
            }

            #[device_inline]
            fn of_four(four: Self::Four) -> [f32; 4] {
                let [[a, b], [c, d]] = four.to_array().map(of_pair::<Self>);
                [a, b, c, d]
            }

            #[device_inline]
            unsafe fn store_four(y: GlobalMut<Self>, number: usize, [a, b, c, d]: [f32; 4]) {
                // SAFETY: the caller's.
                unsafe { y.cast().store2(number * 2, Vec2::new(Self::join([a, b]), Self::join([c, d]))) }
            }
        }
    )*};
}
of_pairs!(f16 bf16);

/// The weights of a pair.
#[device_inline]
pub(super) fn of_pair<T: Paired>(pair: u32) -> [f32; 2] {
    T::split(T::rectified(pair))
}
