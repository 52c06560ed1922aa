//! Launches, with the attributes that `cuLaunchKernel` has no room for.

use std::ffi::c_void;
use std::ptr::null_mut;

use cust::sys::CUfunction;

use crate::codes;
use crate::context::Current;
use crate::driver;
use crate::error::DriverError;
use crate::stream::Stream;

/// What a launch may ask for beyond its dimensions. The default asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchAttributes {
    /// The shape of a cluster, in blocks, on compute capability 9.0 and later. Not for kernels whose PTX fixes it
    /// (`.reqnctapercluster`): those are launched in clusters anyway.
    pub cluster: Option<[u32; 3]>,
    /// Programmatic stream serialisation: the kernel may start before its predecessor in the stream has ended. It must
    /// then wait (`griddepcontrol.wait`) before it touches what the predecessor writes. Drivers that cannot do this
    /// (before CUDA 11.8) start it afterwards, as usual.
    pub programmatic_serialization: bool,
}

impl LaunchAttributes {
    /// In the driver's form, with how many there are.
    pub(crate) fn to_raw(self) -> ([driver::LaunchAttribute; 2], u32) {
        const CLUSTER_DIMENSION: u32 = 4;
        const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

        let mut raw = [driver::LaunchAttribute { id: 0, padding: 0, value: [0; 16] }; 2];
        let mut count = 0;
        if let Some(cluster) = self.cluster {
            raw[count].id = CLUSTER_DIMENSION;
            raw[count].value[..3].copy_from_slice(&cluster);
            count += 1;
        }
        if self.programmatic_serialization {
            raw[count].id = PROGRAMMATIC_STREAM_SERIALIZATION;
            raw[count].value[0] = 1;
            count += 1;
        }
        (raw, count as u32)
    }
}

/// Queues a kernel in `stream`: `grid` blocks of `block` threads with `shared_bytes` of dynamic shared memory each, and
/// pointers to its arguments in `params`, in the kernel's order.
///
/// The driver copies the arguments before this returns. While `stream` captures, the launch is recorded.
///
/// # Safety
/// - `function` is a kernel loaded in the stream's context, and its module stays loaded until the work is done.
/// - `params` has one pointer for each of the kernel's parameters, to a value of the parameter's size and alignment.
///   Nothing here can check that: cust's `launch!` and the driver do not either.
/// - What the kernel does with its arguments is sound with these dimensions: device memory that it reads or writes is
///   allocated, and not written or read by other work at the same time, until the work is done. For a captured launch
///   this holds for every replay of the graph.
pub unsafe fn launch(
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: &Stream,
    params: &mut [*mut c_void],
    attributes: LaunchAttributes,
) -> Result<(), DriverError> {
    let _current = Current::enter(stream.context())?;
    let plain = |params: &mut [*mut c_void]| {
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (grid, block);
        // SAFETY: passed on to the caller; the stream is alive.
        unsafe {
            driver::cuLaunchKernel(
                function,
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                shared_bytes,
                stream.raw(),
                params.as_mut_ptr(),
                null_mut(),
            )
        }
    };
    if attributes == LaunchAttributes::default() {
        return plain(params);
    }
    let (raw, attribute_count) = attributes.to_raw();
    let config = driver::LaunchConfig {
        grid,
        block,
        shared_bytes,
        stream: stream.raw(),
        attributes: raw.as_ptr(),
        attribute_count,
    };
    // SAFETY: passed on to the caller; the attributes live until the call returns; the stream is alive.
    match unsafe { driver::cuLaunchKernelEx(&config, function, params.as_mut_ptr(), null_mut()) } {
        // An older driver. Without a cluster the kernel means the same when it starts in order.
        Err(error)
            if error.code == codes::NOT_FOUND && attributes.cluster.is_none() && !driver::has(c"cuLaunchKernelEx") =>
        {
            plain(params)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_the_drivers() {
        let (raw, count) = LaunchAttributes { cluster: Some([2, 1, 4]), programmatic_serialization: true }.to_raw();
        assert_eq!(count, 2);
        assert_eq!((raw[0].id, &raw[0].value[..4]), (4, &[2, 1, 4, 0][..]));
        assert_eq!((raw[1].id, &raw[1].value[..2]), (6, &[1, 0][..]));
        let (raw, count) = LaunchAttributes { programmatic_serialization: true, ..Default::default() }.to_raw();
        assert_eq!((count, raw[0].id), (1, 6));
        assert_eq!(LaunchAttributes::default().to_raw().1, 0);
    }
}
