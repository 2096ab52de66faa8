//! Matrix products by cuBLASLt. The plan of each shape is computed once and cached.

use super::error::DeviceError;
use super::library::CudaLibrary;
use super::product::{ColumnMajorMatrix, ColumnMajorProduct, ElementType, MatrixProduct};
use super::queue::DeviceAddress;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use std::collections::HashMap;
use std::ffi::c_void;

/// Workspace of cuBLASLt in bytes, as NVIDIA recommends for Hopper.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// cuBLASLt handle with a cache of plans.
pub(crate) struct CublasLt {
    handle: sys::cublasLtHandle_t,
    plans: HashMap<MatmulKey, MatmulPlan>,
    workspace: DeviceAddress,
    /// Whether f32 products use all bits; else tensor cores use 10 bits of the significand (TF32).
    is_exact: bool,
}

/// All inputs of the choice of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct MatmulKey {
    shape: [usize; 3],
    kinds: [ElementType; 3],
    strides: [usize; 3],
    batch_strides: [usize; 3],
    transposed: [bool; 2],
    batch: usize,
    bias: bool,
    relu: bool,
    /// Alignments of the operands' addresses in bytes, at most 256.
    alignments: [u32; 3],
}

/// Description of a product and its algorithm.
struct MatmulPlan {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Whether cuBLASLt has no algorithm with bias and ReLU for such operands, so that a kernel
    /// must apply them afterwards.
    is_plain: bool,
}

impl CublasLt {
    /// `workspace` is device memory of [`WORKSPACE`] bytes.
    ///
    /// # Errors
    /// If the library is missing or does not start. The GPU's context must be bound to the thread.
    pub(crate) fn new(workspace: DeviceAddress, is_exact: bool) -> Result<Self, DeviceError> {
        CudaLibrary::Products.find()?;
        let handle = result::create_handle().map_err(|error| DeviceError::Failed {
            action: "start cuBLASLt".to_owned(),
            cause: error.to_string(),
        })?;
        Ok(Self {
            handle,
            plans: HashMap::new(),
            workspace,
            is_exact,
        })
    }

    /// Enqueues the product on a stream. Returns whether bias and ReLU remain to be applied.
    ///
    /// # Errors
    /// Errors of cuBLASLt.
    ///
    /// # Safety
    /// The operands' addresses must be device memory of at least the size of their shapes, and the
    /// stream must belong to the thread's context.
    pub(crate) unsafe fn multiply(
        &mut self,
        product: &MatrixProduct,
        stream: sys::cudaStream_t,
    ) -> Result<bool, CublasError> {
        let by_columns = product.by_columns();
        let key = MatmulKey::new(product, &by_columns);
        if !self.plans.contains_key(&key) {
            let plan = self.plan(&key, &by_columns, product.bias)?;
            self.plans.insert(key, plan);
        }
        let plan = &self.plans[&key];
        let (one, beta) = (1.0_f32, if product.add { 1.0_f32 } else { 0.0 });
        let [a, b, d] = plan.layouts;
        // SAFETY: descriptors live as long as the plan. Scalars are read on the host before the
        // call returns. The caller guarantees the operands.
        unsafe {
            if key.bias && !plan.is_plain {
                set_description(
                    plan.description,
                    sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                    &product.bias,
                )?;
            }
            result::matmul(
                self.handle,
                plan.description,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                by_columns.a.at as *const c_void,
                a,
                by_columns.b.at as *const c_void,
                b,
                by_columns.d.at as *const c_void,
                d,
                by_columns.d.at as *mut c_void,
                d,
                &raw const plan.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                stream,
            )?;
        }
        Ok(plan.is_plain && (key.bias || key.relu))
    }

    fn plan(
        &self,
        key: &MatmulKey,
        by_columns: &ColumnMajorProduct,
        bias: DeviceAddress,
    ) -> Result<MatmulPlan, CublasError> {
        // SAFETY: descriptors are created here and moved into the plan, which destroys them.
        unsafe {
            match self.try_plan(key, by_columns, bias, false) {
                Err(_) if key.bias || key.relu => self.try_plan(key, by_columns, bias, true),
                plan => plan,
            }
        }
    }

    /// # Safety
    /// No requirements beyond the library's: attributes have the documented sizes.
    unsafe fn try_plan(
        &self,
        key: &MatmulKey,
        by_columns: &ColumnMajorProduct,
        bias: DeviceAddress,
        is_plain: bool,
    ) -> Result<MatmulPlan, CublasError> {
        use sys::cublasLtMatmulDescAttributes_t as Description;
        use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
        let compute = match (key.kinds[0], self.is_exact) {
            (ElementType::F32, false) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let description = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F)?;
        let layouts = [&by_columns.a, &by_columns.b, &by_columns.d];
        // SAFETY: as above.
        unsafe {
            let [a, b, d] = layouts.map(|stored| layout(stored, key.batch));
            let layouts = [a?, b?, d?];
            for (attribute, is_transposed) in [
                (Description::CUBLASLT_MATMUL_DESC_TRANSA, key.transposed[0]),
                (Description::CUBLASLT_MATMUL_DESC_TRANSB, key.transposed[1]),
            ] {
                // CUBLAS_OP_N is 0, CUBLAS_OP_T is 1.
                set_description(description, attribute, &i32::from(is_transposed))?;
            }
            let epilogue = match (key.bias && !is_plain, key.relu && !is_plain) {
                (false, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
                (false, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
                (true, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
                (true, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
            };
            let attribute = Description::CUBLASLT_MATMUL_DESC_EPILOGUE;
            set_description(description, attribute, &(epilogue as u32))?;
            if key.bias && !is_plain {
                // The choice of an algorithm takes a bias into account.
                let attribute = Description::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
                set_description(description, attribute, &bias)?;
            }
            let preference = result::create_matmul_pref()?;
            let attribute = Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            set_preference(preference, attribute, &WORKSPACE)?;
            let [a, b, d] = key.alignments;
            for (attribute, alignment) in [
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
            ] {
                set_preference(preference, attribute, &alignment)?;
            }
            let [a, b, d] = layouts;
            let found =
                result::get_matmul_algo_heuristic(self.handle, description, a, b, d, d, preference);
            result::destroy_matmul_pref(preference)?;
            let algorithm = match found {
                Ok(found) => found.algo,
                Err(error) => {
                    destroy(description, layouts);
                    return Err(error);
                }
            };
            Ok(MatmulPlan {
                description,
                layouts,
                algorithm,
                is_plain,
            })
        }
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        for plan in self.plans.values() {
            // SAFETY: created by this handle and no longer used.
            unsafe { destroy(plan.description, plan.layouts) };
        }
        // SAFETY: as above.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl MatmulKey {
    fn new(product: &MatrixProduct, by_columns: &ColumnMajorProduct) -> Self {
        let stored = [by_columns.a, by_columns.b, by_columns.d];
        Self {
            shape: [by_columns.m, by_columns.n, by_columns.k],
            kinds: stored.map(|stored| stored.kind),
            strides: stored.map(|stored| stored.stride),
            batch_strides: stored.map(|stored| stored.batch_stride),
            transposed: [by_columns.a.transposed, by_columns.b.transposed],
            batch: product.batch,
            bias: product.bias != 0,
            relu: product.relu,
            alignments: stored.map(|stored| 1 << stored.at.trailing_zeros().min(8)),
        }
    }
}

/// # Safety
/// No requirements: the layout consists of numbers.
unsafe fn layout(
    stored: &ColumnMajorMatrix,
    batch: usize,
) -> Result<sys::cublasLtMatrixLayout_t, CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    let kind = match stored.kind {
        ElementType::F32 => sys::cudaDataType_t::CUDA_R_32F,
        ElementType::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
    };
    let (rows, columns) = (stored.rows as u64, stored.columns as u64);
    let layout = result::create_matrix_layout(kind, rows, columns, stored.stride as i64)?;
    if batch > 1 {
        let (count, batch_stride) = (batch as i32, stored.batch_stride as i64);
        // SAFETY: the layout was just created; the attributes are a 32-bit and a 64-bit integer.
        unsafe {
            result::set_matrix_layout_attribute(
                layout,
                Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                (&raw const count).cast(),
                size_of_val(&count),
            )?;
            result::set_matrix_layout_attribute(
                layout,
                Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                (&raw const batch_stride).cast(),
                size_of_val(&batch_stride),
            )?;
        }
    }
    Ok(layout)
}

/// # Safety
/// `value` must have the type of the attribute.
unsafe fn set_description<T>(
    description: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), CublasError> {
    let at: *const T = value;
    // SAFETY: guaranteed by the caller; the value is copied.
    unsafe { result::set_matmul_desc_attribute(description, attribute, at.cast(), size_of::<T>()) }
}

/// # Safety
/// `value` must have the type of the attribute.
unsafe fn set_preference<T>(
    preference: sys::cublasLtMatmulPreference_t,
    attribute: sys::cublasLtMatmulPreferenceAttributes_t,
    value: &T,
) -> Result<(), CublasError> {
    let at: *const T = value;
    // SAFETY: guaranteed by the caller; the value is copied.
    unsafe { result::set_matmul_pref_attribute(preference, attribute, at.cast(), size_of::<T>()) }
}

/// # Safety
/// The description and the layouts must not be used afterwards.
unsafe fn destroy(
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for layout in layouts {
            let _ = result::destroy_matrix_layout(layout);
        }
        let _ = result::destroy_matmul_desc(description);
    }
}
