// Frozen matrices that a stage stores in few bits (LoRA's quantize_base, codec/quantized/format.h).
// Right before each product, forward and backward, the matrix is dequantized to the type of
// products, into memory that all matrices of the stage share.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions, and StatusError (torch_scope.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "base/cuda/device.h"
#include "base/status.h"
#include "run/model/model_spec.h"

namespace longhaul::worker {

// The memory into which matrices are dequantized. It keeps its address, because CUDA graphs record
// the address. Passes of a stage run one after the other on one stream, so one memory is enough.
class DequantizedMemory {
 public:
  // `largest`: elements of the stage's largest quantized matrix. `type`: kFloat or kBFloat16.
  DequantizedMemory(const at::Device& device, at::ScalarType type, int64_t largest);

  // The first elements of the memory, as a matrix.
  at::Tensor Matrix(int64_t rows, int64_t columns) const;
  at::ScalarType type() const { return memory_.scalar_type(); }
  const at::Device& device() const { return device_; }
  // The GPU of the stage; nullopt: its tensors are on the CPU.
  const std::optional<cuda::Device>& gpu() const { return gpu_; }
  uint64_t bytes() const { return memory_.nbytes(); }

 private:
  const at::Device device_;
  std::optional<cuda::Device> gpu_;
  at::Tensor memory_;
};

class QuantizedMatrix {
 public:
  // Makes a matrix whose contents are void until Set. In a group, `rows` and `columns` are those of
  // this rank's share, so blocks of NF4 never cross from one rank's share to another's. `memory`
  // must outlive the matrix.
  QuantizedMatrix(QuantizeBase kind, int64_t rows, int64_t columns,
                  const DequantizedMemory* memory);

  // Quantizes `values` on the CPU: fp32, contiguous, rows x columns. The stored bytes depend on
  // nothing but the values. For a large matrix, starts up to 15 threads and waits for them.
  // kInvalidArgument: a value is not finite, or in INT8 not finite in fp16.
  Status Set(const at::Tensor& values);

  // Returns the matrix (rows, columns) in the type of products. On a GPU the kernel is queued on
  // the current stream. The result is valid until another matrix of the stage is dequantized: use
  // it in the product that is queued next, and do not keep it for backward.
  at::Tensor Dequantize() const;

  // The stored bytes, on the stage's device.
  const at::Tensor& stored() const { return stored_; }
  at::ScalarType type() const { return memory_->type(); }

 private:
  const QuantizeBase kind_;
  const int64_t rows_, columns_;
  const DequantizedMemory* const memory_;
  at::Tensor stored_;
};

}  // namespace longhaul::worker
