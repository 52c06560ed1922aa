use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ferrolayer::device::Gpu;

use crate::timing::*;
use crate::work::Run;

const SMALL: Effort = Effort { copied: 1 << 12, cache: 1 << 10, warm_up: Duration::ZERO };

/// At least as many as asked for, on one set after the other.
#[test]
fn runs_go_through_all_sets() {
    let gpu = Gpu::emulated();
    let mut timer = Timer::new(&gpu, 1 << 30, &SMALL).unwrap();
    for sets in [2, MOST_SETS] {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let noted = seen.clone();
        let mut run: Run = Box::new(move |number| {
            noted.borrow_mut().push(number);
            Ok(())
        });
        let times = timer.measure(&mut run, sets, 25, Duration::ZERO).unwrap();
        assert!(times.p10 <= times.median && times.median <= times.p90);
        let seen = seen.borrow();
        assert!(seen.len() >= WARM_UP + 1 + 25, "{}", seen.len());
        assert!(seen.iter().copied().eq(0..seen.len()), "{seen:?}");
    }
}

#[test]
fn a_failing_run_is_told() {
    let gpu = Gpu::emulated();
    let mut timer = Timer::new(&gpu, 1 << 30, &SMALL).unwrap();
    let mut run: Run =
        Box::new(
            |number| {
                if number < 20 { Ok(()) } else { Err(ferrolayer::Error::Recording { during: "a test".into() }) }
            },
        );
    assert!(timer.measure(&mut run, 2, 50, Duration::ZERO).is_err());
}

/// Together four times the cache, but not more than memory holds, nor more than [`MOST_SETS`].
#[test]
fn as_many_sets_as_outgrow_the_cache() {
    let timer = Timer::new(&Gpu::emulated(), 100_000, &SMALL).unwrap();
    assert_eq!(timer.sets(1 << 10, 1 << 11), Some(4));
    assert_eq!(timer.sets(1 << 20, 1 << 12), Some(2), "two at least");
    assert_eq!(timer.sets(1, 1), Some(MOST_SETS));
    assert_eq!(timer.sets(1 << 9, 30_000), Some(2), "memory holds no more");
    assert_eq!(timer.sets(1 << 9, 50_000), None, "not two");
}
