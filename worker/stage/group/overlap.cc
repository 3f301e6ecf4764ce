#include "worker/stage/group/overlap.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace longhaul::worker {
namespace {

// What is queued on `later` from now on begins when what is queued on `before` is done.
void Follow(const c10::Stream& before, const c10::Stream& later) {
  c10::Event event(before.device_type());
  event.record(before);
  event.block(later);
}

}  // namespace

void Overlap::Defer(std::function<void()> work) {
  deferred_.push_back(std::move(work));
}

void Overlap::RunDeferred() {
  const at::NoGradGuard no_grad;
  for (const std::function<void()>& work : std::exchange(deferred_, {})) work();
}

at::Tensor Overlap::Exchange(const c10::Device& device,
                             const std::function<at::Tensor()>& exchange) {
  if (device.is_cpu() || deferred_.empty()) {
    at::Tensor result = exchange();
    RunDeferred();
    return result;
  }
  const c10::impl::VirtualGuardImpl devices(device.type());
  // The stream has high priority. An exchange needs few multiprocessors. Where products fill the
  // GPU it gets the next ones that become free.
  if (!stream_) stream_ = devices.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  const c10::Stream here = devices.getStream(device);
  // Memory needs no more than these two waits. What the exchange reads is held by who calls. What
  // it allocates is used again by later exchanges alone, which wait for all that `here` has read.
  Follow(here, *stream_);
  if (host_waits_) RunDeferred();
  at::Tensor result;
  {
    const c10::StreamGuard on_its_stream(*stream_);
    result = exchange();
  }
  RunDeferred();
  Follow(*stream_, here);
  return result;
}

}  // namespace longhaul::worker
