#include "worker/stage/device/torch_scope.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <new>
#include <string>
#include <utility>

#include "base/cuda/device_lost.h"

namespace longhaul::worker {

void UseTorchThreads(uint32_t threads) {
  // May be called once in a process, before the first use of the pool.
  static const bool interop_set = [] {
    if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
    return true;
  }();
  static_cast<void>(interop_set);
  if (at::get_num_threads() != static_cast<int>(threads)) {
    at::set_num_threads(static_cast<int>(threads));
  }
}

Status FromTorchException(std::string_view what, const std::exception& error) {
  if (const auto* carried = dynamic_cast<const StatusError*>(&error)) return carried->status();
  std::string words = error.what();
  bool out_of_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                       dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    words = torch_error->what_without_backtrace();
    // The CPU allocator throws the general class; so do CUDA's own calls, as the one that makes a
    // recorded graph ready.
    for (const char* said : {"DefaultCPUAllocator", "CUDA error: out of memory"}) {
      out_of_memory |= words.find(said) != std::string::npos;
    }
  }
  if (!out_of_memory) {
    Status status = Internal("{}: {}", what, words);
    return cuda::LosesDevice(words) ? cuda::DeviceLost(std::move(status)) : status;
  }
  return ResourceExhausted(
      "{}: this machine's memory does not suffice ({}); use more stages, pipeline.recompute, a "
      "smaller pipeline.depth or a smaller train.microbatch_size",
      what, words);
}

}  // namespace longhaul::worker
