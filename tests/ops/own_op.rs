//! The example of a user's own op, and the page that explains it.

use crate::custom_op;
use crate::support::{Outcome, Trial, on_cpu};

const PAGE: &str = include_str!("../../docs/your-own-op.md");
const EXAMPLE: &str = include_str!("../../host/examples/custom_op.rs");

pub fn tests() -> Vec<Trial> {
    vec![
        on_cpu("own_op::the_example_runs", || custom_op::main().map_err(|error| error.to_string().into())),
        on_cpu("own_op::the_example_is_short", the_example_is_short),
        on_cpu("own_op::the_page_shows_the_example", the_page_shows_the_example),
    ]
}

fn the_example_is_short() -> Outcome {
    assert!(EXAMPLE.lines().count() < 150);
    Ok(())
}

/// Every block of code stands in the example as it stands on the page, in the same order; together they are all of it.
fn the_page_shows_the_example() -> Outcome {
    let blocks: Vec<&str> = PAGE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let mut rest = EXAMPLE;
    for block in &blocks {
        let Some((before, after)) = rest.split_once(block) else {
            return Err(format!("not in the example, or not after the blocks before it:\n{block}").into());
        };
        if !before.trim().is_empty() {
            return Err(format!("not on the page:\n{before}").into());
        }
        rest = after;
    }
    if rest.trim().is_empty() { Ok(()) } else { Err(format!("not on the page:\n{rest}").into()) }
}
