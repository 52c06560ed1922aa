use serde_json::{Value, json};

use crate::host::*;
use crate::row;

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
        ours_us: Call { best: 2.0, median: 2.5 },
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
