//! Windows that are whole planes, as before a classifier, on the CPU: row-major planes follow each other in memory, whatever their
//! rows, and each is gone over at once.

use rayon::prelude::*;

use super::rows::{TASK, rows_per_task};
use super::window::Windows;
use crate::Real;
use crate::device::convert::{BLOCK, rounding, widened};
use crate::device::tasks::Tasks;

/// Planes that are a window each.
#[derive(Clone, Copy)]
pub(crate) struct Wholes {
    /// Elements of one.
    plane: usize,
}

/// What a plane's inputs are given: all the same, and one of them something else.
pub(crate) struct Gradient<C> {
    pub all: C,
    pub one: Option<(usize, C)>,
}

impl Windows {
    /// The planes, if each is a window and one thread's work.
    pub fn wholes(&self) -> Option<Wholes> {
        let (window, [height, width]) = (&self.window, self.input);
        let whole = window.size == self.input && window.padding == [0; 2] && window.dilation == [1; 2];
        let plane = height.saturating_mul(width);
        (whole && self.pixel() == 1 && plane <= TASK).then_some(Wholes { plane })
    }
}

impl Wholes {
    /// Of each plane of `x` what `f` gives: the output, and what belongs to it besides.
    pub fn forward<T: Real, I: Send>(
        self,
        x: &[T],
        y: &mut [T],
        besides: &mut [I],
        f: impl Fn(&[T::Compute]) -> (T::Compute, I) + Send + Sync,
    ) {
        let together = BLOCK.div_ceil(self.plane);
        let outputs = y.par_chunks_mut(together).zip(besides.par_chunks_mut(together));
        let each = outputs.zip(x.par_chunks(together * self.plane));
        each.run_with(rows_per_task(together * self.plane), Vec::new, |room, ((y, besides), x)| {
            let planes = widened(x, room).chunks_exact(self.plane);
            for ((y, besides), plane) in y.iter_mut().zip(besides).zip(planes) {
                let (output, besides_) = f(plane);
                (*y, *besides) = (T::narrow(output), besides_);
            }
        });
    }

    /// `dx = gradient + beta * dx`, the gradient of each plane being what `f` gives for its output's and what belongs to that
    /// besides. An element that the plane has not is given nothing.
    pub fn backward<T: Real, I: Sync>(
        self,
        dy: &[T],
        besides: &[I],
        dx: &mut [T],
        beta: T::Compute,
        f: impl Fn(T::Compute, &I) -> Gradient<T::Compute> + Send + Sync,
    ) {
        let together = BLOCK.div_ceil(self.plane);
        let outputs = dy.par_chunks(together).zip(besides.par_chunks(together));
        let each = dx.par_chunks_mut(together * self.plane).zip(outputs);
        let room = || (Vec::new(), Vec::new());
        each.run_with(rows_per_task(together * self.plane), room, |(dy_room, dx_room), (dx, (dy, besides))| {
            let gradients = widened(dy, dy_room).iter().zip(besides).map(|(dy, besides)| f(*dy, besides));
            if beta == T::Compute::of(0.0) {
                // Rounded before they are many.
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
        for (dx, Gradient { all, one }) in dx.chunks_exact_mut(self.plane).zip(gradients) {
            dx.fill(all);
            if let Some((at, value)) = one
                && let Some(dx) = dx.get_mut(at)
            {
                *dx = value;
            }
        }
    }
}
