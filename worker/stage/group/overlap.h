// Overlaps a rank's backward exchanges, which run on a stream of their own, with weight gradients,
// on which nothing in backward depends.
//
//   overlap.Defer([=] { ... });                                  // a product's weight gradient
//   at::Tensor sum = overlap.Exchange(device, [&] { ... });      // and all that was deferred
//   overlap.RunDeferred();                                       // what no exchange came after
//
// On a GPU the exchange's stream waits for everything that the rank queued before, and afterwards
// the rank's stream waits for the exchange. Both waits are events, so a CUDA graph can record them.
// On the CPU the two run one after the other. Results do not depend on the overlap.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions, after which the Overlap cannot be used, as its group has ended.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>
#include <vector>

namespace longhaul::worker {

class Overlap {
 public:
  // `host_waits`: the exchange blocks the host until the device is done, so deferred work is queued
  // before the exchange and not after it.
  explicit Overlap(bool host_waits) : host_waits_(host_waits) {}
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  // Defers `work` to the next Exchange or RunDeferred. Deferred work runs in order, on the stream
  // that is then current, and must not exchange anything.
  void Defer(std::function<void()> work);
  // Runs `exchange` and the deferred work, and returns the exchange's result, ready for this
  // thread's current stream. `exchange` may read tensors queued there on `device`; its allocations
  // belong to the exchange's stream.
  at::Tensor Exchange(const c10::Device& device, const std::function<at::Tensor()>& exchange);
  void RunDeferred();

 private:
  const bool host_waits_;
  std::vector<std::function<void()>> deferred_;
  std::optional<c10::Stream> stream_;  // set by the first exchange on a GPU
};

}  // namespace longhaul::worker
