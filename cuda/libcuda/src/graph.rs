//! Graphs: work recorded once and replayed with one call, and kernels in them given new arguments.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cust::context::Context;
use cust::sys::{CUfunction, CUgraph, CUgraphExec, CUgraphNode};

use crate::codes;
use crate::context::Current;
use crate::driver;
use crate::error::DriverError;
use crate::stream::Stream;

/// Recorded work, from [`Stream::end_capture`].
#[derive(Debug)]
pub struct Graph {
    raw: CUgraph,
    context: Arc<Context>,
}

// SAFETY: a graph may be used from any thread by one at a time, and what takes `&self` only reads it.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    /// # Safety
    /// `raw` is a graph that nobody else has, of this context.
    pub(crate) unsafe fn from_raw(raw: CUgraph, context: &Arc<Context>) -> Self {
        Self { raw, context: Arc::clone(context) }
    }

    /// The graph made ready to run.
    pub fn instantiate(self) -> Result<GraphExec, DriverError> {
        let kernels = self.kernels()?;
        let mut raw = null_mut();
        {
            let _current = Current::enter(&self.context)?;
            // SAFETY: the graph is alive; the result may be written; 0 asks for nothing in particular.
            unsafe { driver::cuGraphInstantiateWithFlags(&mut raw, self.raw, 0) }?;
        }
        Ok(GraphExec { raw, kernels, graph: self })
    }

    /// The kernel nodes, each after those that it depends on, and otherwise in the driver's order: for work recorded
    /// from one stream that is the order of the launches.
    fn kernels(&self) -> Result<Vec<(CUgraphNode, KernelNode)>, DriverError> {
        let nodes = self.nodes()?;
        let position = |node| nodes.iter().position(|&other| other == node);
        let mut waits_for = vec![0; nodes.len()];
        let mut followers = vec![Vec::new(); nodes.len()];
        for (from, to) in self.edges()? {
            if let (Some(from), Some(to)) = (position(from), position(to)) {
                followers[from].push(to);
                waits_for[to] += 1;
            }
        }
        let mut ready: std::collections::BTreeSet<usize> = (0..nodes.len()).filter(|&at| waits_for[at] == 0).collect();
        let mut kernels = Vec::new();
        while let Some(at) = ready.pop_first() {
            if let Some(kernel) = kernel_node(nodes[at])? {
                kernels.push((nodes[at], kernel));
            }
            for &follower in &followers[at] {
                waits_for[follower] -= 1;
                if waits_for[follower] == 0 {
                    ready.insert(follower);
                }
            }
        }
        Ok(kernels)
    }

    fn nodes(&self) -> Result<Vec<CUgraphNode>, DriverError> {
        let mut count = 0;
        // SAFETY: the graph is alive; without an array the call only counts.
        unsafe { driver::cuGraphGetNodes(self.raw, null_mut(), &mut count) }?;
        let mut nodes = vec![null_mut(); count];
        if count > 0 {
            // SAFETY: the array is as long as said.
            unsafe { driver::cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &mut count) }?;
        }
        Ok(nodes)
    }

    fn edges(&self) -> Result<Vec<(CUgraphNode, CUgraphNode)>, DriverError> {
        // Programmatic launches leave edges that the older call refuses to list.
        let newer = driver::has(c"cuGraphGetEdges_v2");
        let list = |from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut [u8; 8], count: &mut usize| {
            // SAFETY: the graph is alive; the arrays are null, which only counts, or as long as said.
            unsafe {
                if newer {
                    driver::cuGraphGetEdges_v2(self.raw, from, to, data, count)
                } else {
                    driver::cuGraphGetEdges(self.raw, from, to, count)
                }
            }
        };
        let mut count = 0;
        list(null_mut(), null_mut(), null_mut(), &mut count)?;
        let (mut from, mut to, mut data) = (vec![null_mut(); count], vec![null_mut(); count], vec![[0; 8]; count]);
        if count > 0 {
            list(from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)?;
        }
        Ok(from.into_iter().zip(to).collect())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // Nothing can be done about a failure: the driver is gone, or reports what the next checked call gives.
        // SAFETY: owned and destroyed once.
        let _ = unsafe { driver::cuGraphDestroy(self.raw) };
    }
}

/// A kernel in a graph, as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelNode {
    /// The kernel's handle: compare with [`Function::raw`](crate::Function::raw).
    pub function: CUfunction,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

// SAFETY: the handle is only compared and passed on.
unsafe impl Send for KernelNode {}
// SAFETY: as above.
unsafe impl Sync for KernelNode {}

const NO_PARAMETERS: driver::KernelNodeParams = driver::KernelNodeParams {
    function: null_mut(),
    grid: [0; 3],
    block: [0; 3],
    shared_bytes: 0,
    parameters: null_mut(),
    extra: null_mut(),
    kernel: null_mut(),
    context: null_mut(),
};

/// What the node runs, if it is a kernel.
fn kernel_node(node: CUgraphNode) -> Result<Option<KernelNode>, DriverError> {
    const KERNEL: c_int = 0;
    let mut kind = 0;
    // SAFETY: a node of a graph that is alive; the result may be written.
    unsafe { driver::cuGraphNodeGetType(node, &mut kind) }?;
    if kind != KERNEL {
        return Ok(None);
    }
    let mut parameters = NO_PARAMETERS;
    // SAFETY: a kernel node; the result is as large as the newer call's, of which the older writes the first part.
    unsafe {
        if driver::has(c"cuGraphKernelNodeGetParams_v2") {
            driver::cuGraphKernelNodeGetParams_v2(node, &mut parameters)
        } else {
            driver::cuGraphKernelNodeGetParams(node, &mut parameters)
        }
    }?;
    Ok(Some(KernelNode {
        function: parameters.function,
        grid: parameters.grid,
        block: parameters.block,
        shared_bytes: parameters.shared_bytes,
    }))
}

/// A graph that is ready to run.
///
/// A replay does what was recorded: what [`launch`](crate::launch()) requires of each recorded launch holds for each
/// replay.
#[derive(Debug)]
pub struct GraphExec {
    raw: CUgraphExec,
    kernels: Vec<(CUgraphNode, KernelNode)>,
    // The nodes are its, and an update names them.
    graph: Graph,
}

// SAFETY: an executable graph may be used from any thread by one at a time, and what changes it takes `&mut self`.
unsafe impl Send for GraphExec {}
// SAFETY: `&self` gives access only to what was read when the graph was made.
unsafe impl Sync for GraphExec {}

impl GraphExec {
    /// Queues the work in `stream`. Two replays of one graph run one after the other, whatever their streams.
    pub fn launch(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let _current = Current::enter(stream.context())?;
        // SAFETY: both are alive; the recorded launches were made under `launch`'s requirements.
        unsafe { driver::cuGraphLaunch(self.raw, stream.raw()) }
    }

    /// Sends the graph to the GPU ahead of time, so that the first launch is as quick as the later ones.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let _current = Current::enter(stream.context())?;
        // SAFETY: both are alive.
        unsafe { driver::cuGraphUpload(self.raw, stream.raw()) }
    }

    /// The recorded kernels, each after those that it depends on: for work recorded from one stream, in the order of
    /// the launches.
    pub fn kernels(&self) -> impl ExactSizeIterator<Item = KernelNode> {
        self.kernels.iter().map(|(_, kernel)| *kernel)
    }

    /// Gives kernel number `index` of [`kernels`](Self::kernels) new dimensions and arguments, for the replays that
    /// follow. Replays that are queued already keep the old ones. The driver copies the arguments.
    ///
    /// # Safety
    /// As for [`launch`](crate::launch()), for every replay from now on; `function` is the recorded one.
    pub unsafe fn set_kernel(
        &mut self,
        index: usize,
        function: CUfunction,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        params: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        let Some((node, kernel)) = self.kernels.get_mut(index) else {
            return Err(DriverError::new("cuGraphExecKernelNodeSetParams", codes::INVALID_VALUE));
        };
        let _current = Current::enter(&self.graph.context)?;
        let parameters = driver::KernelNodeParams {
            function,
            grid,
            block,
            shared_bytes,
            parameters: params.as_mut_ptr(),
            ..NO_PARAMETERS
        };
        // SAFETY: passed on to the caller; the node is of the graph that this was made from, which is kept.
        unsafe {
            if driver::has(c"cuGraphExecKernelNodeSetParams_v2") {
                driver::cuGraphExecKernelNodeSetParams_v2(self.raw, *node, &parameters)
            } else {
                driver::cuGraphExecKernelNodeSetParams(self.raw, *node, &parameters)
            }
        }?;
        *kernel = KernelNode { function, grid, block, shared_bytes };
        Ok(())
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // As for the graph; replays under way finish.
        // SAFETY: owned and destroyed once.
        let _ = unsafe { driver::cuGraphExecDestroy(self.raw) };
    }
}
