//! [`DeviceQueue`] of a GPU by CUDA streams: one for computation, one for concurrent copies to the
//! host, and one for sums with other GPUs (all-reduce). Events order the streams.
//!
//! A session allocates memory once and a step never does, so steps can be recorded (CUDA graphs)
//! and replayed. The driver's calls need the GPU's context on the calling thread, so each call
//! binds it first; this is cheap if it is already bound.
//!
//! Tests need a GPU; the passes above are tested on the emulator (`emulator`).

use super::blas::CublasLt;
use super::convolution::{ComputedOperand, ConvolutionCall, ConvolutionShape};
use super::dnn::Cudnn;
use super::error::{DeviceError, failure};
use super::nccl::{NcclCommunicator, PollCallback};
use super::product::MatrixProduct;
use super::queue::{DeviceAddress, DeviceQueue, KernelArgument, finish_product};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaGraph, CudaStream, DriverError, result,
};
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::Arc;

/// Queue of a GPU; see [`DeviceQueue`] for its methods.
pub(crate) struct GpuStream {
    /// Dropped before the streams and the context, which it needs.
    graphs: Vec<CudaGraph>,
    /// Present in every queue that multiplies; set by [`Self::set_blas`].
    blas: Option<CublasLt>,
    /// Without cuDNN, convolutions are computed as products.
    dnn: Option<Cudnn>,
    /// Workspaces of convolutions with their sizes; the last is the largest. Smaller ones are kept,
    /// because a recorded step may refer to them.
    workspaces: Vec<(DeviceAddress, usize)>,
    /// Kernels by name.
    functions: HashMap<&'static str, CudaFunction>,
    /// Events of each download: its begin on the compute stream and its end on the copy stream. The
    /// first `downloads` pairs are in use.
    events: Vec<[CudaEvent; 2]>,
    downloads: usize,
    compute: Arc<CudaStream>,
    copies: Arc<CudaStream>,
    /// Created when the first sum starts.
    sums: Option<AllReduceStream>,
    /// Pinned host memory that the queue frees when it is dropped.
    pinned: Vec<*mut c_void>,
    /// Device memory that has not been freed.
    allocated: Vec<DeviceAddress>,
    context: Arc<CudaContext>,
    /// First error; later requests are ignored.
    failed: Option<DeviceError>,
}

/// Stream of sums, with the event before the last sum and the event after it.
struct AllReduceStream {
    stream: Arc<CudaStream>,
    begin: CudaEvent,
    end: CudaEvent,
}

impl AllReduceStream {
    fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        Ok(Self {
            stream: context.new_stream()?,
            begin: context.new_event(None)?,
            end: context.new_event(None)?,
        })
    }
}

// SAFETY: CUDA's handles belong to a context and not to a thread, and every call binds the context
// to the thread. All methods need exclusive access, so only one thread uses a stream at a time.
unsafe impl Send for GpuStream {}

impl GpuStream {
    /// Creates a queue without libraries. `functions` are the kernels by name.
    ///
    /// # Errors
    /// If the GPU cannot create streams.
    pub(crate) fn new(
        context: Arc<CudaContext>,
        functions: HashMap<&'static str, CudaFunction>,
    ) -> Result<Self, DeviceError> {
        let compute = context.new_stream().map_err(failure("make a stream"))?;
        let copies = context.new_stream().map_err(failure("make a stream"))?;
        Ok(Self {
            graphs: Vec::new(),
            blas: None,
            dnn: None,
            workspaces: Vec::new(),
            functions,
            events: Vec::new(),
            downloads: 0,
            compute,
            copies,
            sums: None,
            pinned: Vec::new(),
            allocated: Vec::new(),
            context,
            failed: None,
        })
    }

    /// Uses this library for products.
    pub(crate) fn set_blas(&mut self, blas: CublasLt) {
        self.blas = Some(blas);
    }

    /// Uses cuDNN for later convolutions. With `is_exact` it must not round operands to TF32.
    ///
    /// # Errors
    /// If cuDNN does not start.
    pub(crate) fn use_dnn(&mut self, is_exact: bool) -> Result<(), DeviceError> {
        self.bind()?;
        let stream = self.compute.cu_stream().cast();
        // SAFETY: the stream belongs to this queue, which drops `dnn` first.
        self.dnn = Some(unsafe { Cudnn::new(stream, is_exact) }?);
        Ok(())
    }

    /// Returns a workspace of at least `bytes` bytes.
    fn workspace(&mut self, bytes: usize) -> Result<DeviceAddress, DeviceError> {
        match self.workspaces.last() {
            Some((at, size)) if *size >= bytes => Ok(*at),
            _ => {
                let at = self.take(bytes)?;
                self.workspaces.push((at, bytes));
                Ok(at)
            }
        }
    }

    /// Allocates device memory that lives as long as the queue, unless it is freed.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<DeviceAddress, DeviceError> {
        self.bind()?;
        // SAFETY: the memory is freed exactly once, by `free` or when the queue is dropped.
        let taken = unsafe { result::malloc_sync(bytes.max(1)) };
        let at = taken.map_err(|_| DeviceError::Memory { bytes })?;
        self.allocated.push(at);
        Ok(at)
    }

    /// Binds the context to the calling thread.
    fn bind(&self) -> Result<(), DeviceError> {
        self.context
            .bind_to_thread()
            .map_err(failure("use its context"))
    }

    /// Binds the context and runs `attempt`, unless an earlier request failed. Keeps the first
    /// error; `action` names the request in its text.
    fn attempt<E: Display>(
        &mut self,
        action: &str,
        attempt: impl FnOnce(&mut Self) -> Result<(), E>,
    ) {
        if self.failed.is_some() {
            return;
        }
        let done = self
            .bind()
            .and_then(|()| attempt(self).map_err(failure(action)));
        if let Err(error) = done {
            self.failed = Some(error);
        }
    }

    /// Returns the index of an unused pair of events for a download, and creates a pair if all are
    /// in use.
    fn next_event_pair(&mut self) -> Result<usize, DriverError> {
        let index = self.downloads;
        if index == self.events.len() {
            let (begin, end) = (self.context.new_event(None)?, self.context.new_event(None)?);
            self.events.push([begin, end]);
        }
        self.downloads += 1;
        Ok(index)
    }
}

impl DeviceQueue for GpuStream {
    fn allocate(&mut self, bytes: usize) -> Result<DeviceAddress, DeviceError> {
        self.take(bytes)
    }

    fn free(&mut self, at: DeviceAddress) {
        let _ = self.context.bind_to_thread();
        let _ = self.compute.synchronize();
        let _ = self.copies.synchronize();
        self.allocated.retain(|allocated| *allocated != at);
        // SAFETY: allocated here and in the list until now, so it has not been freed; no running
        // work uses it.
        let _ = unsafe { result::free_sync(at) };
    }

    fn pin(&mut self, bytes: usize) -> Result<&'static mut [u8], DeviceError> {
        self.bind()?;
        // Flags 0, because the default of `cudarc` is write-combined memory, which the host reads
        // slowly.
        // SAFETY: freed exactly once, when the queue is dropped.
        let pinned = unsafe { result::malloc_host(bytes.max(1), 0) };
        let at = pinned.map_err(failure(&format!("pin {bytes} bytes of the host's memory")))?;
        self.pinned.push(at);
        // SAFETY: `bytes` bytes were just allocated and are initialised here; the session that
        // holds the slice also holds the queue.
        unsafe {
            std::ptr::write_bytes(at.cast::<u8>(), 0, bytes);
            Ok(std::slice::from_raw_parts_mut(at.cast(), bytes))
        }
    }

    fn upload(&mut self, from: &[u8], to: DeviceAddress) {
        self.attempt("upload", |queue| {
            // SAFETY: `from` is pinned and unchanged until `finish`, as the trait requires.
            unsafe { result::memcpy_htod_async(to, from, queue.compute.cu_stream()) }
        });
    }

    fn download(&mut self, from: DeviceAddress, to: &mut [u8]) {
        self.attempt("download", |queue| {
            let pair = queue.next_event_pair()?;
            let [begin, end] = &queue.events[pair];
            begin.record(&queue.compute)?;
            queue.copies.wait(begin)?;
            // SAFETY: `to` is pinned and read only after `wait`, as the trait requires.
            unsafe { result::memcpy_dtoh_async(to, from, queue.copies.cu_stream())? };
            end.record(&queue.copies)
        });
    }

    fn wait(&mut self, number: usize) {
        self.attempt("wait for a download", |queue| {
            match queue.events.get(number) {
                Some([_, end]) => end.synchronize(),
                None => Ok(()),
            }
        });
    }

    fn copy(&mut self, from: DeviceAddress, to: DeviceAddress, bytes: usize) {
        self.attempt("copy", |queue| {
            // SAFETY: callers pass memory of this queue.
            unsafe { result::memcpy_dtod_async(to, from, bytes, queue.compute.cu_stream()) }
        });
    }

    fn zero(&mut self, at: DeviceAddress, bytes: usize) {
        self.attempt("clear", |queue| {
            // SAFETY: callers pass memory of this queue.
            unsafe { result::memset_d8_async(at, 0, bytes, queue.compute.cu_stream()) }
        });
    }

    fn launch(
        &mut self,
        kernel: &'static str,
        blocks: usize,
        threads: usize,
        arguments: &[KernelArgument],
    ) {
        self.attempt(kernel, |queue| {
            let function = queue.functions[kernel].cu_function();
            let mut pointers: Vec<*mut c_void> = arguments
                .iter()
                .map(|argument| argument.0.as_ptr().cast_mut().cast())
                .collect();
            // SAFETY: the driver reads each argument before the call returns, with the size that
            // the kernel declares; an argument has room for the largest. Callers guarantee the
            // pointers, and the emulator tests them.
            unsafe {
                result::launch_kernel(
                    function,
                    (blocks as u32, 1, 1),
                    (threads as u32, 1, 1),
                    0,
                    queue.compute.cu_stream(),
                    &mut pointers,
                )
            }
        });
    }

    fn multiply(&mut self, product: &MatrixProduct) {
        let mut is_unfinished = false;
        self.attempt("multiply", |queue| {
            let stream = queue.compute.cu_stream().cast();
            let blas = queue.blas.as_mut().expect("a queue of a GPU has its BLAS");
            // SAFETY: callers pass memory of this queue; the stream belongs to the context that was
            // just bound.
            is_unfinished = unsafe { blas.multiply(product, stream) }?;
            Ok::<(), cudarc::cublaslt::result::CublasError>(())
        });
        if is_unfinished {
            finish_product(self, product);
        }
    }

    fn can_convolve(
        &mut self,
        filters: &ConvolutionShape,
        computed: ComputedOperand,
        examples: usize,
    ) -> bool {
        let mut can = false;
        self.attempt("choose how to convolve", |queue| {
            let dnn = queue.dnn.as_mut();
            can = dnn.is_some_and(|dnn| dnn.can(filters, computed, examples));
            Ok::<(), DeviceError>(())
        });
        can
    }

    fn convolve(&mut self, convolution: &ConvolutionCall) {
        self.attempt("convolve", |queue| {
            let mut dnn = queue.dnn.take().expect("it has said that it can");
            // SAFETY: callers pass memory of this queue; the context was just bound to the thread.
            let done = unsafe { dnn.convolve(convolution, &mut |bytes| queue.workspace(bytes)) };
            queue.dnn = Some(dnn);
            done
        });
    }

    fn enter(&mut self) {
        self.attempt("use its context", |_| Ok::<(), DriverError>(()));
    }

    fn sum(
        &mut self,
        ranks: &mut NcclCommunicator,
        at: DeviceAddress,
        numbers: usize,
        poll: PollCallback<'_>,
    ) {
        self.attempt("sum with other GPUs", |queue| {
            if queue.sums.is_none() {
                queue.sums = Some(AllReduceStream::new(&queue.context)?);
            }
            let sums = queue.sums.as_ref().expect("just made");
            sums.begin.record(&queue.compute)?;
            sums.stream.wait(&sums.begin)?;
            // SAFETY: callers pass memory of this queue and do not use it until `has_summed`; the
            // stream belongs to the communicator's device.
            unsafe { ranks.sum(at, numbers, sums.stream.cu_stream().cast(), poll) };
            sums.end.record(&sums.stream)
        });
    }

    fn has_summed(&mut self) -> bool {
        let mut is_over = true;
        self.attempt("ask whether sums are over", |queue| {
            if let Some(sums) = &queue.sums {
                is_over = sums.end.try_is_complete()?;
            }
            Ok::<(), DriverError>(())
        });
        is_over
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.attempt("finish", |queue| {
            queue.compute.synchronize()?;
            queue.copies.synchronize()
        });
        self.downloads = 0;
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn can_record(&self) -> bool {
        true
    }

    fn record(&mut self) {
        self.attempt("write a step down", |queue| {
            // Thread-local capture restricts only this thread. In global mode, allocations of other
            // threads of the process would fail meanwhile.
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            queue.compute.begin_capture(mode)
        });
    }

    fn recorded(&mut self) -> usize {
        let number = self.graphs.len();
        self.attempt("write a step down", |queue| {
            let graph = queue.compute.end_capture(CUgraphInstantiate_flags(0));
            let graph = graph.map_err(|error| error.to_string())?;
            queue.graphs.push(graph.ok_or("nothing was asked for")?);
            Ok::<(), String>(())
        });
        number
    }

    /// Launches on one stream run in order, also of the same graph.
    fn replay(&mut self, number: usize) {
        self.attempt("repeat a step", |queue| match queue.graphs.get(number) {
            Some(graph) => graph.launch(),
            None => Ok(()),
        });
    }

    /// Also frees the workspaces of convolutions, because only recorded steps may still refer to
    /// them.
    fn forget(&mut self) {
        self.graphs.clear();
        for (at, _) in std::mem::take(&mut self.workspaces) {
            self.free(at);
        }
    }
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        let _ = self.compute.synchronize();
        let _ = self.copies.synchronize();
        self.graphs.clear();
        self.blas = None;
        self.dnn = None;
        for at in self.allocated.drain(..) {
            // SAFETY: allocated by this queue and not freed; no work is running.
            let _ = unsafe { result::free_sync(at) };
        }
        for at in self.pinned.drain(..) {
            // SAFETY: as above; holders of slices of it are dropped together with the queue.
            let _ = unsafe { result::free_host(at) };
        }
    }
}
