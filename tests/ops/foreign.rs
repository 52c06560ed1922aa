//! Tensors of memory that is not this library's: taken as it is, given back as it is, and asked for from an allocator.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuda_std::launch::DeviceMemory;
use ferrolayer::device::{Allocator, Cpu, Foreign, Gpu, GpuBuffer, GpuOptions, Request};
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::ops::{Window, avg_pool, dense, gaussian_pool, max_pool, prelu, relu, stochastic_pool};
use ferrolayer::testing::normal;
use ferrolayer::{DType, Device, Element, Error, Layout, Out, Result, Tensor};

use crate::support::{Outcome, Trial, assert_error, on_cpu, on_each_gpu};

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("foreign::gives_the_same_bits", || gives_the_same_bits(&Device::cpu())),
        on_cpu("foreign::writes_in_place_and_copies_what_is_shared", || in_place_or_copied(&Device::cpu())),
        on_cpu("foreign::outputs_are_the_allocator_s", || outputs_are_the_allocators(&Device::cpu())),
        on_cpu("foreign::drops_once", || drops_once(&Device::cpu())),
        on_cpu("foreign::an_allocator_s_error_is_the_op_s", || errors_pass_through(&Device::cpu())),
        on_cpu("foreign::rejects", rejects),
        on_cpu("foreign::devices_are_equal_whatever_their_allocator", devices_are_equal),
    ];
    tests.extend(on_each_gpu("foreign::gives_the_same_bits", gives_the_same_bits));
    tests.extend(on_each_gpu("foreign::writes_in_place_and_copies_what_is_shared", in_place_or_copied));
    tests.extend(on_each_gpu("foreign::outputs_are_the_allocator_s", outputs_are_the_allocators));
    tests.extend(on_each_gpu("foreign::drops_once", drops_once));
    tests.extend(on_each_gpu("foreign::an_allocator_s_error_is_the_op_s", errors_pass_through));
    tests.extend(on_each_gpu("foreign::rejects_what_kernels_cannot_load", rejects_on));
    tests
}

/// A request, as a test compares it.
type Asked = (DType, Vec<usize>, Vec<usize>);

/// Lends memory of the device that it stands beside, and keeps it to its own end.
struct Lender {
    /// Where the memory is, if not on the CPU.
    gpu: Option<Gpu>,
    memory: Mutex<Vec<Memory>>,
    asked: Mutex<Vec<Asked>>,
    returned: Arc<AtomicUsize>,
    /// Lends no more than so many pieces.
    limit: usize,
}

enum Memory {
    Cpu(Vec<u128>),
    Gpu(GpuBuffer<u8>),
}

/// The owner of what was lent.
struct Lent {
    number: usize,
    returned: Arc<AtomicUsize>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.returned.fetch_add(1, Ordering::Relaxed);
    }
}

impl Lender {
    /// Of memory as `device` has it, of a stream of its own.
    fn beside(device: &Device, limit: usize) -> Result<Arc<Self>> {
        let gpu = match device {
            Device::Gpu(gpu) if gpu.is_emulated() => Some(Gpu::emulated()),
            Device::Gpu(_) => Some(Gpu::new(0)?),
            Device::Cpu(_) | Device::Shapes => None,
        };
        let (memory, asked, returned) = Default::default();
        Ok(Arc::new(Self { gpu, memory, asked, returned, limit }))
    }

    /// A device whose memory it lends.
    fn device(self: &Arc<Self>) -> Result<Device> {
        let allocator: Arc<dyn Allocator> = self.clone();
        Ok(match &self.gpu {
            None => Device::Cpu(Cpu::with_allocator(allocator)),
            Some(gpu) if gpu.is_emulated() => {
                Device::Gpu(GpuOptions::default().poison().allocator(allocator).emulated())
            }
            Some(_) => Device::Gpu(GpuOptions::default().poison().allocator(allocator).open(0)?),
        })
    }

    fn lend(&self, bytes: usize) -> Result<Foreign> {
        let mut memory = self.memory.lock().unwrap();
        if memory.len() == self.limit {
            return Err(Error::Allocator("there is no more to lend".into()));
        }
        let mut piece = match &self.gpu {
            // Every bit set, as poison is.
            None => Memory::Cpu(vec![u128::MAX; bytes.div_ceil(16)]),
            Some(gpu) => {
                let piece = gpu.allocate(bytes)?;
                gpu.synchronize()?;
                Memory::Gpu(piece)
            }
        };
        let address = match &mut piece {
            Memory::Cpu(piece) => piece.as_mut_ptr().expose_provenance() as u64,
            Memory::Gpu(piece) => DeviceMemory::address(piece),
        };
        let owner = Box::new(Lent { number: memory.len(), returned: self.returned.clone() });
        memory.push(piece);
        Ok(Foreign { address, owner })
    }

    fn lent(&self) -> usize {
        self.memory.lock().unwrap().len()
    }

    fn returned(&self) -> usize {
        self.returned.load(Ordering::Relaxed)
    }

    /// A tensor of lent memory that holds what `tensor` does, in the same order.
    fn copy<T: Element>(&self, device: &Device, tensor: &Tensor<T>) -> Result<Tensor<T>> {
        let memory = self.lend(tensor.len() * size_of::<T>())?;
        // SAFETY: it was lent for as many elements, once, and lasts as long as the lender, which outlives the test's work.
        let mut copy = unsafe { Tensor::from_foreign(device, tensor.shape(), tensor.strides(), memory)? };
        copy.copy_from_slice(&tensor.to_vec()?)?;
        Ok(copy)
    }
}

// SAFETY: each piece is as large as asked for, aligned to 16 bytes, lent once, and there until the lender goes, which its
// device keeps.
unsafe impl Allocator for Lender {
    fn allocate(&self, request: &Request<'_>) -> Result<Foreign> {
        self.asked.lock().unwrap().push((request.dtype, request.shape.to_vec(), request.strides.to_vec()));
        self.lend(request.bytes())
    }
}

/// Which piece a tensor's memory is, if it is lent and the tensor's alone.
fn number<T: Element>(tensor: Tensor<T>) -> Option<usize> {
    Some(tensor.into_foreign()?.owner.downcast::<Lent>().expect("a lender's").number)
}

/// The bits of what passes of all kinds give from tensors that `put` puts somewhere.
fn results(put: &dyn Fn(Tensor<f32>) -> Result<Tensor<f32>>) -> Result<Vec<(&'static str, Vec<u64>)>> {
    let mut all = Vec::new();
    let mut keep = |name, tensor: &Tensor<f32>| -> Result<()> {
        all.push((name, tensor.to_vec()?.into_iter().map(Element::bits).collect()));
        Ok(())
    };
    let some = |seed, shape: &[usize]| put(normal(&Device::cpu(), seed, shape)?);
    let window = Window::new([2, 3]).stride([1, 2]);
    for layout in [Layout::RowMajor, Layout::ChannelsLast] {
        let image = |seed, shape: &[usize]| put(normal::<f32>(&Device::cpu(), seed, shape)?.to_layout(layout)?);
        let x = image(1, &[2, 3, 4, 5])?;
        let alpha = some(2, &[3])?;
        let y = prelu::forward(&x, &alpha)?;
        keep("prelu", &y)?;
        let (mut dx, mut dalpha) = (x.empty_like()?, alpha.empty_like()?);
        prelu::backward(&x, &alpha, &y, Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)))?;
        keep("prelu dx", &dx)?;
        keep("prelu dalpha", &dalpha)?;
        let pooled = max_pool::forward(&x, &window)?;
        keep("max_pool", &pooled.y)?;
        max_pool::backward(&pooled.y, &pooled.indices, &window, x.shape(), Out::write(&mut dx))?;
        keep("max_pool dx", &dx)?;
        keep("avg_pool", &avg_pool::forward(&x, &window, &avg_pool::Divisor::default())?)?;
        let mut random = stochastic_pool::Random::new(x.device(), 7)?;
        keep("stochastic_pool", &stochastic_pool::forward(&x, &window, &mut random)?.y)?;
        let mean = put(Tensor::from_slice(&Device::cpu(), &[1, 2, 2], &[0.3, -0.4, -0.1, 0.6])?)?;
        let var = put(Tensor::from_slice(&Device::cpu(), &[1, 2, 2], &[0.5, 1.5, 0.8, 0.4])?)?;
        let y = gaussian_pool::forward(&x, &mean, &var, &window, Normalize::Window)?;
        keep("gaussian_pool", &y)?;
        let (mut dmean, mut dvar) = (mean.empty_like()?, var.empty_like()?);
        let (to_mean, to_var) = (Some(Out::write(&mut dmean)), Some(Out::write(&mut dvar)));
        let dx = Some(Out::write(&mut dx));
        gaussian_pool::backward(&x, &mean, &var, &window, Normalize::Window, &y, dx, to_mean, to_var)?;
        keep("gaussian_pool dmean", &dmean)?;
        keep("gaussian_pool dvar", &dvar)?;
    }
    let (x, w, b) = (some(3, &[5, 7])?, some(4, &[6, 7])?, some(5, &[6])?);
    keep("dense", &dense::forward(&x, &w, Some(&b), dense::Activation::Relu)?.y)?;
    Ok(all)
}

fn gives_the_same_bits(device: &Device) -> Outcome {
    let expected = results(&|tensor| tensor.to(device))?;
    let lender = Lender::beside(device, usize::MAX)?;
    let lending = lender.device()?;
    let got = results(&|tensor| lender.copy(&lending, &tensor))?;
    assert_eq!(got, expected);
    Ok(())
}

/// What the allocator is asked for is what the tensors are, and what they become.
fn outputs_are_the_allocators(device: &Device) -> Outcome {
    let lender = Lender::beside(device, usize::MAX)?;
    let device = lender.device()?;
    let x = lender.copy(&device, &normal::<f32>(&Device::cpu(), 1, &[2, 3, 4, 5])?.to_layout(Layout::ChannelsLast)?)?;
    let y = relu::forward(&x)?;
    let window = Window::new([2, 2]);
    let pooled = max_pool::forward(&x, &window)?;
    let max_pool::Indices::U8(indices) = pooled.indices else { panic!("a small window") };
    let nothing = Tensor::<f32>::empty(&device, &[0, 3])?;
    let filled = Tensor::full(&device, &[2], 3u64)?;
    let last = [60, 1, 15, 3];
    let expected: Vec<Asked> = vec![
        (DType::F32, vec![2, 3, 4, 5], last.to_vec()),
        (DType::F32, vec![2, 3, 2, 2], vec![12, 1, 6, 3]),
        (DType::U8, vec![2, 3, 2, 2], vec![12, 1, 6, 3]),
        (DType::F32, vec![0, 3], vec![3, 1]),
        (DType::U64, vec![2], vec![1]),
    ];
    assert_eq!(*lender.asked.lock().unwrap(), expected);
    assert_eq!(filled.to_vec()?, [3, 3]);
    assert_eq!((number(x), number(y), number(pooled.y), number(indices)), (Some(0), Some(1), Some(2), Some(3)));
    assert_eq!((number(nothing), number(filled)), (Some(4), Some(5)));
    Ok(())
}

fn in_place_or_copied(device: &Device) -> Outcome {
    let lender = Lender::beside(device, usize::MAX)?;
    let own = Tensor::from_slice(&Device::cpu(), &[3], &[-1.0f32, 2.0, -3.0])?;
    let mut x = lender.copy(device, &own)?;
    relu::forward_in_place(&mut x)?;
    assert_eq!((x.to_vec()?, number(x)), (vec![0.0, 2.0, 0.0], Some(0)));
    // The clone keeps the memory, and what it holds; what is written has memory of the device.
    let kept = lender.copy(device, &own)?;
    let mut x = kept.clone();
    relu::forward_in_place(&mut x)?;
    assert_eq!((x.to_vec()?, number(x)), (vec![0.0, 2.0, 0.0], None));
    assert_eq!((kept.to_vec()?, number(kept)), (own.to_vec()?, Some(1)));
    // With an allocator that is the allocator's.
    let device = lender.device()?;
    let kept = lender.copy(&device, &own)?;
    let mut x = kept.clone();
    relu::forward_in_place(&mut x)?;
    assert_eq!((x.to_vec()?, number(x), number(kept)), (vec![0.0, 2.0, 0.0], Some(3), Some(2)));
    Ok(())
}

fn drops_once(device: &Device) -> Outcome {
    let lender = Lender::beside(device, usize::MAX)?;
    let device = lender.device()?;
    let x = lender.copy(&device, &normal::<f32>(&Device::cpu(), 1, &[2, 3, 4, 4])?)?;
    let view = x.clone().permute(&[0, 2, 3, 1])?;
    drop(x);
    assert_eq!(lender.returned(), 0);
    // One that is shared is nobody's to give back; the other then is its only owner.
    assert!(view.clone().into_foreign().is_none());
    let memory = view.into_foreign().expect("lent");
    assert_eq!(lender.returned(), 0);
    drop(memory);
    assert_eq!(lender.returned(), 1);
    // A pass's own memory goes when the pass is queued.
    results(&|tensor| lender.copy(&device, &tensor))?;
    assert!(lender.lent() > 20);
    assert_eq!(lender.returned(), lender.lent());
    // What is not taken goes at once.
    let memory = lender.lend(8)?;
    // SAFETY: nothing is read.
    assert!(unsafe { Tensor::<f32>::from_foreign(&device, &[2], &[2], memory) }.is_err());
    let memory = lender.lend(8)?;
    // SAFETY: there is nothing to read.
    drop(unsafe { Tensor::<f32>::from_foreign(&Device::Shapes, &[2], &[1], memory)? });
    assert_eq!(lender.returned(), lender.lent());
    Ok(())
}

fn errors_pass_through(device: &Device) -> Outcome {
    let lender = Lender::beside(device, 2)?;
    let device = lender.device()?;
    let x = lender.copy(&device, &normal::<f32>(&Device::cpu(), 1, &[2, 3])?)?;
    let y = relu::forward(&x)?;
    let said = "no memory from the allocator: there is no more to lend";
    assert_error(relu::forward(&x), said)?;
    assert_error(Tensor::full(&device, &[1], 1.0f32), said)?;
    // Nothing was changed.
    let mut shared = x.clone();
    assert_error(relu::forward_in_place(&mut shared), said)?;
    assert_eq!((shared.to_vec()?, lender.returned()), (x.to_vec()?, 0));
    drop((x, y, shared));
    assert_eq!(lender.returned(), 2);
    Ok(())
}

/// A tensor of memory that is not there.
fn of_address(device: &Device, shape: &[usize], strides: &[usize], address: u64) -> Result<Tensor<f32>> {
    // SAFETY: only made, not used.
    unsafe { Tensor::from_foreign(device, shape, strides, Foreign { address, owner: Box::new(()) }) }
}

fn rejects() -> Outcome {
    let device = Device::cpu();
    assert_error(
        of_address(&device, &[3], &[1], 0x1002),
        "Tensor::from_foreign: memory.address is 0x1002, expected a multiple of 4 bytes; what begins elsewhere has to be \
         copied",
    )?;
    assert_error(
        of_address(&device, &[3], &[1], 0),
        "Tensor::from_foreign: memory.address is 0x0, expected a multiple of 4 bytes; what begins elsewhere has to be \
         copied",
    )?;
    assert_error(
        of_address(&device, &[2, 3], &[4, 1], 0x1000),
        "Tensor::from_foreign: strides is [4, 1], expected those of a dense tensor of shape [2, 3]; any other has to be \
         copied",
    )?;
    assert!(matches!(of_address(&device, &[1 << 62, 4], &[4, 1], 0x1000), Err(Error::Shape { .. })));
    // Nothing is nowhere.
    let nothing = of_address(&device, &[0, 3], &[7, 7], 0)?;
    assert!(relu::forward(&nothing)?.to_vec()?.is_empty());
    assert!(nothing.into_foreign().is_some());
    // An allocator is held to the same.
    let device = Device::Cpu(Cpu::with_allocator(Arc::new(Crooked)));
    assert_error(
        Tensor::<f32>::empty(&device, &[2]),
        "Allocator::allocate: address is 0x1001, expected a multiple of 4 bytes; what begins elsewhere has to be copied",
    )
}

/// Gives what is no memory.
struct Crooked;

// SAFETY: what it gives is refused.
unsafe impl Allocator for Crooked {
    fn allocate(&self, _: &Request<'_>) -> Result<Foreign> {
        Ok(Foreign { address: 0x1001, owner: Box::new(()) })
    }
}

fn rejects_on(gpu: &Device) -> Outcome {
    assert_error(
        of_address(gpu, &[3], &[1], 0x1004),
        "Tensor::from_foreign: memory.address is 0x1004, expected a multiple of 16 bytes; what begins elsewhere has to be \
         copied",
    )?;
    // A single element is never part of a wider access.
    of_address(gpu, &[1, 1], &[1, 1], 0x1004)?;
    assert!(of_address(gpu, &[1], &[1], 0x1002).is_err());
    Ok(())
}

fn devices_are_equal() -> Outcome {
    let lending = Lender::beside(&Device::cpu(), usize::MAX)?.device()?;
    assert_eq!(lending, Device::cpu());
    // So that one op takes tensors of both; its output is from where its first input is.
    let (a, b) = (Tensor::full(&lending, &[2], 1.0f32)?, Tensor::full(&Device::cpu(), &[1], 2.0f32)?);
    assert!(number(prelu::forward(&a, &b)?).is_some());
    Ok(())
}
