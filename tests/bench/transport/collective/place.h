// Where a rank's tensors lie and its calls are queued: host memory, or one GPU. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/stream.h"
#include "base/status.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective::bench {

class Place {
 public:
  static std::unique_ptr<Place> Host();
  static StatusOr<std::unique_ptr<Place>> Gpu(const cuda::Device& device);
  virtual ~Place() = default;

  // Null: host memory.
  virtual const cuda::Device* device() const = 0;
  virtual const cuda::Stream* stream() const = 0;
  Queue queue() const { return {stream() == nullptr ? nullptr : stream()->handle()}; }

  // Lives as long as the place.
  virtual StatusOr<std::byte*> Allocate(size_t bytes) = 0;
  // Queued; both sides are memory of this place.
  virtual Status Copy(void* to, const void* from, size_t bytes) = 0;

  // Writes `bytes` at `to`, in pieces that `fill` makes: (first byte, piece).
  using Fill = std::function<void(size_t at, std::span<std::byte> piece)>;
  virtual Status Write(void* to, size_t bytes, const Fill& fill) = 0;
  // Reads them in pieces that `look` sees.
  using Look = std::function<void(size_t at, std::span<const std::byte> piece)>;
  virtual Status Read(const void* from, size_t bytes, const Look& look) = 0;
};

}  // namespace longhaul::collective::bench
