use serde_json::{Value, json};

use crate::host::*;
use crate::row;
use crate::timing::{HostTimes, host};

/// A line has what `python -m ferrolayer bench --overhead` writes, and is no row of a table.
#[test]
fn a_line_is_of_the_other_kind() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/bench/rust.jsonl")).unwrap();
    let machine = row::Row::from_json(text.lines().next().unwrap()).unwrap().unwrap().machine;
    let line = Row {
        bench: KIND,
        op: "relu",
        call: "forward",
        dtype: "f32",
        shape: &[2, 4, 6, 5],
        launches: 1,
        ours_us: HostTimes { best: 2.0, median: 2.5 },
        driver_us: HostTimes { best: 1.5, median: 1.75 },
        torch_us: None,
        ratio: None,
        target: 3.0,
        machine: &machine,
    }
    .to_json();
    assert_eq!(row::Row::from_json(&line).unwrap(), None);
    let read: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(read["ours_us"], json!({"best": 2.0, "median": 2.5}));
    assert_eq!((&read["bench"], &read["target"], &read["device"]), (&json!("overhead"), &json!(3.0), &json!("cuda")));
}

/// All contenders in each round, and the first two rounds in no time.
#[test]
fn contenders_are_timed_in_turns() {
    let (mut a, mut b) = (0, 0);
    let mut first = |_| {
        a += 1;
        Ok(())
    };
    let mut second = |_| {
        b += 1;
        std::thread::sleep(std::time::Duration::from_micros(50));
        Ok(())
    };
    let [quick, slow] = host(|| Ok(()), [&mut first, &mut second], 3, 4).unwrap();
    assert_eq!((a, b), (18, 18));
    assert!(quick.best <= quick.median && slow.best >= 50.0 && slow.best <= slow.median, "{quick:?} {slow:?}");
}
