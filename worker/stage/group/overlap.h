// Exchanges of backward that have a stream of their own, and what a rank computes beside them:
// weight gradients, for which nothing in backward waits.
//
//   overlap.Defer([=] { ... });                                  // a product's weight gradient
//   at::Tensor sum = overlap.Exchange(device, [&] { ... });      // and all that was deferred
//   overlap.RunDeferred();                                       // what no exchange came after
//
// On a GPU the exchange's stream waits for what the rank has queued before, and the rank's stream
// then for the exchange; both by events, so that a graph records it. On the CPU one comes after the
// other. Numbers do not depend on it.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions, after which an Overlap is of no use, as its group has ended.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_OVERLAP_H_
#define LONGHAUL_WORKER_STAGE_GROUP_OVERLAP_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>
#include <vector>

namespace longhaul::worker {

class Overlap {
 public:
  // `host_waits`: an exchange has the host wait for the device, so what is deferred is queued
  // before it and not after it.
  explicit Overlap(bool host_waits) : host_waits_(host_waits) {}
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  // `work` exchanges nothing, and runs on the stream that this thread then computes on, in the
  // order in which it came.
  void Defer(std::function<void()> work);
  // What `exchange` gives, ready for the stream that this thread computes on. It reads what was
  // queued there, of `device`, and what it allocates is its stream's.
  at::Tensor Exchange(const c10::Device& device, const std::function<at::Tensor()>& exchange);
  void RunDeferred();

 private:
  const bool host_waits_;
  std::vector<std::function<void()>> deferred_;
  std::optional<c10::Stream> stream_;  // from the first exchange of a GPU on
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_OVERLAP_H_
