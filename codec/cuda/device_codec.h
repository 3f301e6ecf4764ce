// The GPU part of a codec: makes the arguments of the codec's kernels, and queues the kernels. The
// codec family X defines its DeviceCodec in codec/X/cuda/device.cc. CudaCodec (cuda_codec.h) checks
// arguments and blobs first.
//
// Threads: a DeviceCodec is immutable, and any thread may call it. Errors: as in cuda_codec.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/codec.h"
#include "codec/cuda/kernel_args.h"
#include "codec/cuda/kernel_queue.h"
#include "codec/predict/tables.h"
#include "codec/rounding.h"

namespace longhaul::codec::cuda {

// A range of device memory that another object owns. Null with 0 bytes: no memory.
struct DeviceSpan {
  void* data_dev = nullptr;
  size_t bytes = 0;
  unsigned char* start() const { return static_cast<unsigned char*>(data_dev); }
};

// The records of a tensor's samples, in the order of the tensor. Without records both spans are
// empty. Both are aligned to 16 bytes.
struct DeviceMessages {
  DeviceSpan entries;  // an aqsgd::Entry for each sample
  // MessageBytes for each sample. Before the call: the old record, or any bytes if there is none.
  // After the call: the new record, if the blob stores the sample.
  DeviceSpan records;
};

class DeviceTables;  // device_tables.h

// What a codec needs of DeviceTables, for one tensor. The tables must outlive the queued work. The
// addresses are those of the methods of DeviceTables with the same names; null without tables.
struct TablesOnDevice {
  TablesOnDevice() = default;
  // Null: no tables.
  TablesOnDevice(const DeviceTables* tables);  // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return state_dev != nullptr; }

  predict::TablesShape shape;
  // Number of ids at ids_dev: one for each token of the tensor. 0: a decoder reads the ids from the
  // blob.
  uint64_t ids = 0;
  bool learns = false;
  std::byte* memory_dev = nullptr;
  void* state_dev = nullptr;
  const uint32_t* ids_dev = nullptr;
};

// The arguments of one call. CudaCodec has checked them. A DeviceCodec uses the references during
// the call only.
struct EncodeCall {
  const TensorView& in;  // in device memory, not empty
  const Context& context;
  HeaderArgs header;  // the blob's header, with the largest payload size of the shape
  DeviceSpan workspace, blob;
  DeviceMessages messages;
  TablesOnDevice tables;
  const KernelQueue& queue;
};
struct DecodeCall {
  // The blob's header, checked against the codec. Null: the host has not seen it (DecodeUnseen).
  const BlobHeader* header;
  DeviceSpan blob, workspace;
  const MutableTensorView& out;  // in device memory, not empty
  uint32_t* fault_dev;           // a word that gets the bits kFault... of kernel_args.h
  DeviceMessages messages;
  TablesOnDevice tables;
  const KernelQueue& queue;
};

class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  // Returns the bytes of device memory that Encode and Decode need for this shape: a multiple
  // of 64. The shape must have elements.
  virtual uint64_t WorkspaceBytes(const Shape& /*shape*/) const { return 0; }
  // Returns whether Decode takes a blob whose header the host has not seen.
  virtual bool decodes_unseen() const { return false; }
  // Checks that the tables fit this codec and a tensor of this shape; kInvalidArgument if not.
  virtual Status CheckTables(const TablesOnDevice& /*tables*/, const Shape& /*shape*/) const {
    return absl::OkStatus();
  }
  // Encode and Decode queue the kernels, and do not wait.
  virtual Status Encode(const EncodeCall& call) const = 0;
  virtual Status Decode(const DecodeCall& call) const = 0;
};

// Make a kernel's tensor argument. Encoders get a `void*`, too, but only read the tensor.
// `view.data` is a device address.
inline TensorArgs MakeTensorArgs(const TensorView& view) {
  const Shape& shape = view.shape;
  return {const_cast<void*>(view.data), static_cast<uint32_t>(view.dtype), shape.samples,
          shape.tokens, shape.channels};
}
inline TensorArgs MakeTensorArgs(const MutableTensorView& view) {
  return MakeTensorArgs(TensorView{view.data, view.dtype, view.shape});
}
// Sets the key of stochastic rounding for the context's tensor.
inline void SetNoise(const Context& context, uint32_t (&block)[4]) {
  const RoundingNoise noise(context);
  for (size_t k = 0; k < 4; ++k) block[k] = noise.block()[k];
}

}  // namespace longhaul::codec::cuda
