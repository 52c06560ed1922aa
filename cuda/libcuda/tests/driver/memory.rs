//! Stream-ordered memory, copies, fills, pinned memory.

use ferrolayer_libcuda::{
    Pinned, alloc_async, mem_info, memcpy_dtod_async, memcpy_dtoh_async, memcpy_htod_async, memset_d8_async,
    memset_d32_async, set_release_threshold, trim_pool,
};
use libtest_mimic::Completion;

use crate::gpu::{Buffer, Gpu, Outcome};

pub fn copies_and_fills(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    let length = 1 << 20;
    let bytes = 4 * length;
    let mut from = Pinned::<u32>::new(length, &gpu.context)?;
    let mut to = Pinned::<u32>::new(length, &gpu.context)?;
    assert!(from.len() == length && from.iter().all(|&word| word == 0), "pinned memory starts as zeros");
    for (index, word) in from.iter_mut().enumerate() {
        *word = (index as u32).wrapping_mul(2_654_435_761);
    }
    let (one, two) = (Buffer::new(&vec![1; length], &stream)?, Buffer::new(&vec![2; length], &stream)?);
    assert!(one.address.is_multiple_of(256) && two.address.is_multiple_of(256));
    // SAFETY: all have this length and stay until the stream is synchronised; only this stream uses them.
    unsafe {
        memcpy_htod_async(one.address, from.as_ptr().cast(), bytes, &stream)?;
        memcpy_dtod_async(two.address, one.address, bytes, &stream)?;
        memset_d8_async(two.address + 5, 0xab, 3, &stream)?;
        memset_d32_async(two.address + 40, 0x1234_5678, 7, &stream)?;
        memcpy_dtoh_async(to.as_mut_ptr().cast(), two.address, bytes, &stream)?;
    }
    stream.synchronize()?;
    let mut expected = from.to_vec();
    expected[1] = expected[1] & 0xff | 0xabab_ab00;
    expected[10..17].fill(0x1234_5678);
    assert!(*to == *expected, "{:x?} instead of {:x?}", &to[..20], &expected[..20]);

    // Nothing to do is no error.
    // SAFETY: nothing is read or written.
    unsafe {
        memcpy_htod_async(one.address, from.as_ptr().cast(), 0, &stream)?;
        memcpy_dtod_async(two.address, one.address, 0, &stream)?;
        memcpy_dtoh_async(to.as_mut_ptr().cast(), two.address, 0, &stream)?;
        memset_d8_async(two.address, 0, 0, &stream)?;
        memset_d32_async(two.address, 0, 0, &stream)?;
    }
    assert_eq!(Pinned::<f64>::new(0, &gpu.context)?.len(), 0);
    drop(one);
    // Pinned memory freed on a thread that has no context.
    std::thread::spawn(move || drop((from, to))).join().map_err(|_| "panicked")?;
    assert_eq!(two.read()?[2..10], expected[2..10]);
    Ok(Completion::Completed)
}

pub fn pool_and_info(gpu: &Gpu) -> Outcome {
    assert!(gpu.info.memory_pools, "{:?}", gpu.info);
    let info = mem_info(&gpu.context)?;
    assert!(info.free > 0 && info.free <= info.total && info.total as u64 <= gpu.info.memory, "{info:?}");
    set_release_threshold(&gpu.context, u64::MAX)?;
    let stream = gpu.stream()?;
    for _ in 0..3 {
        let buffer = Buffer::new(&vec![7; 8 << 20], &stream)?;
        assert_eq!(buffer.read()?.last(), Some(&7));
    }
    // Other tests use the pool too, so that nothing can be said of its size.
    trim_pool(&gpu.context, 0)?;
    Ok(Completion::Completed)
}

pub fn errors(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    let error = alloc_async(1 << 50, &stream).expect_err("a petabyte");
    assert_eq!((error.call, error.name), ("cuMemAllocAsync", "CUDA_ERROR_OUT_OF_MEMORY"));
    let error = alloc_async(0, &stream).expect_err("nothing");
    assert_eq!((error.call, error.name), ("cuMemAllocAsync", "CUDA_ERROR_INVALID_VALUE"));
    let error = Pinned::<u64>::new(usize::MAX / 4, &gpu.context).expect_err("more than there is");
    assert_eq!((error.call, error.name), ("cuMemAllocHost_v2", "CUDA_ERROR_INVALID_VALUE"));
    // Errors of this kind leave the context usable.
    Buffer::new(&[1, 2, 3], &stream)?.read()?;
    Ok(Completion::Completed)
}
