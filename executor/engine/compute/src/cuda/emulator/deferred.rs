//! Queue in front of the emulator that executes requests as late as a GPU may, and records as a GPU
//! does. An upload reads host memory only at the next wait, so a test fails if that memory is
//! rewritten too early. A recording keeps addresses, also of host memory, and a replay executes
//! only the recording.

use super::Emulator;
use crate::cuda::convolution::{ComputedOperand, ConvolutionCall, ConvolutionShape};
use crate::cuda::error::DeviceError;
use crate::cuda::nccl::{NcclCommunicator, PollCallback};
use crate::cuda::product::MatrixProduct;
use crate::cuda::queue::{DeviceAddress, DeviceQueue, KernelArgument};
use std::collections::HashSet;
use std::mem;

/// Request. Addresses of host memory refer to [`Emulator::pin`] and live as long as the emulator.
#[derive(Clone)]
enum DeferredRequest {
    Upload {
        from: usize,
        to: DeviceAddress,
        bytes: usize,
    },
    Download {
        from: DeviceAddress,
        to: usize,
        bytes: usize,
    },
    Copy(DeviceAddress, DeviceAddress, usize),
    Zero(DeviceAddress, usize),
    Launch {
        kernel: &'static str,
        blocks: usize,
        threads: usize,
        arguments: Vec<KernelArgument>,
    },
    Multiply(MatrixProduct),
    Convolve(ConvolutionCall),
}

/// Executes requests at the last moment, on the calling thread.
pub(crate) struct DeferredQueue {
    queue: Emulator,
    pending: Vec<DeferredRequest>,
    /// Recording in progress.
    recording: Option<Vec<DeferredRequest>>,
    graphs: Vec<Vec<DeferredRequest>>,
    /// Kernels and shapes of products that were requested before a recording.
    warmed_up: HashSet<String>,
}

impl DeferredQueue {
    pub(crate) fn new(queue: Emulator) -> Self {
        Self {
            queue,
            pending: Vec::new(),
            recording: None,
            graphs: Vec::new(),
            warmed_up: HashSet::new(),
        }
    }

    fn enqueue(&mut self, request: DeferredRequest) {
        let name = match &request {
            DeferredRequest::Launch { kernel, .. } => (*kernel).to_owned(),
            DeferredRequest::Multiply(MatrixProduct {
                rows,
                columns,
                inner,
                batch,
                add,
                ..
            }) => format!("a product of {:?}", (rows, columns, inner, batch, add)),
            _ => String::new(),
        };
        match &mut self.recording {
            Some(recording) => {
                let is_known = name.is_empty() || self.warmed_up.contains(&name);
                assert!(is_known, "{name} is met for the first time in a recording");
                recording.push(request);
            }
            None => {
                self.warmed_up.insert(name);
                self.pending.push(request);
            }
        }
    }

    /// Executes all pending requests.
    fn catch_up(&mut self) {
        assert!(self.recording.is_none(), "a recording waits for nothing");
        for request in mem::take(&mut self.pending) {
            self.carry_out(request);
        }
    }

    fn carry_out(&mut self, request: DeferredRequest) {
        let queue = &mut self.queue;
        match request {
            DeferredRequest::Upload { from, to, bytes } => {
                // SAFETY: pinned memory of the emulator, which lives as long as this queue.
                queue.upload(
                    unsafe { std::slice::from_raw_parts(from as *const u8, bytes) },
                    to,
                );
            }
            DeferredRequest::Download { from, to, bytes } => {
                // SAFETY: as above; the host reads it only after waiting.
                queue.download(from, unsafe {
                    std::slice::from_raw_parts_mut(to as *mut u8, bytes)
                });
            }
            DeferredRequest::Copy(from, to, bytes) => queue.copy(from, to, bytes),
            DeferredRequest::Zero(at, bytes) => queue.zero(at, bytes),
            DeferredRequest::Launch {
                kernel,
                blocks,
                threads,
                arguments,
            } => queue.launch(kernel, blocks, threads, &arguments),
            DeferredRequest::Multiply(product) => queue.multiply(&product),
            DeferredRequest::Convolve(convolution) => queue.convolve(&convolution),
        }
    }
}

impl DeviceQueue for DeferredQueue {
    fn allocate(&mut self, bytes: usize) -> Result<DeviceAddress, DeviceError> {
        assert!(
            self.recording.is_none(),
            "no memory is taken in a recording"
        );
        self.queue.allocate(bytes)
    }

    fn free(&mut self, at: DeviceAddress) {
        // After a failure pending requests are not executed.
        if !std::thread::panicking() {
            self.catch_up();
        }
        self.queue.free(at);
    }

    fn pin(&mut self, bytes: usize) -> Result<&'static mut [u8], DeviceError> {
        self.queue.pin(bytes)
    }

    fn upload(&mut self, from: &[u8], to: DeviceAddress) {
        let (from, bytes) = (from.as_ptr() as usize, from.len());
        self.enqueue(DeferredRequest::Upload { from, to, bytes });
    }

    fn download(&mut self, from: DeviceAddress, to: &mut [u8]) {
        assert!(self.recording.is_none(), "nothing comes out of a recording");
        let (to, bytes) = (to.as_mut_ptr() as usize, to.len());
        self.enqueue(DeferredRequest::Download { from, to, bytes });
    }

    fn wait(&mut self, _number: usize) {
        self.catch_up();
    }

    fn copy(&mut self, from: DeviceAddress, to: DeviceAddress, bytes: usize) {
        self.enqueue(DeferredRequest::Copy(from, to, bytes));
    }

    fn zero(&mut self, at: DeviceAddress, bytes: usize) {
        self.enqueue(DeferredRequest::Zero(at, bytes));
    }

    fn launch(
        &mut self,
        kernel: &'static str,
        blocks: usize,
        threads: usize,
        arguments: &[KernelArgument],
    ) {
        self.enqueue(DeferredRequest::Launch {
            kernel,
            blocks,
            threads,
            arguments: arguments.to_vec(),
        });
    }

    fn multiply(&mut self, product: &MatrixProduct) {
        self.enqueue(DeferredRequest::Multiply(*product));
    }

    fn can_convolve(
        &mut self,
        filters: &ConvolutionShape,
        computed: ComputedOperand,
        examples: usize,
    ) -> bool {
        self.queue.can_convolve(filters, computed, examples)
    }

    fn convolve(&mut self, convolution: &ConvolutionCall) {
        self.enqueue(DeferredRequest::Convolve(*convolution));
    }

    fn enter(&mut self) {
        self.queue.enter();
    }

    fn sum(
        &mut self,
        ranks: &mut NcclCommunicator,
        at: DeviceAddress,
        numbers: usize,
        poll: PollCallback<'_>,
    ) {
        // A sum begins after earlier requests.
        self.catch_up();
        self.queue.sum(ranks, at, numbers, poll);
    }

    fn has_summed(&mut self) -> bool {
        self.queue.has_summed()
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.catch_up();
        self.queue.finish()
    }

    fn can_record(&self) -> bool {
        true
    }

    fn record(&mut self) {
        assert!(self.recording.is_none(), "one recording at a time");
        self.recording = Some(Vec::new());
    }

    fn recorded(&mut self) -> usize {
        let recording = self.recording.take().expect("a recording");
        self.graphs.push(recording);
        self.graphs.len() - 1
    }

    fn replay(&mut self, number: usize) {
        assert!(self.recording.is_none(), "a recording repeats no other");
        self.pending.extend_from_slice(&self.graphs[number]);
    }

    fn forget(&mut self) {
        self.graphs.clear();
    }
}
