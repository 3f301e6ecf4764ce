// What compressed collectives do beside sending, where a communicator's tensors lie: memory of
// their own, copies, sums. One for host memory, whose calls are done when they return, and one for
// a CUDA device, whose calls are queued and may be recorded in a graph.
//
// Not thread-safe: an engine belongs to a rank.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_ENGINE_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/cuda/device.h"
#include "base/status.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective {

// Owned memory of an engine, aligned to 256 bytes; its contents are undefined. Move-only. Freeing
// it waits for the device's work.
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

// Most parts of a sum.
inline constexpr size_t kMaxParts = 64;

class Engine {
 public:
  static std::unique_ptr<Engine> ForHost();
  static StatusOr<std::unique_ptr<Engine>> ForDevice(const cuda::Device& device);
  virtual ~Engine() = default;

  // Null: host memory.
  virtual const cuda::Device* device() const = 0;
  virtual StatusOr<OwnedMemory> Allocate(size_t bytes) = 0;
  // Neither side may be pageable host memory.
  virtual Status Copy(void* to, const void* from, size_t bytes, Queue queue) = 0;
  // out[i] = the parts' elements i summed in fp32 in the parts' order, rounded once to `dtype`.
  // `out` may be one of the parts.
  virtual Status Sum(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
                     Queue queue) = 0;
  // The largest instead; where one is a NaN, that.
  virtual Status Largest(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
                         Queue queue) = 0;
  // Sets bytes to zero; `to` and `bytes` are multiples of 4.
  virtual Status Zero(void* to, size_t bytes, Queue queue) = 0;

  // Reads the 8-byte word at each of `from` (aligned to 8) when the queue comes there. The words
  // are in `to` after Await of the number that this gave.
  virtual StatusOr<uint64_t> Read(std::span<const void* const> from, Queue queue) = 0;
  // Waits until the words of `read` are there; asks `ended` meanwhile, and gives up with what it
  // says. The newest kReads reads can be awaited.
  virtual StatusOr<std::span<const uint64_t>> Await(uint64_t read,
                                                    const std::function<Status()>& ended,
                                                    Deadline deadline) = 0;
  static constexpr uint64_t kReads = 8;
};

// Runs `work` on a queue of its own and waits for it. CUDA loads a kernel when it is first
// launched, and may wait for the device for that: for ever, where the device is at a collective
// that waits for this rank. So whoever makes a communicator launches once what its calls launch.
Status LaunchOnce(const cuda::Device& device, const std::function<Status(Queue queue)>& work);

}  // namespace longhaul::collective

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_ENGINE_H_
