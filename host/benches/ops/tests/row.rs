use std::path::Path;

use serde_json::Value;

use crate::case::Options;
use crate::row::*;

/// What the benches wrote on real machines; the Python bench reads the same files in its tests.
fn sample(side: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/bench/{side}.jsonl"))
}

/// As `statistics.quantiles(.., n=10, method="inclusive")` has them.
#[test]
fn percentiles_are_on_the_line_between_two_runs() {
    let seconds: Vec<f64> = [7, 1, 3, 2, 6, 4, 5, 8].map(|time| f64::from(time) * 1e-6).into();
    assert_eq!(Times::of(&seconds), Some(Times { p10: 1.7, median: 4.5, p90: 7.3 }));
    assert_eq!(Times::of(&[2.5e-6]), Some(Times { p10: 2.5, median: 2.5, p90: 2.5 }));
    let fifty: Vec<f64> = (0..50).map(|time| f64::from(time) * 1e-6).collect();
    assert_eq!(Times::of(&fifty), Some(Times { p10: 4.9, median: 24.5, p90: 44.1 }));
    assert_eq!(Times::of(&[]), None);
}

#[test]
fn the_lines_of_both_benches_are_read_and_written_alike() {
    for side in ["rust", "python"] {
        let rows = read(&sample(side)).unwrap();
        let text = std::fs::read_to_string(sample(side)).unwrap();
        assert!(rows.len() > 1 && rows.len() == text.lines().count(), "{side}");
        for (row, line) in rows.iter().zip(text.lines()) {
            let (stored, written): (Value, Value) =
                (serde_json::from_str(line).unwrap(), serde_json::from_str(&row.to_json()).unwrap());
            assert_eq!(written, stored, "nothing is lost, and nothing is added");
            assert_eq!(row.torch_us.is_some(), side == "python");
            assert!(row.ours_us.p10 <= row.ours_us.median && row.ours_us.median <= row.ours_us.p90);
        }
    }
}

#[test]
fn other_lines_are_no_rows() {
    assert_eq!(Row::from_json(r#"{"bench": "overhead", "op": "relu"}"#).unwrap(), None);
    assert!(Row::from_json(r#"{"bench": "pass", "op": "relu"}"#).is_err());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let error = read(&file).unwrap_err().to_string();
    assert!(error.contains("Cargo.toml, line 1: not a bench's result"), "{error}");
    assert!(read(Path::new("/no/such/file")).unwrap_err().to_string().starts_with("/no/such/file: "));
}

/// Settings that this bench does not know stay what they are.
#[test]
fn a_later_bench_s_settings_are_kept() {
    let line = std::fs::read_to_string(sample("python")).unwrap().lines().next().unwrap().to_owned();
    let line = line.replace(r#""options": {}"#, r#""options": {"groups": 4}"#);
    let row = Row::from_json(&line).unwrap().unwrap();
    assert!(row.to_json().contains(r#""options":{"groups":4}"#), "{}", row.to_json());
    assert_ne!(row.key(), Row { options: Options::default(), ..row.clone() }.key());
}
