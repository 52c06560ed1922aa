use rayon::prelude::*;

use super::Copy;
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu};
use crate::{Element, Result};

/// Elements that one task copies, about.
const TASK: usize = 16 * 1024;

impl<T: Element> OnCpu for Copy<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (x, y) = (self.x.host()?, self.y.host_mut()?);
        let (&(line, step), outer) = self.order.dims.split_first().unwrap_or((&(1, 1), &[]));
        let lines = TASK.div_ceil(line);
        y.par_chunks_mut(line * lines).enumerate().run(1, |(task, y)| {
            for (number, y) in (task * lines..).zip(y.chunks_mut(line)) {
                let mut rest = number;
                let mut first = 0;
                for (size, stride) in outer {
                    first += rest % size * stride;
                    rest /= size;
                }
                y.iter_mut().zip(x[first..].iter().step_by(step)).for_each(|(y, x)| *y = *x);
            }
        });
        Ok(())
    }
}
