use crate::tune::*;

fn problems(shapes: &[&str], types: &[&str], passes: &[&str], precisions: &[&str]) -> Vec<String> {
    let [shapes, types, passes, precisions] =
        [shapes, types, passes, precisions].map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let asked = Asked { shapes: &shapes, types: &types, passes: &passes, precisions: &precisions };
    asked.problems().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn only_what_is_asked_for_is_tuned() {
    assert_eq!(
        problems(&["8x16x24"], &["bf16"], &[], &[]),
        ["forward bf16 8x16x24", "dx bf16 8x16x24", "dw bf16 8x16x24"]
    );
    assert_eq!(
        problems(&["8x16x24"], &[], &["backward"], &["tf32", "f32"]),
        [
            "dx f32 8x16x24 f32",
            "dw f32 8x16x24 f32",
            "dx f32 8x16x24 tf32",
            "dw f32 8x16x24 tf32",
            "dx f16 8x16x24",
            "dw f16 8x16x24",
            "dx bf16 8x16x24",
            "dw bf16 8x16x24"
        ]
    );
    assert_eq!(problems(&["8x16x24"], &["f32"], &["dx"], &[]), ["dx f32 8x16x24 f32_split"]);
}

#[test]
fn without_shapes_those_of_the_tables_are_each_tuned_once() {
    let all = problems(&[], &["f16"], &[], &[]);
    assert!(all.contains(&"dw f16 4096x4096x4096".to_owned()));
    assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
}

#[test]
fn a_shape_is_three_sizes() {
    for shape in ["", "8x8", "8x8x8x8", "8x0x8", "8xax8"] {
        let shapes = [shape.to_owned()];
        let asked = Asked { shapes: &shapes, types: &[], passes: &[], precisions: &[] };
        assert!(asked.problems().is_err(), "{shape:?}");
    }
}
