// A CUDA graph: work that is recorded once and launched many times. One call launches all of it.
//
//   LH_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(stream, [&] { return Encode(..., stream); }));
//   LH_RETURN_IF_ERROR(graph.Launch(stream));
//
// Move-only. Threads: one at a time.
// Errors: kInternal (Device::Check), unless a function says otherwise.
#pragma once

#include <absl/functional/function_ref.h>

#include "base/cuda/stream.h"

namespace longhaul::cuda {

class Graph {
 public:
  // Calls `queue` once, on this thread. Records the work that `queue` puts on `stream` instead of
  // running the work. Every launch uses the recorded addresses, so buffers must outlive the graph.
  // Returns the error of `queue`. Also fails if `queue` waits for the device or allocates its
  // memory.
  static StatusOr<Graph> Capture(const Stream& stream, absl::FunctionRef<Status()> queue);

  // Queues the whole graph on `stream` and returns without waiting for the device. Launches of one
  // graph run one after the other, in the order of the calls.
  Status Launch(const Stream& stream) const;

 private:
  Graph(const Device& device, Handle graph) : device_(device), graph_(std::move(graph)) {}
  Device device_;
  Handle graph_;
};

}  // namespace longhaul::cuda
