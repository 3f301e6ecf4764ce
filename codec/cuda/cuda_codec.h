// Runs a codec on a GPU: encodes and decodes tensors in device memory, on the caller's stream.
// Blobs have the same bytes as those of the codec on the CPU (codec.h).
//
//   LH_ASSIGN_OR_RETURN(const CudaCodec codec, CudaCodec::Create("fixed:bits=6"));
//   LH_ASSIGN_OR_RETURN(DeviceBuffer memory,                     // base/cuda/memory.h
//                       DeviceBuffer::Create(device, codec.MaxEncodedBytes(shape)));
//   const DeviceSpan blob{memory.data_dev(), memory.size()};     // workspace: in the same way
//   LH_RETURN_IF_ERROR(codec.Encode(view, context, workspace, blob, stream));
//
// aqsgd keeps its records (message_store.h) in host memory. Encode and Decode use copies in device
// memory (DeviceMessages); message_staging.h copies the records there and back. Encode returns
// kInvalidArgument if the context has sample ids but `messages` is empty.
//
// predict's tables are in device memory (DeviceTables). Before each call, load the ids of the
// tensor's tokens (DeviceTables::Load).
//
// Every pointer is to memory of the stream's device. Encode and Decode only queue work: they
// allocate no device memory, never wait, and may be captured in a CUDA graph. A replay of the graph
// encodes with the Context of the capture. Device memory of the arguments must stay valid until the
// queued work is done. Host memory (Context, header, queue) is read during the call only.
//
// Threads: a CudaCodec is immutable, and any thread may call it. Calls whose queued work may run at
// the same time need different workspaces.
// Errors: before anything is queued, kInvalidArgument as in codec.h, or kUnimplemented for a blob
// of another version. kInternal if the CUDA runtime refuses a kernel; earlier kernels of the call
// may then be queued.
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
  // Returns kInvalidArgument for a codec that does not run on GPUs. `codec` must not be null.
  static StatusOr<CudaCodec> Create(std::shared_ptr<const Codec> codec);
  // The same for a codec string (registry.h).
  static StatusOr<CudaCodec> Create(std::string_view text);

  // Returns the same codec for the CPU, valid as long as this object.
  const Codec& cpu() const { return *cpu_; }
  // As Codec::MaxEncodedBytes.
  size_t MaxEncodedBytes(const Shape& shape) const { return cpu_->MaxEncodedBytes(shape); }
  // Returns the bytes of device memory that Encode and Decode need: a multiple of 64. 0 if they
  // need none, and for a shape that CheckShape (blob.h) refuses; the workspace may then be empty.
  size_t WorkspaceBytes(const Shape& shape) const;

  // Queues the encoding of `in`, whose data is in device memory, to the start of `blob`. `blob` has
  // at least MaxEncodedBytes and is aligned to 16 bytes, `workspace` to 64. The blob's header, on
  // the device, gets the blob's size and the count of non-finite tiles. `messages` is for aqsgd and
  // `tables` for predict; other codecs refuse both. A Stream converts to `queue`.
  Status Encode(const TensorView& in, const Context& context, DeviceSpan workspace, DeviceSpan blob,
                const KernelQueue& queue, const DeviceMessages& messages = {},
                const TablesOnDevice& tables = {}) const;

  // Queues the decoding of `blob`, exactly one blob aligned to 16 bytes, to `out`, device memory of
  // the blob's shape and any dtype. This call checks `header`, a host copy of the blob's first 64
  // bytes. The device finds errors in the payload and sets bits (kernel_args.h) in *fault_dev, a
  // word of device memory that the caller must have zeroed. The elements concerned then decode to
  // NaN, and the records must not be used. No blob makes a kernel touch memory outside its
  // arguments.
  Status Decode(std::span<const std::byte> header, DeviceSpan blob, DeviceSpan workspace,
                const MutableTensorView& out, uint32_t* fault_dev, const KernelQueue& queue,
                const DeviceMessages& messages = {}, const TablesOnDevice& tables = {}) const;

  // Queues the decoding of a blob whose header the host has not seen. A trusted peer must have made
  // the blob for this shape. The memory has `blob.bytes` bytes; a longer blob sets kFaultCut
  // (kernel_args.h) and is not decoded. Only for zip and dither; kUnimplemented for other codecs.
  // `fault_dev`: as for Decode, but this call does not check the pointer.
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
