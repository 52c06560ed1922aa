use std::collections::BTreeSet;
use std::path::Path;

use ferrolayer::{DType, Layout};

use crate::case::*;

/// Counted by hand, for this bench and for the comparison with PyTorch.
#[test]
fn the_fewest_bytes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/bench/bytes.json");
    let text = std::fs::read_to_string(path).unwrap();
    let counted: Vec<(String, Vec<usize>, Options, String, usize, usize)> = serde_json::from_str(&text).unwrap();
    let all: BTreeSet<&str> = counted.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(all, ops().collect(), "each op is counted");
    for (op, shape, options, name, size, bytes) in counted {
        let case = Case { op, shape, options };
        let pass = Pass::ALL.into_iter().find(|pass| pass.name() == name).unwrap();
        assert!(passes(&case.op).contains(&pass), "{case:?} has no {name}");
        assert_eq!(case.bytes(pass, size), bytes, "{case:?} {name}");
    }
}

#[test]
fn what_is_measured_are_the_library_s_ops_and_the_copy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
    assert!(ops().all(|op| op == "copy" || folder.join(op).is_dir()));
    assert_eq!(ops().count(), 16, "all but `route`, which is pooling's backward pass");
}

#[test]
fn every_window_fits() {
    for case in
        ops().flat_map(|op| [Which::Tiny, Which::All, Which::Sweep].into_iter().flat_map(|which| cases(op, which)))
    {
        assert!(case.output_shape().iter().all(|&size| size > 0), "{case:?}");
    }
}

#[test]
fn the_sweep_is_of_many_geometries() {
    for op in ["max_pool", "avg_pool", "stochastic_pool", "gaussian_pool"] {
        let sweep = cases(op, Which::Sweep);
        let has = |what: &dyn Fn(&Case) -> bool| assert!(sweep.iter().any(what), "{op}");
        for side in [7, 1024] {
            has(&|case| case.shape[2] == side);
        }
        for channels in [1, 4096] {
            has(&|case| case.shape[1] == channels);
        }
        for batch in [1, 256] {
            has(&|case| case.shape[0] == batch);
        }
        for size in [2, 32] {
            has(&|case| case.options.kernel == Some([size; 2]));
        }
        has(&|case| case.shape[2] % 2 == 1 && case.shape[3] % 2 == 1);
        has(&|case| case.options.kernel == Some([case.shape[2], case.shape[3]]));
    }
}

#[test]
fn sizes_go_from_1_kb_to_the_largest() {
    for op in ["copy", "relu", "prelu", "max_pool"] {
        let bytes: Vec<usize> =
            cases(op, Which::Sizes(8 << 30)).iter().map(|case| 4 * case.shape.iter().product::<usize>()).collect();
        assert_eq!((bytes[0], bytes[bytes.len() - 1]), (1 << 10, 8 << 30), "{op}");
        assert!(bytes.is_sorted_by(|a, b| a < b), "{op}");
    }
    assert_eq!(cases("dense", Which::Sizes(1 << 20)), []);
    assert_eq!(image_of(1 << 20), [1, 64, 128, 128]);
}

/// Each of the goals is a row of the tables, with less to reach in 16 bits and with the channels last.
#[test]
fn goals_are_reached_by_rows_that_are_measured() {
    let tables: Vec<Case> = ops().flat_map(|op| cases(op, Which::Tables)).collect();
    for goal in &SHAPES.targets {
        let case =
            tables.iter().find(|case| (&case.op, &case.shape, &case.options) == (&goal.op, &goal.shape, &goal.options));
        let case = case.unwrap_or_else(|| panic!("{} {:?} {} is in no table", goal.op, goal.shape, goal.options));
        assert_eq!(case.target(Pass::Forward, DType::F32, Layout::RowMajor), Some(goal.forward));
        let less = case.target(Pass::Backward, DType::F32, Layout::ChannelsLast).unwrap();
        assert!((goal.backward - less - ALLOWANCE).abs() < 1e-9);
        assert_eq!(
            case.target(Pass::Forward, DType::F16, Layout::RowMajor).map(|less| less < goal.forward),
            Some(true)
        );
        assert_eq!(case.target(Pass::Inference, DType::F32, Layout::RowMajor), None);
    }
    assert_eq!(SHAPES.targets.len(), 11);
}

#[test]
fn options_in_short() {
    let case = |op, number: usize| cases(op, Which::Tables)[number].options.to_string();
    assert_eq!([case("relu", 0), case("max_pool", 0), case("max_pool", 1)], ["", "3x3 s2 p1", "2x2 s2"]);
    assert_eq!([case("gaussian_pool", 2), case("gaussian_pool", 3)], ["11x11 s2 3/map", "11x11 s2 learnt"]);
    assert_eq!([case("dense", 0), case("dense", 2)], ["bias", "bias prelu"]);
    let all: Vec<String> = cases("dense", Which::All).iter().map(|case| case.options.to_string()).collect();
    assert!(all.contains(&"bias tf32".to_owned()) && all.contains(&"bias f32".to_owned()), "{all:?}");
}
