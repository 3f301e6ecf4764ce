// CUDA graphs: GPU work that is recorded once and then replayed with one launch. Forward and
// backward of a stage are hundreds of short kernels. The CPU would need as long to launch these
// kernels one by one as the GPU needs to run them.
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
  // Queues the recorded work on this thread's current stream. The work reads and writes the same
  // addresses as when it was recorded.
  virtual void Replay() = 0;
};

class TorchGraphRecorder {
 public:
  // A memory pool in which only graphs allocate. The pool lives as long as one of its graphs. Do
  // not record into a pool any more when its last graph is gone, or when the recording of its only
  // graph has failed.
  //
  // A replay of a graph may overwrite each tensor that was freed before the graph was recorded. So
  // if several graphs share a pool, a tensor keeps its contents between replays only if the tensor
  // was alive while all these graphs were recorded.
  using Memory = c10::MempoolId_t;

  virtual ~TorchGraphRecorder() = default;
  virtual Memory NewMemory() = 0;
  // Calls `work` and records its kernels, which do not run now. `work` must not wait for the
  // device. Work of the same kind must have run before without a recording, so that libraries are
  // initialized. The graph uses memory of tensors outside the pool by address: keep these tensors
  // as long as the graph.
  virtual std::unique_ptr<TorchGraph> Record(const Memory& memory,
                                             const std::function<void()>& work) = 0;
};

// `device` must be a GPU. Call LoadTorchCuda first (torch_cuda.h).
std::unique_ptr<TorchGraphRecorder> MakeTorchGraphRecorder(const c10::Device& device);

// The name under which liblonghaul_torch_cuda.so exports the function that makes a recorder.
inline constexpr const char* kMakeTorchGraphRecorder = "longhaul_make_torch_graph_recorder";
using MakeTorchGraphRecorderFunction = TorchGraphRecorder*(const c10::Device&);

}  // namespace longhaul::worker
