// Memory, copies and sums for compressed collectives, in the memory that holds a communicator's
// tensors (host or device). The host engine's calls are done when they return. A CUDA engine's
// calls are queued and may be recorded in a CUDA graph, except Allocate, Read and Await.
//
// Errors: kInternal if CUDA fails; kResourceExhausted if there is no memory; kInvalidArgument for
// too many parts or words.
//
// Not thread-safe: each rank has its own engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/cuda/device.h"
#include "base/status.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective {

// Memory that an engine allocated, aligned to 256 bytes, uninitialised. Move-only. Freeing device
// memory waits for the device's queued work.
class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(std::byte* data, size_t size, std::shared_ptr<void> owner)
      : data_(data), size_(size), owner_(std::move(owner)) {}
  OwnedMemory(OwnedMemory&&) = default;
  OwnedMemory& operator=(OwnedMemory&&) = default;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<void> owner_;
};

// Maximum number of parts in Sum and Largest.
inline constexpr size_t kMaxParts = 64;

class Engine {
 public:
  static std::unique_ptr<Engine> ForHost();
  static StatusOr<std::unique_ptr<Engine>> ForDevice(const cuda::Device& device);
  virtual ~Engine() = default;

  // Null if the engine uses host memory. The device lives as long as the engine.
  virtual const cuda::Device* device() const = 0;
  virtual StatusOr<OwnedMemory> Allocate(size_t bytes) = 0;
  // On a device, neither side may be pageable host memory.
  virtual Status Copy(void* to, const void* from, size_t bytes, Queue queue) = 0;
  // Sums the parts element by element in fp32, in the order of parts, and rounds once to `dtype`.
  // `out` may be one of the parts. kInvalidArgument: no part, too many, or `dtype` is kBytes.
  virtual Status Sum(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
                     Queue queue) = 0;
  // Like Sum, but writes the maximum. The maximum is NaN if any of the elements is NaN.
  virtual Status Largest(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
                         Queue queue) = 0;
  // Sets `bytes` bytes to zero. `to` and `bytes` must be multiples of 4.
  virtual Status Zero(void* to, size_t bytes, Queue queue) = 0;

  // Queues a copy of 8-byte words, one from each pointer of `from`, to the host. Pointers must be
  // aligned to 8 bytes; there may be up to 2 * kMaxParts. Returns the read's number for Await.
  virtual StatusOr<uint64_t> Read(std::span<const void* const> from, Queue queue) = 0;
  // Waits for the words of `read`, and returns them in the order of `from`. While waiting, calls
  // `ended` again and again on this thread; if `ended` returns an error, Await returns that error.
  // kDeadlineExceeded: the words did not come by `deadline`. Only the last kReads reads can be
  // awaited, and only their results stay valid.
  virtual StatusOr<std::span<const uint64_t>> Await(uint64_t read,
                                                    const std::function<Status()>& ended,
                                                    Deadline deadline) = 0;
  static constexpr uint64_t kReads = 8;
};

// Calls `work` with a new queue and waits for the queue, at most 1 minute. Launch each kernel in
// this way when a communicator is made. CUDA loads a kernel at its first launch, and may then wait
// for the device. Later that could deadlock: the device may run a collective that waits for this
// rank.
Status LaunchOnce(const cuda::Device& device, const std::function<Status(Queue queue)>& work);

}  // namespace longhaul::collective
