// The codecs on a GPU, from and to device memory on the caller's stream. Blobs equal those of
// codec.h to the byte.
//
//   LH_ASSIGN_OR_RETURN(const CudaCodec codec, CudaCodec::Create("fixed:bits=6"));
//   DeviceBuffer blob(codec.MaxEncodedBytes(shape)), workspace(codec.WorkspaceBytes(shape)) ...
//   LH_RETURN_IF_ERROR(codec.Encode(view, context, workspace, blob, stream));
//
// Records of a codec with state (message_store.h) are in host memory. The codec works on copies in
// device memory (DeviceMessages), which message_staging.h copies there and back. Ids in the context
// without these copies are an error.
//
// predict's tables are in device memory (DeviceTables). Load each tensor's tokens into them before
// the call.
//
// Every pointer is to memory of the stream's device. Encode and Decode only queue work: they
// allocate no device memory, never wait, and may be captured in a CUDA graph (a replay encodes with
// the Context of the capture). All arguments must live until the work is done.
//
// Threads: immutable; any thread, each call with a workspace of its own that no other queued call
// uses at the same time.
// Errors, before anything is queued: kInvalidArgument as in codec.h, kUnimplemented for a blob of
// another version, kInternal for a refusal of the CUDA runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/codec.h"
#include "codec/cuda/device_codec.h"
#include "codec/cuda/kernel_queue.h"

namespace longhaul::codec::cuda {

class CudaCodec {
 public:
  // Refuses a codec whose family has no part for GPUs.
  static StatusOr<CudaCodec> Create(std::shared_ptr<const Codec> codec);
  // The same for a codec string (registry.h).
  static StatusOr<CudaCodec> Create(std::string_view text);

  const Codec& cpu() const { return *cpu_; }
  // As Codec's methods; SIZE_MAX for a shape that CheckShape refuses.
  size_t MaxEncodedBytes(const Shape& shape) const { return cpu_->MaxEncodedBytes(shape); }
  // Device memory that Encode and Decode need, 0 for none; a multiple of 64.
  size_t WorkspaceBytes(const Shape& shape) const;

  // Queues the encoding of `in` (data in device memory, aligned to its element) to the start of
  // `blob`, which has at least MaxEncodedBytes. A codec of fixed size writes exactly that many
  // bytes; others write as many as the blob's header says. The header also counts non-finite tiles.
  // `blob` is aligned to 16 bytes, `workspace` to 64.
  Status Encode(const TensorView& in, const Context& context, DeviceSpan workspace, DeviceSpan blob,
                const KernelQueue& queue, const DeviceMessages& messages = {},
                const TablesOnDevice& tables = {}) const;

  // Queues the decoding of the blob at `blob` (exactly one, aligned to 16 bytes) to `out` (device
  // memory, any dtype, the blob's shape). `header`: host copy of the blob's first 64 bytes, which
  // this call checks. The device finds errors in the payload: *fault_dev, a word that the caller
  // zeroed before, becomes nonzero, the affected samples decode to NaN, and records are useless. No
  // blob makes a kernel touch memory outside its arguments.
  Status Decode(std::span<const std::byte> header, DeviceSpan blob, DeviceSpan workspace,
                const MutableTensorView& out, uint32_t* fault_dev, const KernelQueue& queue,
                const DeviceMessages& messages = {}, const TablesOnDevice& tables = {}) const;

  // Queues the decoding of a blob whose header the host has not seen. A trusted peer must have made
  // it for this shape. `blob.bytes` of it have arrived; a longer blob sets kFaultCut
  // (kernel_args.h) and is not decoded. kUnimplemented for all codecs but zip.
  Status DecodeUnseen(DeviceSpan blob, const MutableTensorView& out, uint32_t* fault_dev,
                      const KernelQueue& queue) const;

 private:
  CudaCodec(std::shared_ptr<const Codec> cpu, std::shared_ptr<const DeviceCodec> device)
      : cpu_(std::move(cpu)), device_(std::move(device)) {}
  Status CheckTables(const TablesOnDevice& tables, const Shape& shape) const;

  std::shared_ptr<const Codec> cpu_;
  std::shared_ptr<const DeviceCodec> device_;
};

}  // namespace longhaul::codec::cuda
