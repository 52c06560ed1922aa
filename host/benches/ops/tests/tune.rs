use std::fs;
use std::path::Path;

use ferrolayer::ops::dense::tune::Entry;
use ferrolayer::ops::dense::tune::fit::Times;

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

/// What `--ways` writes, `--fit` reads; and a file that is none is refused with its line.
#[test]
fn what_was_measured_is_read_again() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("ways.jsonl");
    let problem = "dw bf16 136x7032x4424".parse().unwrap();
    let entry = Entry { problem, choice: "b".into(), us: 1.5, model: "a".into(), model_us: 2.25 };
    let times = [("a".to_owned(), 2.25), ("b".to_owned(), 1.5)];
    let line = serde_json::to_string(&Ways::new(&entry, &times)).unwrap();
    fs::write(&file, format!("{line}\n{line}\n")).unwrap();
    let read = read_ways(std::slice::from_ref(&file)).unwrap();
    assert_eq!(read, vec![(problem, Times::from(times)); 2]);
    for wrong in ["", "{}", &line.replace("dw", "db"), &line.replace("136", "0")] {
        fs::write(&file, format!("{line}\n{wrong}\n")).unwrap();
        let error = read_ways(std::slice::from_ref(&file)).unwrap_err().to_string();
        assert!(error.contains("line 2: "), "{error}");
    }
    assert!(read_ways(&[folder.join("no ways")]).is_err());
}
