use crate::case::Options;
use crate::power::Power;
use crate::report::*;
use crate::row::{Machine, Row, Times};

const OURS: Columns = Columns { torch: false, power: false };
const BESIDE_TORCH: Columns = Columns { torch: true, power: false };

/// A made-up result of a GPU that copies at 4000 GB/s.
fn row(op: &str, p10: f64, median: f64, p90: f64) -> Row {
    let machine = Machine {
        device: "cuda".into(),
        gpu: Some("a GPU".into()),
        driver: Some("580.1".into()),
        torch: None,
        ferrolayer: "0.1.0".into(),
        commit: Some("c219d77".into()),
        date: "2026-11-21T00:00:00Z".into(),
        copy_gbps: Some(4000.0),
    };
    Row {
        op: op.into(),
        pass: "forward".into(),
        dtype: "f32".into(),
        layout: "NCHW".into(),
        shape: vec![64, 64, 112, 112],
        options: Options { kernel: Some([3, 3]), stride: Some([2, 2]), padding: Some([1, 1]), ..Options::default() },
        bytes: 200_000_000,
        flops: None,
        target: Some(0.96),
        baseline: String::new(),
        ours_us: Times { p10, median, p90 },
        torch_us: None,
        compiled_us: None,
        power: None,
        machine,
    }
}

/// 2 % of the earlier median, or half of both spreads where that is more.
#[test]
fn noise_is_what_the_runs_differ_by_themselves() {
    let (steady, wild) = (row("relu", 100.0, 100.0, 100.0), row("relu", 90.0, 100.0, 120.0));
    assert_eq!(noise(&steady, &steady), 2.0);
    assert_eq!(noise(&steady, &wild), 15.0);
    assert_eq!(noise(&wild, &wild), 30.0);
}

#[test]
fn only_what_is_beyond_the_noise_is_slower() {
    let at = |median| row("relu", median, median, median);
    for (new, slower, faster) in [(102.0, 0, 0), (102.1, 1, 0), (98.0, 0, 0), (97.9, 0, 1)] {
        let (text, count) = compare(&[at(100.0)], &[at(new)]);
        let counts = format!("of 1 rows that both runs have, {slower} slower and {faster} faster");
        assert!(text.starts_with(&counts) && count == slower, "{new}: {text}");
    }
    // The same medians in runs that vary more: nothing.
    let (old, new) = (row("relu", 95.0, 100.0, 105.0), row("relu", 100.0, 105.0, 110.0));
    assert_eq!(compare(&[old], &[new]).1, 0);
}

#[test]
fn the_worst_comes_first_and_rows_of_one_run_alone_are_left_out() {
    let at = |op, median| row(op, median, median, median);
    let old = [at("relu", 100.0), at("prelu", 100.0), at("add2", 50.0)];
    let new = [at("prelu", 110.0), at("relu", 150.0), at("swish", 900.0)];
    let (text, slower) = compare(&old, &new);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((slower, lines.len()), (2, 3), "{text}");
    assert_eq!(lines[1], "  slower  +50.0 % (100.0 -> 150.0 µs): relu forward f32 NCHW 64x64x112x112 3x3 s2 p1");
    assert!(lines[2].contains("+10.0 %"), "{text}");
    assert_eq!(compare(&old, &new[2..]), ("no row of this run is in the earlier one".into(), 0));
    let mut elsewhere = at("relu", 100.0);
    elsewhere.machine.gpu = Some("another".into());
    assert!(compare(&old, &[elsewhere]).0.contains("measured on different machines: a GPU, another"));
}

#[test]
fn a_row_s_share_stands_beside_its_goal() {
    // 200 MB at 4000 GB/s take 50 µs.
    let (met, missed) = (row("max_pool", 51.0, 52.0, 53.0), row("max_pool", 60.0, 62.5, 65.0));
    assert!(line(&met, OURS).ends_with("52.00    51.00..53.00   3846  0.962  0.96"), "{}", line(&met, OURS));
    assert!(line(&missed, OURS).ends_with("3200  0.800 <0.96"), "{}", line(&missed, OURS));
    let told = summary(&[met.clone(), missed.clone()]);
    assert!(told.starts_with("targets: 1 of 2 rows reach theirs\n  0.800 of 0.960: max_pool forward f32"), "{told}");
    let head = heading(&met.machine, Some("50 runs"), OURS);
    assert!(
        head.starts_with("a GPU, driver 580.1, ferrolayer 0.1.0, commit c219d77, 2026-11-21T00:00:00Z\n"),
        "{head}"
    );
    // As wide as the rows, the last column right-aligned.
    assert_eq!(head.lines().last().unwrap().len(), line(&met, OURS).chars().count());
}

#[test]
fn rows_beside_pytorch_are_judged_against_it() {
    let beside = |ours: f64| Row {
        torch_us: Some(Times { p10: 99.0, median: 100.0, p90: 101.0 }),
        ..row("relu", ours, ours, ours)
    };
    let rows = [beside(50.0), beside(99.0), beside(120.0)];
    let told = summary(&rows);
    assert!(told.starts_with("against eager PyTorch: 1 rows ahead, 1 behind, 1 level"), "{told}");
    assert!(told.contains("\n    1.20 times its time: relu"), "{told}");
    assert!(line(&rows[0], BESIDE_TORCH).contains("100.0   0.500        -      -"), "{}", line(&rows[0], BESIDE_TORCH));
}

#[test]
fn clock_and_watts_have_columns_of_their_own() {
    let columns = Columns { power: true, ..OURS };
    let row = Row { power: Some(Power { mhz: 1455.0, watts: 698.0 }), ..row("dense", 51.0, 52.0, 53.0) };
    let (head, line) = (heading(&row.machine, None, columns), line(&row, columns));
    assert!(line.ends_with(" 0.96  1455  698"), "{line}");
    assert!(head.lines().last().unwrap().len() == line.chars().count() && head.contains("   MHz    W"), "{head}");
    assert_eq!(Row::from_json(&row.to_json()).unwrap().unwrap(), row);
}
