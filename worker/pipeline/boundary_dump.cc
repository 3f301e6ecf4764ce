#include "worker/pipeline/boundary_dump.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "codec/tool/npy.h"

namespace longhaul::worker {

namespace {

// The id comes from the network and becomes a folder.
std::string FolderOf(const BoundaryDumpOptions& options, const RunId& run) {
  std::string name = run.value();
  std::ranges::replace(name, '/', '_');
  return fmt::format("{}/{}{}", options.folder, name.starts_with('.') ? "_" : "", name);
}

}  // namespace

BoundaryDump::BoundaryDump(const BoundaryDumpOptions& options, const RunId& run)
    : folder_(FolderOf(options, run)), every_(options.every) {}

bool BoundaryDump::Wants(const Pass& pass, const Slice& slice) const {
  return pass.trains() && slice == Microbatch(0) && pass.step.value() % every_ == 0;
}

void BoundaryDump::Write(const Pass& pass, EdgeId edge, Direction direction,
                         const codec::TensorView& tensor) const {
  const std::string path =
      fmt::format("{}/step{:06}-boundary{}-{}.npy", folder_, pass.step.value(), edge.value(),
                  direction == Direction::kForward ? "forward" : "backward");
  Status status = MakeDirectories(folder_);
  if (status.ok()) status = WriteFileAtomic(path, codec::FormatNpy(tensor));
  if (!status.ok()) LogWarning("a boundary tensor is not dumped: {}", Message(status));
}

}  // namespace longhaul::worker
