// CUDA graphs: GPU work that is recorded once and then replayed with one launch. Forward and
// backward of a stage are hundreds of short kernels; launching them takes a CPU as long as running
// them takes the GPU.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace longhaul::worker {

class TorchGraph {
 public:
  virtual ~TorchGraph() = default;
  // Queues the recorded work on this thread's current stream. The work uses the same addresses as
  // when it was recorded.
  virtual void Replay() = 0;
};

class TorchGraphRecorder {
 public:
  // The memory pool in which graphs allocate; nothing else uses it. A pool lives as long as one of
  // its graphs. When the last graph is gone, or when recording the only one failed, record nothing
  // more into the pool. Replaying a graph may overwrite every tensor that had been freed before the
  // graph was recorded. So if several graphs share a pool, a tensor keeps its contents between
  // replays only if it was alive while all of them were recorded.
  using Memory = c10::MempoolId_t;

  virtual ~TorchGraphRecorder() = default;
  virtual Memory NewMemory() = 0;
  // Calls `work` and records its kernels without running them. Work of the same kind must have run
  // before, so that libraries are initialised. `work` must not wait for the device.
  virtual std::unique_ptr<TorchGraph> Record(const Memory& memory,
                                             const std::function<void()>& work) = 0;
};

// For a GPU; call LoadTorchCuda first (torch_cuda.h).
std::unique_ptr<TorchGraphRecorder> MakeTorchGraphRecorder(const c10::Device& device);

// The symbol by which liblonghaul_torch_cuda.so exports the maker.
inline constexpr const char* kMakeTorchGraphRecorder = "longhaul_make_torch_graph_recorder";
using MakeTorchGraphRecorderFunction = TorchGraphRecorder*(const c10::Device&);

}  // namespace longhaul::worker
