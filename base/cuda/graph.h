// A CUDA graph: work that is recorded once and launched many times, at the cost of one launch.
//
//   LH_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(stream, [&] { return Encode(..., stream); }));
//   LH_RETURN_IF_ERROR(graph.Launch(stream));
//
// Move-only; one thread at a time.
#pragma once

#include <absl/functional/function_ref.h>

#include "base/cuda/stream.h"

namespace longhaul::cuda {

class Graph {
 public:
  // Records the work that `queue` queues on `stream`; nothing runs. Every launch uses the recorded
  // addresses. Fails if `queue` waits for the device or allocates.
  static StatusOr<Graph> Capture(const Stream& stream, absl::FunctionRef<Status()> queue);

  // Queues the whole graph. Launches run one after another, in order.
  Status Launch(const Stream& stream) const;

 private:
  Graph(const Device& device, Handle graph) : device_(device), graph_(std::move(graph)) {}
  Device device_;
  Handle graph_;
};

}  // namespace longhaul::cuda
