#include "base/cuda/graph.h"

namespace longhaul::cuda {

StatusOr<Graph> Graph::Capture(const Stream& stream, absl::FunctionRef<Status()> queue) {
  const Device& device = stream.device();
  LH_RETURN_IF_ERROR(
      device.Check(device.table().capture_begin(stream.handle()), "beginning a graph"));
  const Status queued = queue();
  void* graph = nullptr;
  const Status captured =
      device.Check(device.table().capture_end(stream.handle(), &graph), "making a graph");
  Handle handle(graph, {device.table().graph_destroy});
  LH_RETURN_IF_ERROR(queued);
  LH_RETURN_IF_ERROR(captured);
  return Graph(device, std::move(handle));
}

Status Graph::Launch(const Stream& stream) const {
  return device_.Check(device_.table().graph_launch(graph_.get(), stream.handle()),
                       "launching a graph");
}

}  // namespace longhaul::cuda
