//! Passes by an element a thread, or a few outputs, of more than a few outputs.

use cuda_std::emulator::SANITIZED;
use ferrolayer::Layout;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;

use super::{Case, LAYOUTS, cases as all_of};

/// Windows that reach outside and that do not, of rows that are loaded at once, more than that and less; several planes a block; one apart by
/// one row a thread and by several, of heights that are no multiple of these, and further apart; channels that are whole vectors and that
/// are not; and such of sizes that go by packs.
pub(super) fn cases() -> Vec<Case> {
    let window = |size: [usize; 2]| Window::new(size);
    let one_apart = |size: [usize; 2]| Window::new(size).stride([1, 1]);
    let each = [
        ([64, 9, 12, 13], window([5, 4]).stride([3, 3]).padding([2, 1])),
        ([400, 3, 17, 14], window([9, 10]).stride([4, 4])),
        ([8, 5, 13, 15], window([4, 4]).stride([2, 2]).padding([1, 2])),
        ([24, 11, 15, 17], one_apart([3, 3]).padding([1, 1])),
        ([16, 3, 10, 11], one_apart([3, 3])),
        ([31, 13, 13, 15], one_apart([2, 2]).padding([1, 0])),
        ([7, 16, 9, 11], one_apart([5, 5]).padding([2, 2])),
        ([5, 3, 21, 26], window([5, 5]).stride([2, 2]).padding([2, 2])),
        ([9, 5, 16, 20], window([2, 2]).stride([3, 4]).padding([0, 1])),
        ([9, 8, 16, 20], window([3, 3]).stride([4, 4]).padding([1, 1])),
        ([16, 9, 33, 37], one_apart([4, 6]).padding([1, 3])),
        ([4, 9, 17, 18], one_apart([6, 4]).padding([3, 0])),
        ([4, 9, 17, 18], window([6, 4]).stride([1, 2]).padding([3, 0])),
    ];
    each.into_iter().filter(followed).flat_map(|case| all_of(&[case])).collect()
}

/// Several Gaussians a map, as many as go at once and more: channels that are no whole vectors and, of more Gaussians than have a launch each, whole ones,
/// with the channels last; little, whose gradient has no table of weights.
pub(super) fn several() -> Vec<Case> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    let list = [
        ([4, 6, 22, 17], window(3, 4).padding([1, 1]), 3),
        ([3, 31, 16, 15], window(2, 3), 2),
        ([3, 16, 17, 18], window(5, 3).padding([2, 2]), 3),
        ([2, 16, 21, 20], window(5, 5).ceil_mode(true), 4),
        ([4, 3, 32, 8], window(4, 3), 5),
        ([2, 9, 33, 34], window(11, 5).padding([5, 5]), 6),
        ([2, 5, 12, 13], window(2, 2), 2),
        ([2, 6, 12, 13], window(3, 2).padding([1, 1]), 3),
        ([2, 1, 14, 19], Window::new([4, 3]).stride([3, 5]).padding([1, 0]), 3),
    ];
    of_maps(&list, &LAYOUTS, &[true])
}

/// Those of images, windows and Gaussians a map that a sanitizer follows, in these orders of memory, of Gaussians of all channels or of each.
pub(super) fn of_maps(list: &[([usize; 4], Window, usize)], layouts: &[Layout], shared: &[bool]) -> Vec<Case> {
    let each = layouts.iter().flat_map(|&layout| shared.iter().map(move |&shared| (layout, shared)));
    let followed = list.iter().filter(|(x, window, _)| followed(&(*x, *window)));
    let of = |(i, &(x, window, kernels)), (layout, shared)| Case {
        x,
        layout,
        window,
        normalize: Normalize::Window,
        kernels,
        shared,
        per_axis: i % 2 == 0,
    };
    followed.enumerate().flat_map(|case| each.clone().map(move |kind| of(case, kind))).collect()
}

/// Whether a sanitizer follows it in seconds, where there is one: larger ones have no other barriers.
pub(super) fn followed(&([n, c, h, w], _): &([usize; 4], Window)) -> bool {
    !SANITIZED || n * c * h * w <= 12_000
}
