//! Streams and events.

use std::ptr::null_mut;

use ferrolayer_libcuda::{Event, Stream, memset_d32_async, with_current};
use libtest_mimic::Completion;

use crate::gpu::{Buffer, Gpu, Outcome};
use crate::launches::scale_add;

pub fn streams_and_events(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    assert!(stream.query()?, "an empty stream is done");
    assert!(!stream.is_capturing()?);
    let (start, end) = (Event::new(&gpu.context)?, Event::new(&gpu.context)?);
    assert!(start.query()?, "an event never recorded counts as done");
    let words = 16 << 20;
    let buffer = Buffer::new(&vec![0; words], &stream)?;
    start.record(&stream)?;
    for value in 0..20 {
        // SAFETY: the buffer has this length, and only this stream uses it.
        unsafe { memset_d32_async(buffer.address, value, words, &stream) }?;
    }
    end.record(&stream)?;
    end.synchronize()?;
    assert!(end.query()? && stream.query()?);
    // 20 times 64 MiB, at most at 100 TB/s.
    let milliseconds = end.elapsed_since(&start)?;
    assert!((0.01..60_000.0).contains(&milliseconds), "{milliseconds} ms");
    assert_eq!(buffer.read()?[words - 1], 19);

    // Events without time refuse to tell it.
    let untimed = Event::untimed(&gpu.context)?;
    untimed.record(&stream)?;
    untimed.synchronize()?;
    assert!(untimed.elapsed_since(&start).is_err());
    Ok(Completion::Completed)
}

pub fn wait_for_events(gpu: &Gpu) -> Outcome {
    let (one, two) = (gpu.stream()?, gpu.stream()?);
    let words = 16 << 20;
    let buffer = Buffer::new(&vec![0; words], &one)?;
    for round in 1..=8 {
        let event = Event::untimed(&gpu.context)?;
        // The second fill must come after the long first ones, and the first ones of the next round after it.
        // SAFETY: the buffer has this length, and the event orders the two streams.
        unsafe {
            for _ in 0..8 {
                memset_d32_async(buffer.address, 1000 + round, words, &one)?;
            }
            event.record(&one)?;
            two.wait_event(&event)?;
            memset_d32_async(buffer.address, round, words, &two)?;
        }
        let back = Event::untimed(&gpu.context)?;
        back.record(&two)?;
        one.wait_event(&back)?;
        // An event may go before the work that waits for it is done.
        drop((event, back));
        let read = buffer.read()?;
        assert!(read.iter().all(|&word| word == round), "round {round}");
    }
    Ok(Completion::Completed)
}

pub fn from_elsewhere(gpu: &Gpu) -> Outcome {
    // cust's stream, as another library's, which must outlive our use of it.
    let flags = cust::stream::StreamFlags::NON_BLOCKING;
    let theirs = with_current(&gpu.context, || cust::stream::Stream::new(flags, None))??;
    for _ in 0..2 {
        // SAFETY: a stream of this context, which outlives this value.
        let stream = unsafe { Stream::from_raw(theirs.as_inner(), &gpu.context) };
        assert_eq!(stream.raw(), theirs.as_inner());
        scale_add(gpu, &stream)?;
    }
    // Not destroyed: cust can still use it.
    with_current(&gpu.context, || theirs.synchronize())??;

    // The legacy default stream, which PyTorch uses unless told otherwise.
    // SAFETY: null is that stream.
    let default = unsafe { Stream::from_raw(null_mut(), &gpu.context) };
    scale_add(gpu, &default)?;
    default.synchronize()?;
    Ok(Completion::Completed)
}

pub fn any_thread(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| scale_add(gpu, &stream).map_err(|error| format!("{error:?}")))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("panicked".to_owned())))
    })?;
    // Dropped on a thread that has no context.
    let event = Event::new(&gpu.context)?;
    event.record(&stream)?;
    std::thread::spawn(move || drop((event, stream))).join().map_err(|_| "panicked")?;
    Ok(Completion::Completed)
}
