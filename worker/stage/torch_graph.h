// Work of a GPU that is recorded once and then queued again and again, as one launch: a stage's
// forward and backward are hundreds of short kernels, which a CPU launches no faster than they run.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_TORCH_GRAPH_H_
#define LONGHAUL_WORKER_STAGE_TORCH_GRAPH_H_

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

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
  virtual ~TorchGraphRecorder() = default;
  // Calls each of `works`, whose kernels are recorded and do not run: a graph for each. What they
  // allocate comes out of memory that is theirs alone, for as long as one of the graphs is there;
  // what an earlier one leaves is there for a later one, so they are replayed in this order.
  // All of the same kind has run before, so that libraries have what they need; nothing in it may
  // wait for the device.
  virtual std::vector<std::unique_ptr<TorchGraph>> Record(
      const std::vector<std::function<void()>>& works) = 0;
};

// Of a GPU; LoadTorchCuda came before (torch_cuda.h).
std::unique_ptr<TorchGraphRecorder> MakeTorchGraphRecorder(const c10::Device& device);

// What liblonghaul_torch_cuda.so has for that, under this name.
inline constexpr const char* kMakeTorchGraphRecorder = "longhaul_make_torch_graph_recorder";
using MakeTorchGraphRecorderFunction = TorchGraphRecorder*(const c10::Device&);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_TORCH_GRAPH_H_
