//! All ways to make a product, each with a name: what a tuner measures ([`tune`](crate::ops::dense::tune)), and what a table of
//! what it found may ask for. A name that is none of a product's ways asks for nothing.

use std::collections::HashSet;
use std::fmt::{Display, Formatter};

use kernels::dense::Shape;
use kernels::dense::mma::PIECE;

use super::{Plan, Tile, Way};
use crate::DType;
use crate::ops::dense::Precision;
use crate::ops::dense::gpu::Product;

/// How a product is made: its plan, and, where its operands are taken apart, that of their parts.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Choice {
    pub plan: Plan,
    pub split: Option<Plan>,
    /// Whether a table asked for it.
    pub tuned: bool,
}

impl Choice {
    /// The model's.
    pub fn new(plan: Plan, split: Option<Plan>) -> Self {
        Self { plan, split, tuned: false }
    }

    /// Whether it may add to what is there.
    pub fn may_accumulate(&self) -> bool {
        self.split.as_ref().is_none_or(Plan::may_accumulate)
    }

    /// What was chosen, and why; `table` is where it stood, if it stood in one.
    pub fn why(&self, table: impl FnOnce() -> String) -> String {
        if !self.tuned {
            return self.split.as_ref().unwrap_or(&self.plan).why();
        }
        let Shape { rows, columns, depth, .. } = self.plan.shape;
        format!("{rows}x{columns} sums over {depth} by {self}: tuned, the fastest of those measured, from {}", table())
    }
}

/// Its name, which no other of the same product has.
impl Display for Choice {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let plan = self.split.as_ref().unwrap_or(&self.plan);
        let (tile, cluster) = (plan.tile, |together: u32| (together > 1).then_some(together));
        let (kind, together) = match tile {
            Tile::Large | Tile::Small | Tile::Sliced => ("plain", None),
            Tile::TensorWide | Tile::TensorLarge | Tile::TensorSmall => ("mma", None),
            Tile::Hopper { together, .. } => ("wgmma", cluster(together)),
            Tile::Split => ("split", None),
            Tile::SplitRegisters { .. } => ("split registers", None),
            Tile::Ffma { .. } => ("ffma", None),
            Tile::Tf32 { together, .. } => ("tf32", cluster(together)),
        };
        write!(f, "{kind} {}x{}", tile.rows(), tile.columns())?;
        if let Some(together) = together {
            write!(f, " cluster {together}")?;
        }
        match tile {
            Tile::Hopper { sharing: [down, across], .. } if down * across > 1 => write!(f, " sharing {down}x{across}")?,
            Tile::Ffma { alone, shared, blocks } => write!(f, " alone {alone} shared {shared} blocks {blocks}")?,
            Tile::Tf32 { way: Way::Left, .. } => f.write_str(" left")?,
            Tile::Tf32 { way: Way::Right, .. } => f.write_str(" right")?,
            Tile::Tf32 { way: Way::LeftWithin, .. } => f.write_str(" left within")?,
            Tile::Tf32 { way: Way::RightWithin, .. } => f.write_str(" right within")?,
            _ => {}
        }
        if plan.splits > 1 { write!(f, " parts {}", plan.splits) } else { Ok(()) }
    }
}

/// What the ways to make a product depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Question {
    /// Whether the GPU takes kernels for Hopper alone.
    pub hopper: bool,
    pub dtype: DType,
    pub precision: Precision,
    pub product: Product,
    /// The product's rows, columns and depth.
    pub sizes: [usize; 3],
    /// How long the operands' rows in memory are.
    pub lengths: [usize; 2],
}

impl Question {
    /// All ways that there are kernels for and that the precision allows, in no order; none where there is nothing to sum.
    pub fn all(&self) -> Vec<Choice> {
        let &Self { hopper, dtype, precision, product, sizes, lengths } = self;
        if sizes.contains(&0) {
            return Vec::new();
        }
        let whole = |plan| Choice::new(plan, None);
        let mut all: Vec<_> = Plan::all_of_cores(sizes).map(whole).collect();
        match dtype {
            DType::F32 if hopper => {
                all.extend(Plan::all_of_ffma(product, sizes).into_iter().map(whole));
                // Where its product is refused, that by f32 arithmetic is made, as in the model's choice.
                let instead = Plan::new(product, sizes);
                if precision != Precision::F32
                    && let Some(plan) = instead
                {
                    all.extend(Plan::all_of_split(product, sizes).map(|split| Choice::new(plan, Some(split))));
                }
                if precision == Precision::Tf32 {
                    all.extend(Plan::all_of_tf32(product, sizes).map(whole));
                }
            }
            DType::F16 | DType::Bf16 if lengths.iter().all(|length| length.is_multiple_of(PIECE as usize)) => {
                all.extend(Plan::all_of_tensor(sizes).map(whole));
                if hopper {
                    all.extend(Plan::all_of_hopper(product, sizes).map(whole));
                }
            }
            _ => {}
        }
        // Rounding to whole slices makes some the same.
        let mut names = HashSet::new();
        all.retain(|choice| names.insert(choice.to_string()));
        all
    }

    /// The way of this name, if it is one of them.
    pub fn named(&self, name: &str) -> Option<Choice> {
        self.all().into_iter().find(|choice| choice.to_string() == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::device::Gpu;
    use crate::ops::dense::{Generator, Sizes};
    use crate::{bf16, f16};

    /// Products of layers with sizes of 1 to 9,000, some multiples of 8 or 64, of each type and precision.
    fn questions() -> Vec<Question> {
        let mut random = Generator::seed_from_u64(1);
        let mut size = |of: usize| {
            let exponent: f64 = random.random_range(0.0..9000f64.ln());
            (exponent.exp() as usize).next_multiple_of(of)
        };
        let mut all = Vec::new();
        for of in [1, 4, 8, 64].into_iter().cycle().take(60) {
            let sizes = Sizes { batch: size(of), inputs: size(of), outputs: size(of) };
            for product in Product::ALL {
                for hopper in [false, true] {
                    let of_half = [DType::F16, DType::Bf16].map(|dtype| (dtype, Precision::default()));
                    let of_f32 = Precision::ALL.map(|precision| (DType::F32, precision));
                    for (dtype, precision) in of_half.into_iter().chain(of_f32) {
                        all.push(sizes.question(hopper, dtype, precision, product));
                    }
                }
            }
        }
        all
    }

    #[test]
    fn each_way_has_a_name_of_its_own_and_is_found_by_it() {
        for question in questions() {
            let mut cuts = HashMap::new();
            for choice in question.all() {
                let name = choice.to_string();
                let cut = format!("{:?} {:?}", choice.plan, choice.split);
                assert!(cuts.insert(name.clone(), cut.clone()).is_none(), "{name} twice: {question:?}");
                let found = question.named(&name).unwrap();
                assert_eq!(format!("{:?} {:?}", found.plan, found.split), cut, "{question:?}");
            }
            assert!(question.named("wgmma 128x512").is_none());
            assert!(question.named("").is_none());
        }
    }

    /// So that a tuner measures it beside the others, and a table may name it.
    #[test]
    fn the_model_s_choice_is_one_of_the_ways() {
        let gpu = Gpu::emulated();
        for question in questions().into_iter().filter(|question| !question.hopper) {
            let model = match question.dtype {
                DType::F16 => question.model::<f16>(&gpu, false),
                DType::Bf16 => question.model::<bf16>(&gpu, false),
                _ => question.model::<f32>(&gpu, false),
            };
            let name = model.unwrap().to_string();
            assert!(question.named(&name).is_some(), "{name}: {question:?}");
        }
        // What there is on Hopper alone, no emulated GPU is asked for.
        for Question { product, sizes, lengths, .. } in questions() {
            let of = |dtype, precision| Question { hopper: true, dtype, precision, product, sizes, lengths };
            let plans = [
                (of(DType::F32, Precision::F32), Plan::ffma(product, sizes).map(|plan| Choice::new(plan, None))),
                (of(DType::F32, Precision::Tf32), Plan::tf32(product, sizes).map(|plan| Choice::new(plan, None))),
                (
                    of(DType::F32, Precision::F32Split),
                    Plan::split(product, sizes, false)
                        .and_then(|split| Plan::new(product, sizes).map(|plan| Choice::new(plan, Some(split)))),
                ),
                (
                    of(DType::Bf16, Precision::default()),
                    Plan::hopper(product, sizes, lengths)
                        .filter(|_| lengths.iter().all(|length| length.is_multiple_of(8)))
                        .map(|plan| Choice::new(plan, None)),
                ),
            ];
            for (question, choice) in plans {
                let name = choice.map(|choice| choice.to_string());
                assert!(name.as_ref().is_none_or(|name| question.named(name).is_some()), "{name:?}: {question:?}");
            }
        }
    }

    /// A table may name a way that finds out late that it cannot make the product: not over what is still needed.
    #[test]
    fn what_is_added_to_is_not_made_by_parts_in_registers_at_once() {
        let (dtype, sizes) = (DType::F32, [512, 512, 512]);
        let (precision, product) = (Precision::F32Split, Product::Dx);
        let question = Question { hopper: true, dtype, precision, product, sizes, lengths: [512, 512] };
        let may = |name: &str| question.named(name).map(|choice| choice.may_accumulate());
        assert_eq!(may("split registers 64x128"), Some(false));
        assert_eq!(may("split registers 64x128 parts 2"), Some(true));
        assert_eq!(may("split 128x128"), Some(true));
        assert_eq!(may("plain 128x128"), Some(true));
    }

    #[test]
    fn nothing_is_made_in_no_way() {
        for sizes in [[0, 8, 8], [8, 0, 8], [8, 8, 0], [1 << 31, 8, 8]] {
            let lengths = [sizes[2], sizes[2]];
            let (dtype, precision, product) = (DType::Bf16, Precision::default(), Product::Forward);
            assert!(Question { hopper: true, dtype, precision, product, sizes, lengths }.all().is_empty());
        }
    }

    /// What a precision promises, a table cannot take away.
    #[test]
    fn ways_are_as_exact_as_the_precision_says() {
        let question = |precision| {
            let (dtype, sizes) = (DType::F32, [512, 512, 512]);
            Question { hopper: true, dtype, precision, product: Product::Forward, sizes, lengths: [512, 512] }
        };
        assert!(question(Precision::Tf32).named("tf32 128x128").is_some());
        assert!(question(Precision::F32Split).named("tf32 128x128").is_none());
        assert!(question(Precision::F32Split).named("split 128x128").is_some());
        assert!(question(Precision::F32).named("split 128x128").is_none());
        assert!(question(Precision::F32).named("plain 128x128").is_some());
    }
}
