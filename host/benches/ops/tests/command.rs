use std::collections::BTreeSet;

use clap::{CommandFactory, Parser};

use crate::command::*;

fn plan(arguments: &[&str]) -> Vec<String> {
    let arguments = Arguments::try_parse_from(["bench"].iter().chain(arguments)).unwrap();
    arguments.plan().iter().map(Planned::name).collect()
}

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
    assert!(Arguments::try_parse_from(["bench", "--ops", "no_such"]).is_err());
    assert!(Arguments::try_parse_from(["bench", "--runs", "0"]).is_err());
    assert!(Arguments::try_parse_from(["bench", "--sweep", "--sizes"]).is_err());
    // As `cargo bench` calls it.
    assert!(Arguments::try_parse_from(["bench", "--bench"]).is_ok());
}

#[test]
fn only_what_is_asked_for() {
    let some =
        ["--ops", "prelu", "relu", "--types", "f32", "bf16", "--layouts", "NHWC", "--passes", "backward", "--quick"];
    assert_eq!(
        plan(&some),
        [
            // No image: the choice of layouts is not for it.
            "relu backward f32 flat 64x256x56x56",
            "relu backward bf16 flat 64x256x56x56",
            "prelu backward f32 NHWC 64x256x56x56",
            "prelu backward bf16 NHWC 64x256x56x56",
        ]
    );
    assert_eq!(plan(&["max_pool forward f32 NCHW 64x64x111x113 9x9"]).len(), 1);
    assert_eq!(plan(&["--shapes", "64x64x111x113", "--ops", "avg_pool", "--quick"]), [""; 0]);
    assert!(plan(&["no such row"]).is_empty());
}

/// Two passes of each of the eleven shapes with a goal: in f32 and row-major order, or in all types and layouts.
#[test]
fn targets_are_chosen() {
    assert_eq!(plan(&["--targets", "--quick"]).len(), 22);
    assert_eq!(plan(&["--targets"]).len(), 22 * 6);
}

#[test]
fn every_op_type_layout_and_pass_is_measured() {
    let names = plan(&[]);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "no row twice");
    for row in [
        "stochastic_pool inference f16 NHWC 64x64x112x112 3x3 s2",
        "gaussian_pool backward bf16 NHWC 64x64x112x112 11x11 s2 learnt",
        "max_pool backward f32 NCHW 64x64x111x113 9x9 s3 p4",
        "softmax_cross_entropy backward f32 rows 65536x1000",
        "adam step f32 flat 67108864",
        "permute forward bf16 NHWC 64x256x56x56",
        "dense dw f16 rows 4096x4096x4096 bias",
        "exp backward f32 flat 64x256x56x56",
        "swish forward bf16 flat 64x256x56x56",
    ] {
        assert!(names.iter().any(|name| name == row), "{row}");
    }
    assert!(plan(&["--sizes"]).iter().any(|name| name.starts_with("copy forward f32 flat 2147483648")));
    assert!(plan(&["--host"]).iter().all(|name| name.contains(" f32 ")));
}

/// Without a GPU there is a sentence, and exit code 2; so there is for files that are none.
#[test]
fn says_why_it_cannot_run() {
    let run = |arguments: &[&str]| {
        Arguments::try_parse_from(["bench"].iter().chain(arguments)).unwrap().run().map_err(|error| error.to_string())
    };
    assert!(run(&["--report", "/no/such/file"]).unwrap_err().starts_with("/no/such/file: "));
    assert!(run(&["--compare", "/no/such/file"]).is_err());
    assert!(run(&["no such row"]).unwrap_err().starts_with("nothing to measure: no row"));
    assert!(run(&["--gpu", "4096", "--quick"]).unwrap_err().starts_with("nothing to measure: "));
}
