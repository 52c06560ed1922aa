//! Planes that are gone over at once, on the CPU: small ones, and those that are a window each, as before a classifier. Row-major
//! planes follow each other in memory, and several are one thread's work.

use rayon::prelude::*;

use super::rows::{TASK, rows_per_task};
use super::window::Windows;
use crate::Real;
use crate::device::convert::{BLOCK, rounding, widened};
use crate::device::tasks::Tasks;

/// Elements of a plane up to which loops over its lines take longer than going from window to window.
const SMALL: usize = 64;
/// Elements of planes whose windows have few in all, so that rows cost more than windows, and these.
const ROOMY: usize = 1024;
const FEW: usize = 1024;

/// Elements of a plane that is a window up to which it is one thread's work: of larger ones there may be too few for all threads.
const LARGE: usize = 16 * TASK;

/// What each plane has.
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    inputs: usize,
    outputs: usize,
}

/// What a plane's inputs are given: all the same, and one of them something else.
pub(crate) struct Gradient<C> {
    pub all: C,
    pub one: Option<(usize, C)>,
}

impl Windows {
    /// The planes, if they are small or their windows have few elements in all, of one element a pixel.
    pub fn small_planes(&self) -> Option<Planes> {
        let positions = self.window.size[0].saturating_mul(self.window.size[1]);
        // Windows one apart in a row are added up, or compared, several at once.
        let apart = self.window.stride[1] > 1;
        let few = |planes: &Planes| apart && planes.inputs <= ROOMY && planes.outputs.saturating_mul(positions) <= FEW;
        self.planes().filter(|planes| planes.inputs <= SMALL || few(planes))
    }

    /// The planes, if each is a window and one thread's work.
    pub fn whole_planes(&self) -> Option<Planes> {
        let window = &self.window;
        let whole = window.size == self.input && window.padding == [0; 2] && window.dilation == [1; 2];
        self.planes().filter(|planes| whole && planes.inputs <= LARGE)
    }

    fn planes(&self) -> Option<Planes> {
        let [inputs, outputs] = [self.input, self.output].map(|[height, width]| height.saturating_mul(width));
        (self.pixel() == 1).then_some(Planes { inputs, outputs })
    }
}

impl Planes {
    /// Calls `f` with each plane of `x`, its outputs, which it has to write all, and what belongs to these besides.
    pub fn forward<T: Real, I: Send>(
        self,
        x: &[T],
        y: &mut [T],
        besides: &mut [I],
        f: impl Fn(&[T::Compute], &mut [T::Compute], &mut [I]) + Send + Sync,
    ) {
        let Self { inputs, outputs } = self;
        let together = BLOCK.div_ceil(inputs);
        let results = y.par_chunks_mut(together * outputs).zip(besides.par_chunks_mut(together * outputs));
        let each = results.zip(x.par_chunks(together * inputs));
        let room = || (Vec::new(), Vec::new());
        each.run_with(rows_per_task(together * inputs), room, |(x_room, y_room), ((y, besides), x)| {
            let planes = widened(x, x_room).chunks_exact(inputs);
            rounding(y, T::Compute::of(0.0), y_room, |y| {
                let results = y.chunks_exact_mut(outputs).zip(besides.chunks_exact_mut(outputs));
                results.zip(planes).for_each(|((y, besides), plane)| f(plane, y, besides));
            });
        });
    }

    /// `dx = gradient + beta * dx`: calls `f` with the gradients of each plane's outputs and with memory for those of its inputs, which
    /// it has to write all.
    pub fn backward<T: Real>(
        self,
        dy: &[T],
        dx: &mut [T],
        beta: T::Compute,
        f: impl Fn(&[T::Compute], &mut [T::Compute]) + Send + Sync,
    ) {
        let Self { inputs, outputs } = self;
        let together = BLOCK.div_ceil(inputs);
        let each = dx.par_chunks_mut(together * inputs).zip(dy.par_chunks(together * outputs));
        let room = || (Vec::new(), Vec::new());
        each.run_with(rows_per_task(together * inputs), room, |(dy_room, dx_room), (dx, dy)| {
            let dy = widened(dy, dy_room).chunks_exact(outputs);
            rounding(dx, beta, dx_room, |dx| {
                dx.chunks_exact_mut(inputs).zip(dy).for_each(|(dx, dy)| f(dy, dx));
            });
        });
    }

    /// As [`backward`](Self::backward), of planes with one output each, by what `f` gives for the output's gradient and what belongs to it
    /// besides, which is rounded before it is many. An element that the plane has not is given nothing.
    pub fn fill<T: Real, I: Sync>(
        self,
        dy: &[T],
        besides: &[I],
        dx: &mut [T],
        beta: T::Compute,
        f: impl Fn(T::Compute, &I) -> Gradient<T::Compute> + Send + Sync,
    ) {
        let together = BLOCK.div_ceil(self.inputs);
        let outputs = dy.par_chunks(together).zip(besides.par_chunks(together));
        let each = dx.par_chunks_mut(together * self.inputs).zip(outputs);
        let room = || (Vec::new(), Vec::new());
        each.run_with(rows_per_task(together * self.inputs), room, |(dy_room, dx_room), (dx, (dy, besides))| {
            let gradients = widened(dy, dy_room).iter().zip(besides).map(|(dy, besides)| f(*dy, besides));
            if beta == T::Compute::of(0.0) {
                self.spread(
                    dx,
                    gradients.map(|Gradient { all, one }| Gradient {
                        all: T::narrow(all),
                        one: one.map(|(at, value)| (at, T::narrow(value))),
                    }),
                );
            } else {
                rounding(dx, beta, dx_room, |dx| self.spread(dx, gradients));
            }
        });
    }

    fn spread<E: Copy>(self, dx: &mut [E], gradients: impl Iterator<Item = Gradient<E>>) {
        for (dx, Gradient { all, one }) in dx.chunks_exact_mut(self.inputs).zip(gradients) {
            dx.fill(all);
            if let Some((at, value)) = one
                && let Some(dx) = dx.get_mut(at)
            {
                *dx = value;
            }
        }
    }
}
