// Overlaps the exchanges in a rank's backward with the computation of weight gradients. The
// exchanges run on a stream of their own. Weight gradients can be computed late, because nothing
// else in backward needs them.
//
//   overlap.Defer([=] { ... });                               // a product's weight gradient
//   at::Tensor sum = overlap.Exchange(device, [&] { ... });   // also runs deferred work
//   overlap.RunDeferred();                                    // work that no exchange has run
//
// On a GPU the exchange's stream waits for all work that the rank has queued before. Afterwards the
// rank's stream waits for the exchange. Both waits are CUDA events, so a CUDA graph can record
// them. On the CPU the exchange and the deferred work run one after the other. Results do not
// depend on the overlap.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions. After an exception the group has ended; do not use the Overlap any more.
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
  // `host_waits`: true if an exchange blocks the host until the device is done. Then Exchange
  // queues the deferred work before the exchange; else after it.
  explicit Overlap(bool host_waits) : host_waits_(host_waits) {}
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  // Keeps `work` for the next Exchange or RunDeferred. Deferred work runs in order, on the stream
  // that is current when it runs. It must not call Exchange.
  void Defer(std::function<void()> work);
  // Runs `exchange` and the deferred work, and returns the result of `exchange`. Later work on this
  // thread's current stream of `device` may use the result. `exchange` may read tensors that
  // earlier work on this stream computes. Tensors that `exchange` allocates belong to the
  // exchange's own stream.
  at::Tensor Exchange(const c10::Device& device, const std::function<at::Tensor()>& exchange);
  // Runs the deferred work without an exchange.
  void RunDeferred();

 private:
  const bool host_waits_;
  std::vector<std::function<void()>> deferred_;
  std::optional<c10::Stream> stream_;  // set by the first exchange on a GPU
};

}  // namespace longhaul::worker
