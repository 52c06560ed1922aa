//! Shuffles, votes and reductions, against their definition.

use cuda_std::launch::LaunchDims;
use cuda_std::prelude::*;

use crate::run;

const INDEX: u32 = 0;
const UP: u32 = 1;
const DOWN: u32 = 2;
const XOR: u32 = 3;

/// One masked shuffle of each lane's number + 100; lanes outside of the mask take no part.
#[kernel]
pub unsafe fn shuffle_masked(
    kind: u32,
    mask: u32,
    operand: u32,
    width: u32,
    value: GlobalMut<u32>,
    valid: GlobalMut<u32>,
) {
    let t = thread::thread_idx_x();
    if mask >> warp::lane_id() & 1 == 0 {
        return;
    }
    let own = t + 100;
    let (got, ok) = match kind {
        INDEX => warp::warp_shuffle_idx(mask, own, operand, width),
        UP => warp::warp_shuffle_up(mask, own, operand, width),
        DOWN => warp::warp_shuffle_down(mask, own, operand, width),
        _ => warp::warp_shuffle_xor(mask, own, operand, width),
    };
    // SAFETY: one element for each thread.
    unsafe {
        value.store(t as usize, got);
        valid.store(t as usize, ok.into());
    }
}

/// The source lane as the segments define it, without the instruction's operands.
fn source(kind: u32, lane: u32, operand: u32, width: u32) -> Option<u32> {
    let (first, last) = (lane / width * width, lane / width * width + width - 1);
    let source = match kind {
        INDEX => first + operand % width,
        UP => lane.checked_sub(operand)?,
        DOWN => lane + operand,
        // Within the segment or beyond its end; below its start is allowed.
        _ => lane ^ operand,
    };
    let low = if kind == UP { first } else { 0 };
    (low..=last).contains(&source).then_some(source)
}

#[test]
fn shuffles_of_all_kinds_widths_and_distances() {
    for kind in [INDEX, UP, DOWN, XOR] {
        for width in [32, 16, 8, 2] {
            for operand in [0, 1, 3, 7, 16, 31] {
                let [mut value, mut valid] = [[u32::MAX - 1; 64]; 2];
                let launch = ShuffleMasked { kind, mask: !0, operand, width, value: &mut value, valid: &mut valid };
                run(launch, LaunchDims::new(1, 64)).unwrap();
                for thread in 0..64 {
                    let (lane, warp) = (thread % 32, thread / 32 * 32);
                    let from = source(kind, lane, operand, width);
                    let case = format!("kind {kind} width {width} operand {operand} lane {lane}");
                    assert_eq!(valid[thread as usize], u32::from(from.is_some()), "{case}");
                    let expected = warp + from.unwrap_or(lane) + 100;
                    assert_eq!(value[thread as usize], expected, "{case}");
                }
            }
        }
    }
}

#[test]
fn lanes_outside_of_the_mask_take_no_part() {
    let mask = 0x0000_ff0f;
    let [mut value, mut valid] = [[7; 32]; 2];
    let launch = ShuffleMasked { kind: XOR, mask, operand: 4, width: 32, value: &mut value, valid: &mut valid };
    run(launch, LaunchDims::new(1, 32)).unwrap();
    for lane in 0..32u32 {
        let expected = match (mask >> lane & 1, mask >> (lane ^ 4) & 1) {
            (0, _) => 7,
            // Undefined on a device.
            (_, 0) => u32::MAX,
            _ => (lane ^ 4) + 100,
        };
        assert_eq!(value[lane as usize], expected, "lane {lane}");
    }
}

/// Each half of a warp shuffles and synchronises by itself, the upper one more often.
#[kernel(block = 32)]
pub unsafe fn halves(out: GlobalMut<u32>) {
    let lane = warp::lane_id();
    let (mask, rounds) = if lane < 16 { (0x0000_ffff, 3) } else { (0xffff_0000, 11) };
    let mut value = lane;
    for _ in 0..rounds {
        value += warp::warp_shuffle_xor(mask, value, 8, 32).0;
        warp::sync_warp(mask);
    }
    // SAFETY: one element for each lane.
    unsafe { out.store(lane as usize, value) };
}

#[test]
fn halves_of_a_warp_go_their_own_way() {
    let mut out = [0; 32];
    run(Halves { out: &mut out }, LaunchDims::new(1, 32)).unwrap();
    for lane in 0..32u32 {
        let rounds = if lane < 16 { 3 } else { 11 };
        let mut pair = [lane, lane ^ 8];
        for _ in 0..rounds {
            pair = [pair[0] + pair[1]; 2];
        }
        assert_eq!(out[lane as usize], pair[0]);
    }
}

/// The short forms, of every type.
#[kernel]
pub unsafe fn short_forms(out: GlobalMut<f64>) {
    let lane = warp::lane_id();
    let place = thread::thread_idx_x() as usize * 8;
    let results = [
        f64::from(warp::shuffle(lane as f32 + 0.5, 3)),
        f64::from(warp::shuffle_up(lane as i32 - 40, 1)),
        f64::from(warp::shuffle_down(lane, 2)),
        warp::shuffle_xor(f64::from(lane) + 1e-9, 1),
        warp::shuffle(u64::from(lane) << 40 | 5, 9) as f64,
        warp::shuffle(-(i64::from(lane) << 40), 9) as f64,
        f64::from(warp::ballot(lane.is_multiple_of(3))),
        f64::from(u32::from(warp::any(lane == 31)) + 2 * u32::from(warp::all(lane < 31))),
    ];
    for (i, result) in results.into_iter().enumerate() {
        // SAFETY: eight elements for each thread.
        unsafe { out.store(place + i, result) };
    }
}

#[test]
fn the_short_forms_mean_the_whole_warp() {
    let mut out = vec![0.0; 8 * 32];
    run(ShortForms { out: &mut out }, LaunchDims::new(1, 32)).unwrap();
    let ballot = (0..32).filter(|lane| lane % 3 == 0).fold(0u32, |mask, lane| mask | 1 << lane);
    for lane in 0..32u32 {
        let expected = [
            3.5,
            f64::from(lane.saturating_sub(1)) - 40.0,
            f64::from(if lane < 30 { lane + 2 } else { lane }),
            f64::from(lane ^ 1) + 1e-9,
            (9u64 << 40 | 5) as f64,
            -((9i64 << 40) as f64),
            f64::from(ballot),
            1.0,
        ];
        assert_eq!(out[lane as usize * 8..][..8], expected, "lane {lane}");
    }
}

/// Votes in a warp that the block does not fill, and lanes that find their equals.
#[kernel]
pub unsafe fn partial(out: GlobalMut<u32>) {
    let t = thread::thread_idx_x();
    let results = [
        warp::ballot(true),
        warp::all(true).into(),
        warp::any(t % 32 == 20).into(),
        warp::warp_match_any(warp::FULL_MASK, t % 3),
        warp::activemask(),
    ];
    for (i, result) in results.into_iter().enumerate() {
        // SAFETY: five elements for each thread.
        unsafe { out.store(t as usize * 5 + i, result) };
    }
}

#[test]
fn a_warp_that_the_block_does_not_fill() {
    let mut out = vec![0; 5 * 45];
    run(Partial { out: &mut out }, LaunchDims::new(1, 45)).unwrap();
    for t in 0..45u32 {
        let (first, lanes) = if t < 32 { (0, 32) } else { (32, 13) };
        let present = u32::MAX >> (32 - lanes);
        let equals = (0..lanes).filter(|lane| (first + lane) % 3 == t % 3).fold(0, |mask, lane| mask | 1 << lane);
        let found = &out[t as usize * 5..][..5];
        assert_eq!(found[..4], [present, 1, u32::from(t < 32), equals], "thread {t}");
        // Who has ended by then is chance; oneself has not, and there are no others.
        assert_eq!(found[4] & !present, 0);
        assert_eq!(found[4] >> (t % 32) & 1, 1);
    }
}

/// Lanes end one after another while the others go on voting.
#[kernel(block = 32)]
pub unsafe fn one_after_another(out: GlobalMut<u32>) {
    let lane = warp::lane_id();
    let mut sum = 0;
    for round in 0..=lane {
        sum += warp::ballot(true).count_ones() * (round + 1);
    }
    // SAFETY: one element for each lane.
    unsafe { out.store(lane as usize, sum) };
}

#[test]
fn lanes_that_have_ended_are_not_waited_for() {
    let mut out = [0; 32];
    run(OneAfterAnother { out: &mut out }, LaunchDims::new(1, 32)).unwrap();
    for lane in 0..32 {
        let expected: u32 = (0..=lane).map(|round| (32 - round) * (round + 1)).sum();
        assert_eq!(out[lane as usize], expected);
    }
}

/// Reductions of floats and integers.
#[kernel]
pub unsafe fn reductions(x: Global<f32>, floats: GlobalMut<f32>, integers: GlobalMut<i32>) {
    let t = thread::thread_idx_x() as usize;
    // SAFETY: one, three and three elements for each thread.
    unsafe {
        let value = x.load(t);
        floats.store(t * 3, warp::reduce_sum(value));
        floats.store(t * 3 + 1, warp::reduce_max(value));
        floats.store(t * 3 + 2, warp::reduce_min(value));
        let value = t as i32 * 1_000_003 - 7;
        integers.store(t * 3, warp::reduce_sum(value));
        integers.store(t * 3 + 1, warp::reduce_max(value));
        integers.store(t * 3 + 2, warp::reduce_min(value));
    }
}

#[test]
fn reductions_have_the_butterflys_order() {
    let mut x: Vec<f32> = (0..64).map(|i| 1.0 / (i as f32 + 0.3) - 0.2).collect();
    x[40] = f32::NAN;
    let (mut floats, mut integers) = (vec![0.0; 64 * 3], vec![0; 64 * 3]);
    let launch = Reductions { x: &x, floats: &mut floats, integers: &mut integers };
    run(launch, LaunchDims::new(1, 64)).unwrap();
    let mut sums = x.clone();
    for distance in [16, 8, 4, 2, 1] {
        sums = (0..64).map(|i| sums[i] + sums[i ^ distance]).collect();
    }
    let numbers = |warp: usize| x[warp * 32..][..32].iter().copied().filter(|v| !v.is_nan());
    for t in 0..64 {
        let warp = t / 32;
        assert_eq!(floats[t * 3].to_bits(), sums[t].to_bits());
        assert_eq!(floats[t * 3].to_bits(), floats[warp * 32 * 3].to_bits());
        assert_eq!(floats[t * 3 + 1], numbers(warp).fold(f32::MIN, f32::max));
        assert_eq!(floats[t * 3 + 2], numbers(warp).fold(f32::MAX, f32::min));
        let values = (warp as i32 * 32..).take(32).map(|i| i * 1_000_003 - 7);
        assert_eq!(integers[t * 3], values.clone().sum::<i32>());
        assert_eq!(integers[t * 3 + 1], values.clone().max().unwrap());
        assert_eq!(integers[t * 3 + 2], values.min().unwrap());
    }
    assert!(floats[32 * 3].is_nan());
}
