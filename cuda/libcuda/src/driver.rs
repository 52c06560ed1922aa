//! The driver's functions that this crate calls itself, with the signatures of `cuda.h` (CUDA 13.5; the `_v2` names are
//! the ABI's).
//!
//! Not cust's declarations: those return an enum that newer drivers' codes do not fit into, and lack what came after
//! CUDA 11.4. Each function returns its typed error, also where the driver is absent or too old to have it.
#![allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's names and parameters")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cust::sys::{CUcontext, CUdevice, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmemoryPool, CUstream};

use crate::error::{DriverError, check};
use crate::library;

macro_rules! calls {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {$(
        /// # Safety
        #[doc = concat!("The requirements of `", stringify!($name), "` in the CUDA driver API's reference.")]
        $(#[$meta])*
        pub(crate) unsafe fn $name($($argument: $type),*) -> Result<(), DriverError> {
            type Entry = unsafe extern "C" fn($($type),*) -> u32;
            static ENTRY: OnceLock<Option<Entry>> = OnceLock::new();
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            let entry = ENTRY.get_or_init(|| {
                library::find(NAME).map(|address| {
                    // SAFETY: the driver's function of this name has this signature.
                    unsafe { std::mem::transmute::<*mut (), Entry>(address) }
                })
            });
            match entry {
                // SAFETY: passed on to the caller.
                Some(entry) => check(stringify!($name), unsafe { entry($($argument),*) }),
                None => Err(DriverError::new(stringify!($name), library::unavailable(NAME))),
            }
        }
    )*};
}

calls! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);

    fn cuCtxGetCurrent(context: *mut CUcontext);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxPushCurrent_v2(context: CUcontext);
    fn cuCtxPopCurrent_v2(context: *mut CUcontext);
    fn cuCtxGetDevice(device: *mut CUdevice);

    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_int);
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    fn cuStreamIsCapturing(stream: CUstream, status: *mut c_int);

    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventQuery(event: CUevent);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

    fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    fn cuLaunchKernelEx(
        config: *const LaunchConfig,
        function: CUfunction,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    /// Since CUDA 12.4.
    fn cuFuncLoad(function: CUfunction);
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: CUfunction);
    fn cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        block_size: c_int,
        shared_bytes: usize,
    );
    /// Since CUDA 11.8.
    fn cuOccupancyMaxActiveClusters(clusters: *mut c_int, function: CUfunction, config: *const LaunchConfig);

    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: CUstream);
    fn cuMemFreeAsync(address: u64, stream: CUstream);
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: CUstream);
    fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: CUstream);
    fn cuMemsetD32Async(address: u64, value: c_uint, count: usize, stream: CUstream);
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize);
    fn cuMemFreeHost(address: *mut c_void);

    fn cuTensorMapEncodeTiled(
        map: *mut c_void,
        data_type: c_int,
        rank: u32,
        address: *mut c_void,
        dims: *const u64,
        strides: *const u64,
        box_dims: *const u32,
        element_strides: *const u32,
        interleave: c_int,
        swizzle: c_int,
        l2_promotion: c_int,
        out_of_bounds: c_int,
    );

    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    fn cuGraphDestroy(graph: CUgraph);
    fn cuGraphExecDestroy(exec: CUgraphExec);
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    fn cuGraphUpload(exec: CUgraphExec, stream: CUstream);
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    fn cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    /// Since CUDA 12.3; the older one refuses graphs with programmatic edges.
    fn cuGraphGetEdges_v2(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        data: *mut [u8; 8],
        count: *mut usize,
    );
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_int);
    fn cuGraphKernelNodeGetParams(node: CUgraphNode, parameters: *mut KernelNodeParams);
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, parameters: *mut KernelNodeParams);
    fn cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, parameters: *const KernelNodeParams);
    fn cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, parameters: *const KernelNodeParams);
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: CUstream,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: c_uint,
}

/// `CUlaunchAttribute`: its number, and a union of 64 bytes of which we write the first words.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct LaunchAttribute {
    pub id: c_uint,
    pub padding: c_uint,
    pub value: [c_uint; 16],
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`. The first version is the same without the last two fields, so that one struct serves
/// both.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelNodeParams {
    pub function: CUfunction,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub parameters: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kernel: *mut c_void,
    pub context: CUcontext,
}

/// Whether the driver has this function: for calls that have an older form.
pub(crate) fn has(name: &CStr) -> bool {
    library::find(name).is_some()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The sizes and offsets that a C compiler gives for `cuda.h`.
    #[test]
    fn layouts_are_cuda_hs() {
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(offset_of!(LaunchConfig, stream), 32);
        assert_eq!(offset_of!(LaunchConfig, attributes), 40);
        assert_eq!(offset_of!(LaunchConfig, attribute_count), 48);
        assert_eq!(size_of::<LaunchAttribute>(), 72);
        assert_eq!(offset_of!(LaunchAttribute, value), 8);
        assert_eq!(size_of::<KernelNodeParams>(), 72);
        assert_eq!(offset_of!(KernelNodeParams, parameters), 40);
        assert_eq!(offset_of!(KernelNodeParams, kernel), 56);
    }
}
