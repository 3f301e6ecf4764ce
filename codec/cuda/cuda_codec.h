// The codecs on a GPU, from and to device memory on the caller's stream. Blobs are those of codec.h
// to the byte.
//
//   LH_ASSIGN_OR_RETURN(const CudaCodec codec, CudaCodec::Create("fixed:bits=6"));
//   DeviceBuffer blob(codec.MaxEncodedBytes(shape)), workspace(codec.WorkspaceBytes(shape)) ...
//   LH_RETURN_IF_ERROR(codec.Encode(view, context, workspace, blob, stream));
//
// Records of a codec with state (message_store.h) are in host memory. The codec works on copies in
// device memory (DeviceMessages), which message_staging.h copies there and back. Ids in the context
// without these copies are an error.
//
// What predict knows of tokens is in device memory (DeviceTables), which also is told of each
// tensor before the call.
//
// Every pointer is to memory of the stream's device. Encode and Decode only queue work: they
// allocate no device memory, never wait, and may be captured in a CUDA graph (a replay encodes with
// the Context of the capture). All arguments must live until the work is done.
//
// Threads: immutable; any thread, each call with a workspace of its own that no other queued call
// uses at the same time.
// Errors, before anything is queued: kInvalidArgument as in codec.h, kUnimplemented for a blob of
// another version, kInternal for a refusal of the CUDA runtime.
#ifndef LONGHAUL_CODEC_CUDA_CUDA_CODEC_H_
#define LONGHAUL_CODEC_CUDA_CUDA_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/aqsgd/arithmetic.h"
#include "codec/blob.h"
#include "codec/codec.h"

namespace longhaul::codec::cuda {

// Device memory. Not owned.
struct DeviceSpan {
  void* data_dev = nullptr;
  size_t bytes = 0;
};

// The records of a tensor's samples, in its order; none if `entries` is empty. Both spans are
// aligned to 16 bytes.
struct DeviceMessages {
  DeviceSpan entries;  // an aqsgd::Entry a sample
  // A record of MessageBytes for each sample. In: the old record, or any bytes. Out: the new
  // record, where the blob says that the sample is remembered.
  DeviceSpan records;
};

class DeviceTables;  // device_tables.h

class CudaCodec {
 public:
  // `text`: a codec string (registry.h) with kernels: all of them.
  static StatusOr<CudaCodec> Create(std::string_view text);

  const Codec& cpu() const { return *cpu_; }
  // The codec's number and parameters, as blobs have them.
  const BlobHeader& kind() const { return kind_; }
  // As Codec has them; SIZE_MAX for a shape that CheckShape refuses.
  size_t MaxEncodedBytes(const Shape& shape) const { return cpu_->MaxEncodedBytes(shape); }
  // Device memory that Encode and Decode need, 0 for none; a multiple of 64.
  size_t WorkspaceBytes(const Shape& shape) const;

  // Queues the encoding of `in` (data in device memory, aligned to its element) to the start of
  // `blob`, which has at least MaxEncodedBytes. A codec of fixed size writes exactly that many
  // bytes; others write as many as the blob's header says. The header also counts non-finite tiles.
  // `blob` is aligned to 16 bytes, `workspace` to 64.
  Status Encode(const TensorView& in, const Context& context, DeviceSpan workspace, DeviceSpan blob,
                const longhaul::cuda::Stream& stream, const DeviceMessages& messages = {},
                const DeviceTables* tables = nullptr) const;

  // Queues the decoding of the blob at `blob` (exactly one, aligned to 16 bytes) to `out` (device
  // memory, any dtype, the blob's shape). `header`: host copy of the blob's first 64 bytes, which
  // are checked here. The device finds errors in the payload: *fault_dev, a word that the caller
  // zeroed before, becomes nonzero, the samples concerned decode to NaN, and records are useless.
  // No blob makes a kernel touch memory outside its arguments.
  Status Decode(std::span<const std::byte> header, DeviceSpan blob, DeviceSpan workspace,
                const MutableTensorView& out, uint32_t* fault_dev,
                const longhaul::cuda::Stream& stream, const DeviceMessages& messages = {},
                const DeviceTables* tables = nullptr) const;

  // The same for a blob whose header the host has not seen, for `zip` alone (kUnimplemented for
  // others): it was made by a peer that is trusted, for this shape. `blob.bytes` of it are there; a
  // longer one sets kFaultCut (kernel_table.h), and nothing is decoded.
  Status DecodeUnseen(DeviceSpan blob, const MutableTensorView& out, uint32_t* fault_dev,
                      const longhaul::cuda::Stream& stream) const;

 private:
  CudaCodec(std::shared_ptr<const Codec> cpu, const BlobHeader& kind,
            std::shared_ptr<const CudaCodec> within)
      : cpu_(std::move(cpu)), kind_(kind), within_(std::move(within)) {}

  std::shared_ptr<const Codec> cpu_;
  BlobHeader kind_;                          // codec and parameters
  std::shared_ptr<const CudaCodec> within_;  // of predict's differences; else null
};

}  // namespace longhaul::codec::cuda

#endif  // LONGHAUL_CODEC_CUDA_CUDA_CODEC_H_
