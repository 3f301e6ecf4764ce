// A CUDA graph: work that is recorded once and launched many times. One call launches all of it.
//
//   LH_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(stream, [&] { return Encode(..., stream); }));
//   LH_RETURN_IF_ERROR(graph.Launch(stream));
//
// Move-only. Threads: one at a time.
#pragma once

#include <absl/functional/function_ref.h>

#include "base/cuda/stream.h"

namespace longhaul::cuda {

class Graph {
 public:
  // Calls `queue`, and records the work that it queues on `stream` instead of running the work.
  // Every launch uses the recorded addresses of buffers. Fails if `queue` fails, waits for the
  // device or allocates device memory.
  static StatusOr<Graph> Capture(const Stream& stream, absl::FunctionRef<Status()> queue);

  // Queues the whole graph on `stream`. Launches of one graph run one after the other, in the order
  // of the calls.
  Status Launch(const Stream& stream) const;

 private:
  Graph(const Device& device, Handle graph) : device_(device), graph_(std::move(graph)) {}
  Device device_;
  Handle graph_;
};

}  // namespace longhaul::cuda
