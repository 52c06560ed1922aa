//! Trials on the devices there are, and the inputs they share.

use std::sync::{OnceLock, PoisonError, RwLock, TryLockError};
use std::time::Duration;

use cuda_std::emulator::SANITIZED;
use ferrolayer::device::{Gpu, GpuOptions};
use ferrolayer::ops::Window;
use ferrolayer::{Device, Element, Real, Tensor};
use libtest_mimic::Completion;
pub use libtest_mimic::{Failed, Trial};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// What a test body returns: any error fails it.
pub type Outcome = Result<(), Failed>;

/// A trial that needs no GPU; left out under a sanitizer.
pub fn on_cpu(name: &str, test: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    if SANITIZED { left_out(name) } else { Trial::test(name, test) }
}

/// What a sanitizer has no say in: it follows the threads of the emulated grid, and neither rayon's nor a GPU's. The body is not
/// compiled for it either, for the branch is a constant's: most of the tests' code is for the CPU and for GPUs of certain kinds.
fn left_out(name: &str) -> Trial {
    Trial::ignorable_test(name, || Ok(Completion::ignored_with("left out under a sanitizer")))
}

/// Two trials of one body: on the emulated GPU, and on the first real one where there is one.
///
/// Both poison outputs. The body must be small: a launch on the emulated grid takes milliseconds.
pub fn on_each_gpu(name: &str, test: impl Fn(&Device) -> Outcome + Send + Copy + 'static) -> Vec<Trial> {
    vec![on_emulated_gpu(name, test), on_real_gpu(name, test)]
}

/// A trial on the emulated GPU.
pub fn on_emulated_gpu(name: &str, test: impl FnOnce(&Device) -> Outcome + Send + 'static) -> Trial {
    Trial::test(format!("{name}::emulated"), move || test(&Device::Gpu(GpuOptions::default().poison().emulated())))
}

/// A trial on the first real GPU: ignored where there is none, a failure when `FERROLAYER_REQUIRE_GPU=1`.
pub fn on_real_gpu(name: &str, test: impl FnOnce(&Device) -> Outcome + Send + 'static) -> Trial {
    on_gpu(name, move || {
        let _shared = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
        open(|_| None, test)
    })
}

/// A trial on the first real GPU while no other is there: of who takes all of its memory.
pub fn on_whole_gpu(name: &str, test: impl FnOnce(&Device) -> Outcome + Send + 'static) -> Trial {
    on_gpu(name, move || {
        let _alone = loop {
            match MEMORY.try_write() {
                Ok(alone) => break alone,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                // Not waited for: that would keep out all who come later, until the longest of the others is done.
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        open(|_| None, test)
    })
}

/// A trial on the first real GPU if that takes kernels for Hopper: ignored where it does not, as where there is none.
pub fn on_hopper(name: &str, test: impl FnOnce(&Device) -> Outcome + Send + 'static) -> Trial {
    on_gpu(name, move || {
        let _shared = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
        let refusal =
            |gpu: &Gpu| gpu.hopper_multiprocessors().is_none().then_some("the GPU takes no kernels for Hopper");
        open(refusal, test)
    })
}

/// Read by who uses the real GPU's memory, written by who takes all of it.
static MEMORY: RwLock<()> = RwLock::new(());

fn on_gpu(name: &str, trial: impl FnOnce() -> Result<Completion, Failed> + Send + 'static) -> Trial {
    let name = format!("{name}::gpu");
    if SANITIZED { left_out(&name) } else { Trial::ignorable_test(name, trial) }
}

/// Runs the test on the first real GPU, unless there is none or there is a reason not to.
fn open(
    refusal: impl FnOnce(&Gpu) -> Option<&'static str>,
    test: impl FnOnce(&Device) -> Outcome,
) -> Result<Completion, Failed> {
    match GpuOptions::default().poison().open(0) {
        Ok(gpu) => match refusal(&gpu) {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => test(&Device::Gpu(gpu)).map(|()| Completion::Completed),
        },
        Err(missing) if require_gpu() => Err(format!("FERROLAYER_REQUIRE_GPU is set, and {missing}").into()),
        Err(missing) => Ok(Completion::ignored_with(missing)),
    }
}

/// Whether a missing GPU is a failure.
pub fn require_gpu() -> bool {
    static REQUIRED: OnceLock<bool> = OnceLock::new();
    *REQUIRED.get_or_init(|| std::env::var("FERROLAYER_REQUIRE_GPU").is_ok_and(|value| value == "1"))
}

/// All of them; under a sanitizer the first, where the others are other numbers for the same launches, which reach the same barriers
/// and the same memory.
pub fn fewer<T>(all: &[T]) -> &[T] {
    if SANITIZED { &all[..1] } else { all }
}

/// What `run` gives once more, to compare bits with; nothing under a sanitizer, which followed the same launches the first time.
pub fn again<T, E>(run: impl FnOnce() -> Result<T, E>) -> Result<Option<T>, E> {
    (!SANITIZED).then(run).transpose()
}

/// Runs `test` on `cases` values of `strategy`, the same ones each time, and names the smallest that fails.
pub fn for_random<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value) -> Outcome) -> Outcome
where
    S::Value: std::fmt::Debug,
{
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&strategy, |value| {
        test(value).map_err(|failed| {
            proptest::test_runner::TestCaseError::fail(failed.message().unwrap_or("failed").to_owned())
        })
    });
    result.map_err(|error| error.to_string().into())
}

/// Normally distributed numbers, the same for the same seed.
pub fn normal<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut uniform = move || {
        // SplitMix64 (Steele, Lea & Flood 2014): enough for test inputs, and needs no state but the seed.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..len)
        .map(|_| {
            let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
            T::of(radius * (std::f64::consts::TAU * uniform()).cos())
        })
        .collect()
}

/// A tensor of normally distributed numbers.
pub fn normal_tensor<T: Real>(device: &Device, seed: u64, shape: &[usize]) -> Tensor<T> {
    Tensor::from_vec(device, shape, normal(seed, shape.iter().product())).expect("memory for a test's input")
}

/// The elements' magnitudes.
pub fn sizes<T: Real>(tensor: &Tensor<T>) -> Vec<f64> {
    tensor.to_vec().expect("elements").into_iter().map(|v| v.f64().abs()).collect()
}

/// Fails unless every element has the same bits, NaN included.
pub fn assert_same_bits<T: Element>(what: &str, got: &Tensor<T>, expected: &Tensor<T>) -> Outcome {
    if got.shape() != expected.shape() {
        return Err(format!("{what}: shape {:?}, expected {:?}", got.shape(), expected.shape()).into());
    }
    let (got, expected) = (got.to_vec()?, expected.to_vec()?);
    match got.iter().zip(&expected).position(|(a, b)| a.bits() != b.bits()) {
        None => Ok(()),
        Some(i) => Err(format!("{what}: element {i} is {:?}, expected {:?}", got[i], expected[i]).into()),
    }
}

/// As [`assert_same_bits`], but that NaN may be any NaN.
pub fn assert_same_values<T: Real>(what: &str, got: &Tensor<T>, expected: &Tensor<T>) -> Outcome {
    let one = |tensor: &Tensor<T>| -> ferrolayer::Result<Tensor<T>> {
        let values = tensor.to_vec()?.into_iter().map(|v| if v.f64().is_nan() { T::of(f64::NAN) } else { v });
        Tensor::from_vec(&Device::cpu(), tensor.shape(), values.collect())
    };
    assert_same_bits(what, &one(got)?, &one(expected)?)
}

/// Fails unless the error's text is exactly this.
pub fn assert_error<T>(result: ferrolayer::Result<T>, expected: &str) -> Outcome {
    match result {
        Ok(_) => Err(format!("succeeded, expected: {expected}").into()),
        Err(error) if error.to_string() == expected => Ok(()),
        Err(error) => Err(format!("said:\n{error}\nexpected:\n{expected}").into()),
    }
}

/// Windows of two and three whole strides, and of these with a rest: with few outputs.
pub fn grouped() -> Vec<([usize; 4], Window)> {
    let mut cases = Vec::new();
    for (stride, groups) in (2..=4).flat_map(|stride| [(stride, 2), (stride, 3)]) {
        for rest in [0, 1, stride - 1] {
            let size = stride * groups + rest;
            let window = Window::new([size, stride * groups]).stride([stride; 2]).padding([size / 2, stride]);
            cases.push(([3, 2, 2 * size + 1, size + 3], window));
            cases.push(([1, 1, size + 1, 5 * size], Window::new([size; 2]).stride([stride; 2]).ceil_mode(true)));
        }
    }
    cases
}

/// As [`grouped`], of so many outputs that each is not worth a warp.
pub fn grouped_and_many() -> Vec<([usize; 4], Window)> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    vec![
        ([4, 4, 390, 388], window(9, 3).padding([4, 4])),
        ([64, 64, 30, 29], window(9, 3).padding([4, 4])),
        // Rows that have room only if more is asked for.
        ([1, 1, 2060, 2052], window(11, 4).padding([5, 5])),
        ([2, 1, 1480, 1486], window(12, 4).padding([6, 6]).ceil_mode(true)),
        ([400, 1, 61, 59], window(8, 2)),
    ]
}

/// Shapes and windows that go by vectors of channels where these are last: windows that overlap, that do not and that leave gaps,
/// rows of a block of which some are past the image, and large windows that threads share, in slices of one position more or
/// less, with one vector of channels and with several.
pub fn by_vectors() -> Vec<([usize; 4], Window)> {
    let window = |size, stride: usize| Window::new(size).stride([stride; 2]);
    followed(vec![
        ([2, 16, 9, 11], window([3, 3], 1).padding([1, 1])),
        ([1, 24, 8, 9], window([5, 5], 2).padding([2, 2])),
        ([3, 8, 12, 9], window([4, 4], 4)),
        ([2, 8, 13, 17], window([3, 3], 5).padding([1, 1])),
        ([2, 8, 11, 9], Window::new([2, 3]).stride([3, 1]).padding([1, 1]).ceil_mode(true)),
        ([1, 88, 6, 5], window([3, 3], 1).padding([1, 1])),
        ([2, 4, 5, 5], window([5, 5], 5)),
        ([1, 8, 37, 41], window([37, 41], 37)),
        ([1, 40, 41, 30], window([40, 20], 1)),
        ([1, 8, 18, 17], window([17, 16], 4).padding([8, 8]).ceil_mode(true)),
        ([2, 16, 33, 20], window([16, 10], 9)),
    ])
}

/// Shapes and windows one apart that go down strips on the emulated grid: packs of each number of bytes, odd numbers of columns and of rows, windows that
/// reach outside, and more channels than a group of packs has.
pub fn down_strips() -> [([usize; 4], Window); 10] {
    let window = |size, padding| Window::new([size; 2]).stride([1; 2]).padding([padding; 2]);
    [
        ([2, 12, 13, 14], window(3, 1)),
        ([3, 6, 14, 15], window(3, 0)),
        ([5, 3, 15, 13], window(3, 1)),
        ([2, 12, 11, 12], window(5, 2)),
        ([4, 6, 14, 14], window(5, 0)),
        ([6, 3, 13, 14], window(5, 1)),
        ([2, 12, 12, 11], window(7, 3)),
        ([4, 6, 13, 15], window(7, 2)),
        ([7, 3, 16, 17], window(7, 0)),
        ([1, 300, 3, 5], window(3, 1)),
    ]
}

/// Of these what a sanitizer follows in seconds, where there is one: what is larger has more blocks, but no other barriers.
pub fn followed(mut cases: Vec<([usize; 4], Window)>) -> Vec<([usize; 4], Window)> {
    cases.retain(|(shape, _)| !SANITIZED || shape.iter().product::<usize>() <= 5_000);
    cases
}

/// Shapes and windows whose rows are whole chunks of 16 bytes, in f32 or in 16 bits too: beside each other, apart, over each other, over
/// all columns or all rows of an image, and more lanes than a window has chunks for.
pub fn by_chunks() -> Vec<([usize; 4], Window)> {
    let window = |size, stride| Window::new(size).stride(stride);
    let cases = vec![
        ([2, 3, 32, 48], window([16, 16], [16, 16])),
        ([1, 2, 64, 64], window([32, 32], [16, 16])),
        ([3, 5, 28, 28], window([28, 28], [28, 28])),
        ([2, 3, 40, 24], window([10, 24], [15, 24])),
        ([1, 3, 34, 56], window([16, 16], [18, 24])),
        ([2, 2, 24, 64], window([8, 16], [8, 16])),
        ([1, 1, 31, 72], window([30, 24], [1, 24])),
        ([7, 3, 5, 40], window([5, 16], [5, 24])),
        ([1, 2, 17, 32], window([16, 32], [1, 1])),
        // Whole planes in shared memory that lanes share, more than a block of them, of rows that are no chunks in 16 bits and in none.
        ([13, 37, 14, 14], window([14, 14], [14, 14])),
        ([7, 35, 19, 23], window([19, 23], [1, 1])),
    ];
    followed(cases)
}

/// Square windows of every size that a thread has whole in registers, row-major, which share little or nothing, or of which there are few; padded,
/// past the image, and not as far apart both ways.
pub fn far_apart() -> Vec<([usize; 4], Window)> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    followed(vec![
        ([3, 5, 13, 17], window(2, 3)),
        ([2, 3, 17, 19], window(2, 5).padding([1, 1]).ceil_mode(true)),
        ([2, 4, 19, 17], window(3, 4).padding([1, 1])),
        ([2, 3, 16, 20], window(4, 3)),
        ([2, 3, 17, 16], window(4, 2).padding([1, 2])),
        ([2, 3, 17, 24], window(4, 8)),
        ([2, 4, 21, 22], window(5, 3).padding([2, 2]).ceil_mode(true)),
        ([2, 4, 21, 25], window(5, 5).padding([0, 1])),
        ([1, 3, 23, 26], window(5, 4).stride([4, 7])),
        ([2, 3, 26, 25], window(6, 6).padding([3, 3])),
        ([2, 3, 26, 25], window(6, 4).padding([1, 0])),
        ([2, 3, 29, 30], window(7, 7).ceil_mode(true)),
        ([2, 3, 29, 30], window(7, 5).padding([3, 3])),
        ([2, 3, 33, 36], window(8, 9).padding([4, 0])),
        ([1, 3, 34, 40], window(8, 12)),
        ([1, 2, 34, 41], window(8, 5).padding([1, 4])),
    ])
}

/// The same of so many elements that backward blocks take several runs of them, of rows that end among a run's last elements; one, two and three
/// windows over an element.
pub fn far_apart_and_many() -> Vec<([usize; 4], Window)> {
    let window = |size, stride| Window::new([size; 2]).stride([stride; 2]);
    vec![
        ([9, 9, 57, 61], window(4, 4).ceil_mode(true)),
        ([9, 9, 57, 61], window(5, 4).padding([2, 1])),
        ([9, 9, 57, 61], window(11, 4).padding([5, 5])),
        ([400, 211, 4, 1], Window::new([3, 1]).stride([3, 3])),
    ]
}

/// Shapes and windows that have kernels of their own in one layout or both: odd heights and widths, images smaller than a
/// patch or a cell, several planes a block, rows of more columns than a block has threads, windows that end past the image.
pub fn patched() -> Vec<([usize; 4], Window)> {
    let [two, three] = [2, 3].map(|size| Window::new([size, size]).stride([2, 2]));
    let padded = three.padding([1, 1]);
    followed(vec![
        ([2, 4, 9, 8], padded),
        ([1, 8, 6, 12], padded.ceil_mode(true)),
        ([2, 4, 7, 5], padded),
        ([2, 8, 1, 4], padded),
        ([2, 4, 7, 8], three),
        ([1, 3, 8, 4], three.ceil_mode(true)),
        ([1, 4, 3, 3], three),
        ([3, 4, 5, 8], two),
        ([1, 12, 6, 5], two.ceil_mode(true)),
        ([5, 4, 4, 132], two),
        // By eight channels.
        ([2, 8, 7, 5], three),
        ([3, 8, 5, 9], two),
        ([1, 24, 13, 6], padded),
        ([2, 16, 4, 70], two.ceil_mode(true)),
        // By four windows of a row.
        ([2, 3, 7, 8], three.ceil_mode(true)),
        ([3, 5, 8, 24], padded),
        ([2, 7, 9, 16], two.ceil_mode(true)),
        ([3, 4, 9, 24], three),
        ([2, 2, 8, 16], three),
        // More than one block's rows.
        ([1, 1, 76, 112], padded),
        ([1, 2, 131, 57], three),
        // More columns than threads.
        ([1, 1, 5, 521], padded),
        ([1, 2, 4, 1031], two),
        ([1, 1, 6, 1036], padded),
        // Planes of an odd number of elements, in blocks of several of which the last is not whole.
        ([7, 11, 5, 7], padded),
        ([5, 9, 7, 3], two),
        // Windows of other sizes, strides and paddings.
        ([3, 5, 9, 11], Window::new([5, 4]).stride([3, 2]).padding([2, 1])),
        ([1, 2, 45, 67], Window::new([9, 9]).stride([3, 3]).padding([4, 4])),
        ([2, 3, 13, 13], Window::new([3, 3]).stride([3, 3])),
        ([2, 3, 13, 12], Window::new([3, 3]).stride([3, 3]).padding([1, 1])),
        ([2, 2, 10, 9], Window::new([3, 3]).stride([1, 1]).padding([1, 1])),
        // Windows that the lanes of a warp share: of fewer columns than lanes, and of more.
        ([2, 3, 21, 17], Window::new([13, 5]).stride([4, 3]).padding([6, 2])),
        ([1, 2, 9, 90], Window::new([7, 40]).stride([2, 25]).padding([3, 20])),
        // Windows that several warps share: all of a block, past the image too, and some, of which the last block has a window less.
        ([2, 1, 257, 5], Window::new([257, 5])),
        ([1, 2, 75, 33], Window::new([70, 33]).stride([40, 3]).padding([3, 1])),
        ([1, 1, 40, 87], Window::new([17, 31]).stride([5, 7])),
        // The same, of channels that are last: more than lanes, and lanes that are no power of two.
        ([1, 35, 21, 9], Window::new([13, 5]).stride([4, 3]).padding([6, 2])),
        ([1, 5, 75, 11], Window::new([70, 9]).stride([40, 3]).padding([3, 1])),
        ([2, 3, 13, 13], Window::new([2, 2]).stride([2, 2]).padding([1, 1])),
        // Windows whole in registers: rows of a multiple of four elements and not, padded by as many too, more than a block, and
        // windows that end past the image.
        ([3, 2, 8, 20], Window::new([4, 4])),
        ([5, 13, 11, 23], Window::new([4, 4]).padding([1, 2]).ceil_mode(true)),
        ([2, 3, 9, 12], Window::new([4, 4]).padding([2, 0]).ceil_mode(true)),
        ([2, 3, 16, 24], Window::new([8, 8])),
        ([4, 11, 19, 45], Window::new([8, 8]).padding([4, 3]).ceil_mode(true)),
        ([1, 2, 20, 12], Window::new([8, 8]).padding([1, 0]).ceil_mode(true)),
    ])
}
