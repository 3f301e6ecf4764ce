// Work of a GPU that is recorded once and then queued again and again, as one launch: a stage's
// forward and backward are hundreds of short kernels, which a CPU launches no faster than they run.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_TORCH_GRAPH_H_
#define LONGHAUL_WORKER_STAGE_TORCH_GRAPH_H_

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace longhaul::worker {

class TorchGraph {
 public:
  virtual ~TorchGraph() = default;
  // Queues what was recorded on the stream that this thread computes on. It reads and writes the
  // memory that it did when it was recorded.
  virtual void Replay() = 0;
};

class TorchGraphRecorder {
 public:
  // Where graphs that were recorded into it have what they allocate. Nothing else uses it, and it
  // is there as long as one of them is; when the last is gone, or recording the only one has
  // failed, nothing more is recorded into it. A graph may overwrite whatever was in tensors that
  // were gone when it was recorded; so in a memory for several graphs nothing stays from one replay
  // to the next but in tensors that somebody held while all of them were recorded.
  using Memory = c10::MempoolId_t;

  virtual ~TorchGraphRecorder() = default;
  virtual Memory NewMemory() = 0;
  // Calls `work`, whose kernels are recorded and do not run. All of the same kind have run before,
  // so that libraries have what they need; nothing in it may wait for the device.
  virtual std::unique_ptr<TorchGraph> Record(const Memory& memory,
                                             const std::function<void()>& work) = 0;
};

// Of a GPU; LoadTorchCuda came before (torch_cuda.h).
std::unique_ptr<TorchGraphRecorder> MakeTorchGraphRecorder(const c10::Device& device);

// What liblonghaul_torch_cuda.so has for that, under this name.
inline constexpr const char* kMakeTorchGraphRecorder = "longhaul_make_torch_graph_recorder";
using MakeTorchGraphRecorderFunction = TorchGraphRecorder*(const c10::Device&);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_TORCH_GRAPH_H_
