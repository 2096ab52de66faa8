//! A GPU's queue: one stream for the work, one for copies to the host beside it, and one for sums with other GPUs.
//!
//! Memory is taken once per session and never by a step, so steps can be written down (CUDA graphs) and repeated. The driver's calls
//! need the GPU's context on the calling thread, so each asks for it; that is one comparison where it is there already.

use super::blas::Blas;
use super::convolution::{Convolution, Filters, Wanted};
use super::dnn::Dnn;
use super::error::DeviceError;
use super::nccl::{Communicator, Look};
use super::product::Product;
use super::queue::{Address, Argument, Queue, finish_product};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaGraph, CudaStream, DriverError, result,
};
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::Arc;

/// A GPU's queue.
pub(crate) struct Stream {
    /// Before the streams and the context, which it needs in order to go.
    graphs: Vec<CudaGraph>,
    blas: Option<Blas>,
    /// Without one, convolutions are products.
    dnn: Option<Dnn>,
    /// Memory that convolutions use while they run, with its size; the last is the largest. Those before it were too small, but a step
    /// that is written down may name them.
    workspaces: Vec<(Address, usize)>,
    functions: HashMap<&'static str, CudaFunction>,
    /// Of each download its begin on the one stream and its end on the other; the first `downloads` pairs are in use.
    events: Vec<[CudaEvent; 2]>,
    downloads: usize,
    compute: Arc<CudaStream>,
    copies: Arc<CudaStream>,
    /// Made when the first is started, with the event before the last one and the event after it.
    sums: Option<Sums>,
    pinned: Vec<*mut c_void>,
    taken: Vec<Address>,
    context: Arc<CudaContext>,
    failed: Option<DeviceError>,
}

/// The stream of sums.
struct Sums {
    stream: Arc<CudaStream>,
    begin: CudaEvent,
    end: CudaEvent,
}

impl Sums {
    fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        Ok(Self {
            stream: context.new_stream()?,
            begin: context.new_event(None)?,
            end: context.new_event(None)?,
        })
    }
}

// SAFETY: CUDA's handles belong to a context, not to a thread, and every call makes the context the thread's. A stream is used by one
// thread at a time, since all of its methods need it exclusively.
unsafe impl Send for Stream {}

impl Stream {
    /// # Errors
    /// When the GPU makes no streams.
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
            taken: Vec::new(),
            context,
            failed: None,
        })
    }

    pub(crate) fn set_blas(&mut self, blas: Blas) {
        self.blas = Some(blas);
    }

    /// From now on convolutions are cuDNN's.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn use_dnn(&mut self, is_exact: bool) -> Result<(), DeviceError> {
        self.bind()?;
        let stream = self.compute.cu_stream().cast();
        // SAFETY: the stream is this queue's, which drops `dnn` first.
        self.dnn = Some(unsafe { Dnn::new(stream, is_exact) }?);
        Ok(())
    }

    /// Of at least so many bytes.
    fn workspace(&mut self, bytes: usize) -> Result<Address, DeviceError> {
        match self.workspaces.last() {
            Some((at, size)) if *size >= bytes => Ok(*at),
            _ => {
                let at = self.take(bytes)?;
                self.workspaces.push((at, bytes));
                Ok(at)
            }
        }
    }

    /// Device memory that lives as long as the queue, unless it is freed.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<Address, DeviceError> {
        self.bind()?;
        // SAFETY: the memory is given back once, by `free` or when the queue goes.
        let taken = unsafe { result::malloc_sync(bytes.max(1)) };
        let at = taken.map_err(|_| DeviceError::Memory { bytes })?;
        self.taken.push(at);
        Ok(at)
    }

    fn bind(&self) -> Result<(), DeviceError> {
        self.context
            .bind_to_thread()
            .map_err(failure("use its context"))
    }

    /// Does it unless something has failed before; keeps the first failure.
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

    /// A pair of events, made when so many downloads are under way for the first time.
    fn pair(&mut self) -> Result<usize, DriverError> {
        let index = self.downloads;
        if index == self.events.len() {
            let (begin, end) = (self.context.new_event(None)?, self.context.new_event(None)?);
            self.events.push([begin, end]);
        }
        self.downloads += 1;
        Ok(index)
    }
}

impl Queue for Stream {
    fn allocate(&mut self, bytes: usize) -> Result<Address, DeviceError> {
        self.take(bytes)
    }

    fn free(&mut self, at: Address) {
        let _ = self.context.bind_to_thread();
        let _ = self.compute.synchronize();
        let _ = self.copies.synchronize();
        self.taken.retain(|taken| *taken != at);
        // SAFETY: taken here and in the list until now, so it has not been given back; nothing that is under way uses it.
        let _ = unsafe { result::free_sync(at) };
    }

    fn pin(&mut self, bytes: usize) -> Result<&'static mut [u8], DeviceError> {
        self.bind()?;
        // Flags 0: the default of `cudarc` is write-combined, from which the host reads slowly.
        // SAFETY: given back once, when the queue goes.
        let pinned = unsafe { result::malloc_host(bytes.max(1), 0) };
        let at = pinned.map_err(failure(&format!("pin {bytes} bytes of the host's memory")))?;
        self.pinned.push(at);
        // SAFETY: so many bytes were just taken; zeroed, they are bytes; the session that holds the slice holds the queue.
        unsafe {
            std::ptr::write_bytes(at.cast::<u8>(), 0, bytes);
            Ok(std::slice::from_raw_parts_mut(at.cast(), bytes))
        }
    }

    fn upload(&mut self, from: &[u8], to: Address) {
        self.attempt("upload", |queue| {
            // SAFETY: `from` is pinned and stays as it is until `finish`, as the trait demands.
            unsafe { result::memcpy_htod_async(to, from, queue.compute.cu_stream()) }
        });
    }

    fn download(&mut self, from: Address, to: &mut [u8]) {
        self.attempt("download", |queue| {
            let pair = queue.pair()?;
            let [begin, end] = &queue.events[pair];
            begin.record(&queue.compute)?;
            queue.copies.wait(begin)?;
            // SAFETY: `to` is pinned, and read only after `wait`, as the trait demands.
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

    fn copy(&mut self, from: Address, to: Address, bytes: usize) {
        self.attempt("copy", |queue| {
            // SAFETY: callers name memory of this queue.
            unsafe { result::memcpy_dtod_async(to, from, bytes, queue.compute.cu_stream()) }
        });
    }

    fn zero(&mut self, at: Address, bytes: usize) {
        self.attempt("clear", |queue| {
            // SAFETY: callers name memory of this queue.
            unsafe { result::memset_d8_async(at, 0, bytes, queue.compute.cu_stream()) }
        });
    }

    fn launch(
        &mut self,
        kernel: &'static str,
        blocks: usize,
        threads: usize,
        arguments: &[Argument],
    ) {
        self.attempt(kernel, |queue| {
            let function = queue.functions[kernel].cu_function();
            let mut pointers: Vec<*mut c_void> = arguments
                .iter()
                .map(|argument| argument.0.as_ptr().cast_mut().cast())
                .collect();
            // SAFETY: the driver reads each argument, as many bytes as the kernel's own says, before the call returns; an argument has
            // room for the largest. What they point to is the callers' affair, whom the emulator has tried.
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

    fn multiply(&mut self, product: &Product) {
        let mut is_open = false;
        self.attempt("multiply", |queue| {
            let stream = queue.compute.cu_stream().cast();
            let blas = queue.blas.as_mut().expect("a queue of a GPU has its BLAS");
            // SAFETY: callers name memory of this queue; the stream is of the context that was just made the thread's.
            is_open = unsafe { blas.multiply(product, stream) }?;
            Ok::<(), cudarc::cublaslt::result::CublasError>(())
        });
        if is_open {
            finish_product(self, product);
        }
    }

    fn can_convolve(&mut self, filters: &Filters, wanted: Wanted, examples: usize) -> bool {
        let mut can = false;
        self.attempt("choose how to convolve", |queue| {
            let dnn = queue.dnn.as_mut();
            can = dnn.is_some_and(|dnn| dnn.can(filters, wanted, examples));
            Ok::<(), DeviceError>(())
        });
        can
    }

    fn convolve(&mut self, convolution: &Convolution) {
        self.attempt("convolve", |queue| {
            let mut dnn = queue.dnn.take().expect("it has said that it can");
            // SAFETY: callers name memory of this queue; the context was just made the thread's.
            let done = unsafe { dnn.convolve(convolution, &mut |bytes| queue.workspace(bytes)) };
            queue.dnn = Some(dnn);
            done
        });
    }

    fn enter(&mut self) {
        self.attempt("use its context", |_| Ok::<(), DriverError>(()));
    }

    fn sum(&mut self, ranks: &mut Communicator, at: Address, numbers: usize, look: Look<'_>) {
        self.attempt("sum with other GPUs", |queue| {
            if queue.sums.is_none() {
                queue.sums = Some(Sums::new(&queue.context)?);
            }
            let sums = queue.sums.as_ref().expect("just made");
            sums.begin.record(&queue.compute)?;
            sums.stream.wait(&sums.begin)?;
            // SAFETY: callers name memory of this queue and leave it alone until `has_summed`; the stream is of the communicator's device.
            unsafe { ranks.sum(at, numbers, sums.stream.cu_stream().cast(), look) };
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
            // Only calls of this thread are forbidden meanwhile, so that other tasks' threads may take memory.
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

    /// Launches on one stream go one after another, also of the same graph.
    fn replay(&mut self, number: usize) {
        self.attempt("repeat a step", |queue| match queue.graphs.get(number) {
            Some(graph) => graph.launch(),
            None => Ok(()),
        });
    }

    /// Only a step that is written down may still name the memory that convolutions use, so it is given back too.
    fn forget(&mut self) {
        self.graphs.clear();
        for (at, _) in std::mem::take(&mut self.workspaces) {
            self.free(at);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        let _ = self.compute.synchronize();
        let _ = self.copies.synchronize();
        self.graphs.clear();
        self.blas = None;
        self.dnn = None;
        for at in self.taken.drain(..) {
            // SAFETY: taken by this queue and not given back; nothing runs any more.
            let _ = unsafe { result::free_sync(at) };
        }
        for at in self.pinned.drain(..) {
            // SAFETY: as above; whoever held slices of it goes with the queue.
            let _ = unsafe { result::free_host(at) };
        }
    }
}

fn failure<E: Display>(action: &str) -> impl FnOnce(E) -> DeviceError + use<E> {
    let action = action.to_owned();
    move |error| DeviceError::Failed {
        action,
        cause: error.to_string(),
    }
}
