//! What the operators' bodies share: gradients in forward's order or not asked for, and windows.

use ferrolayer::ops::Window;
use ferrolayer_torch::{Arguments, Result};
pub use ferrolayer_torch::{Wanted, ordered_like};

/// `int kh, int kw, int sh, int sw, int ph, int pw`, and where it is asked for `int dh, int dw`, and `bool ceil_mode`.
pub fn window(arguments: &mut Arguments<'_>, dilated: bool) -> Result<Window> {
    let mut pair = || Ok::<_, ferrolayer_torch::Error>([arguments.size()?, arguments.size()?]);
    let (size, stride, padding) = (pair()?, pair()?, pair()?);
    let dilation = if dilated { pair()? } else { [1, 1] };
    let ceil_mode = arguments.bool()?;
    Ok(Window { size, stride, padding, dilation, ceil_mode })
}
