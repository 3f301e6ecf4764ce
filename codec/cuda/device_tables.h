// Keeps tables of predict (codec/predict/tables.h) in a GPU's memory, together with the token ids
// of the next tensor.
//
//   LH_RETURN_IF_ERROR(tables.Load(context, &stream));
//   LH_RETURN_IF_ERROR(codec.Encode(view, context, workspace, blob, stream, {}, &tables));
//
// Encode and Decode also queue the updates of the tables, so all calls with the same tables must be
// on one stream. No stream may be null, and none is kept after the call.
//
// Threads: any thread, one call at a time. Errors: kInvalidArgument, as for the codec on a CPU;
// errors of the device; kDeadlineExceeded if a call waits for more than 60 s.
#pragma once

#include <cstdint>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "base/status.h"
#include "codec/codec.h"
#include "codec/predict/tables.h"

namespace longhaul::codec::cuda {

class DeviceTables {
 public:
  // Makes untrained tables for tensors of at most `tokens` tokens. Waits until the tables are
  // zeroed. kResourceExhausted: too little memory.
  static StatusOr<DeviceTables> Create(longhaul::cuda::Stream* stream,
                                       const predict::TablesShape& shape, uint64_t tokens);
  // Returns the bytes of device memory that such tables take.
  static uint64_t Bytes(const predict::TablesShape& shape, uint64_t tokens);

  const predict::TablesShape& shape() const { return shape_; }

  // Takes `learns` and the token ids of the next tensor from the context, and queues the copy of
  // the ids to the device. The context of a decoder may lack ids. Does not wait; the copy of an
  // earlier Load must be done. The context's ids may be freed when Load returns.
  Status Load(const Context& context, longhaul::cuda::Stream* stream);
  // The same for ids in device memory. Every id must be below the vocabulary; this is not checked.
  // `ids_dev` must not change until the copy is done.
  Status LoadFromDevice(const uint32_t* ids_dev, uint64_t tokens, bool learns,
                        longhaul::cuda::Stream* stream);
  // The number of ids and the flag of the last Load or LoadFromDevice.
  uint64_t ids() const { return ids_; }
  bool learns() const { return learns_; }

  // Check returns the hash of all updates so far (Tables::check). Restore copies `tables` to the
  // device. Save copies from the device to `tables`. `tables` must have the same shape. Each call
  // waits for the work queued on the stream, 60 s at most.
  StatusOr<uint64_t> Check(longhaul::cuda::Stream* stream) const;
  Status Restore(const predict::Tables& tables, longhaul::cuda::Stream* stream);
  Status Save(longhaul::cuda::Stream* stream, predict::Tables* tables) const;

  // Addresses for kernels, valid as long as this object. Kernels change all of this memory except
  // the ids. memory_dev: all numbers, as TablesShape lays them out. state_dev: the hash of all
  // updates (PredictState of predict/cuda/kernels.h).
  std::byte* memory_dev() const { return static_cast<std::byte*>(Address(memory_)); }
  void* state_dev() const { return Address(state_); }
  const uint32_t* ids_dev() const { return static_cast<const uint32_t*>(Address(ids_on_device_)); }

 private:
  DeviceTables(const predict::TablesShape& shape, longhaul::cuda::DeviceBuffer memory,
               longhaul::cuda::DeviceBuffer state, longhaul::cuda::DeviceBuffer ids_on_device,
               longhaul::cuda::PinnedBuffer ids_on_host)
      : shape_(shape),
        memory_(std::move(memory)),
        state_(std::move(state)),
        ids_on_device_(std::move(ids_on_device)),
        ids_on_host_(std::move(ids_on_host)) {}
  static void* Address(const longhaul::cuda::DeviceBuffer& buffer) {
    return const_cast<void*>(buffer.data_dev());
  }
  Status SetCheck(uint64_t check, longhaul::cuda::Stream* stream);
  Status CheckRoom(uint64_t tokens) const;

  predict::TablesShape shape_;
  longhaul::cuda::DeviceBuffer memory_;
  longhaul::cuda::DeviceBuffer state_;  // PredictState
  longhaul::cuda::DeviceBuffer ids_on_device_;
  longhaul::cuda::PinnedBuffer ids_on_host_;
  uint64_t ids_ = 0;
  bool learns_ = false;
};

}  // namespace longhaul::codec::cuda
