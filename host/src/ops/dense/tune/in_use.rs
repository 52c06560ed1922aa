//! The tables in use: one at most for each GPU of this process, for all of its streams.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use super::super::plan::{Choice, Question};
use super::{Product, Table, VARIABLE};
use crate::device::Gpu;
use crate::recent::Recent;

/// A table's ways, and where it was read.
#[derive(Default)]
pub struct InUse {
    pub choices: HashMap<Question, Choice>,
    pub source: String,
}

/// By the GPU's number; an emulated one has none.
static IN_USE: RwLock<Option<HashMap<Option<u32>, InUse>>> = RwLock::new(None);
/// How often that changed: what threads remember is of one state. While it is 0, and the environment names no table, nobody asks.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// What the tables said of late, of which state of them and of which GPU.
type Found = Recent<(u64, Option<u32>, Question), Option<Choice>, 32>;

thread_local! {
    /// What this thread's next products are made by, whatever the tables say, while one is measured.
    static FORCED: Cell<Option<(Product, Choice)>> = const { Cell::new(None) };
    /// What was found of late: a network's layers, forward and backward.
    static FOUND: RefCell<Found> = RefCell::default();
}

/// The table that the environment names.
fn named() -> Option<&'static PathBuf> {
    static NAMED: OnceLock<Option<PathBuf>> = OnceLock::new();
    NAMED.get_or_init(|| std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)).as_ref()
}

/// From now on, for all streams of this GPU.
pub fn set(gpu: &Gpu, table: InUse) {
    let mut tables = IN_USE.write().unwrap_or_else(PoisonError::into_inner);
    tables.get_or_insert_default().insert(gpu.number(), table);
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Runs `work` with this thread's products of this kind made so.
pub fn with_forced<R>(product: Product, choice: Choice, work: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            FORCED.set(None);
        }
    }
    CHANGES.fetch_max(1, Ordering::Release);
    FORCED.set(Some((product, choice)));
    let _reset = Reset;
    work()
}

/// How the tables say that a product is made, where one is in use that has it.
#[inline]
pub fn find(gpu: &Gpu, question: &Question) -> Option<Choice> {
    let changes = CHANGES.load(Ordering::Acquire);
    if changes == 0 && named().is_none() { None } else { look_up(changes, gpu, question) }
}

fn look_up(changes: u64, gpu: &Gpu, question: &Question) -> Option<Choice> {
    if let Some((product, choice)) = FORCED.get()
        && product == question.product
    {
        return Some(choice);
    }
    let number = gpu.number();
    let find = || {
        with_table(gpu, |table| table.choices.get(question).map(|&choice| Choice { tuned: true, ..choice })).flatten()
    };
    FOUND.with_borrow_mut(|found| found.get((changes, number, *question), find))
}

/// Where the table in use was read.
pub fn source(gpu: &Gpu) -> String {
    with_table(gpu, |table| table.source.clone()).unwrap_or_default()
}

/// The GPU's table, the first time that which the environment names, if that is one for this GPU.
fn with_table<R>(gpu: &Gpu, of: impl FnOnce(&InUse) -> R) -> Option<R> {
    let number = gpu.number();
    if let Some(table) = IN_USE.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|all| all.get(&number))
    {
        return Some(of(table));
    }
    let path = named()?;
    let mut tables = IN_USE.write().unwrap_or_else(PoisonError::into_inner);
    let table = match tables.get_or_insert_default().entry(number) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => {
            // A layer must not fail for a hint: the model is there.
            let table = Table::read(path).and_then(|table| table.check(gpu)).unwrap_or_else(|error| {
                eprintln!("ferrolayer: {VARIABLE} is not used, plans are the model's: {error}");
                InUse::default()
            });
            place.insert(table)
        }
    };
    Some(of(table))
}
