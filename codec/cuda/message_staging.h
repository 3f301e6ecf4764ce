// Copies the records of a tensor's samples (codec/message_store.h) to the device and back, for a
// codec with records (aqsgd):
//
//   LH_RETURN_IF_ERROR(staging.Load(context, &stream));
//   LH_RETURN_IF_ERROR(codec.Encode(view, context, workspace, blob, stream, staging.messages()));
//   LH_RETURN_IF_ERROR(staging.Fetch(&stream));
//   ...                     // copy the blob to the host, and wait until all copies are done
//   LH_RETURN_IF_ERROR(staging.Remember(context, blob_of_host));
//
// A receiver calls Check between Load and Decode, and Remember only if the device found no fault.
// Without sample ids in the context no record changes, and nothing is copied.
//
// Threads: any thread, one call at a time, as for the store. Load and Fetch do not wait; the copies
// of an earlier Load or Fetch must be done. Streams must not be null, and are not kept. Errors:
// kInvalidArgument, as for the codec on a CPU, and errors of the device. Remember also returns
// errors of the store.
#pragma once

#include <cstddef>
#include <span>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/aqsgd/arithmetic.h"
#include "codec/cuda/cuda_codec.h"

namespace longhaul::codec::cuda {

class MessageStaging {
 public:
  // Allocates host and device memory for tensors of this shape. kFailedPrecondition if the codec
  // has no records or the shape has no elements.
  static StatusOr<MessageStaging> Create(const longhaul::cuda::Device& device,
                                         const CudaCodec& codec, const Shape& shape);

  // Reads the records of the context's samples from its store, and queues copies to the device.
  Status Load(const Context& context, longhaul::cuda::Stream* stream);
  // Returns the copies on the device for the tensor of the last Load. The memory belongs to this
  // object. Empty if the last Load had no sample ids.
  DeviceMessages messages();
  // Checks a blob's header, and its samples against the last Load, as the decoder on the CPU does.
  Status Check(std::span<const std::byte> blob) const;
  // Queues the copies of the records from the device to the host.
  Status Fetch(longhaul::cuda::Stream* stream);
  // Copies the fetched records to the store, except those of samples that are transient
  // (codec/aqsgd/format.h). `context`: as for Load.
  Status Remember(const Context& context, std::span<const std::byte> blob);

 private:
  struct Buffers {
    longhaul::cuda::PinnedBuffer host;
    longhaul::cuda::DeviceBuffer device;
  };
  static StatusOr<Buffers> MakeBuffers(const longhaul::cuda::Device& device, size_t bytes);

  MessageStaging(const Shape& shape, const CodecKind& kind, size_t record_bytes, Buffers entries,
                 Buffers records)
      : shape_(shape),
        kind_(kind),
        record_bytes_(record_bytes),
        entries_(std::move(entries)),
        records_(std::move(records)) {}
  std::span<aqsgd::Entry> entries();
  std::span<const aqsgd::Entry> entries() const;

  Shape shape_;
  CodecKind kind_;
  size_t record_bytes_;
  bool remembers_ = false;
  Buffers entries_, records_;
};

}  // namespace longhaul::codec::cuda
