#include "worker/epoch/cell_check.h"

#include <fmt/core.h>

#include <set>

#include "absl/strings/str_join.h"

namespace longhaul::worker {

std::vector<std::string> CannotDo(const Assignment& assignment, const Cell& cell,
                                  const std::vector<WorkerDevice>& offered) {
  std::vector<std::string> problems;
  if (cell.group.expert == 0 || cell.group.tensor % cell.group.expert != 0) {
    problems.push_back(fmt::format(
        "expected {} to divide experts into a number of parts that divides its {} tensor ranks, "
        "got {}",
        ToString(cell.id), cell.group.tensor, cell.group.expert));
  }
  const auto tied = assignment.EdgesOf(cell.id, EdgeKind::kTied);
  if (!tied.empty() && (tied.size() > 1 || cell.roles.embedding == cell.roles.head)) {
    problems.push_back(
        fmt::format("expected at {} at most one edge of a tied matrix, and that only where it is "
                    "first or last of several stages, got {}",
                    ToString(cell.id), tied.size()));
  }
  if (cell.group.tensor == 0 || cell.devices.size() != cell.group.tensor) {
    problems.push_back(fmt::format(
        "expected {} to take a device for each of its ranks, got {} for {} tensor ranks",
        ToString(cell.id), cell.devices.size(), cell.group.tensor));
  }
  for (const uint32_t device : cell.devices) {
    if (device < offered.size()) continue;
    problems.push_back(
        fmt::format("expected {} to take one of the {} devices that this worker offers, counted "
                    "from 0, got device {}; --device says what it offers",
                    ToString(cell.id), offered.size(), device));
  }
  std::set<std::string> kinds;
  for (const uint32_t device : cell.devices) {
    if (device < offered.size()) kinds.insert(offered[device].description.kind());
  }
  if (std::set(cell.devices.begin(), cell.devices.end()).size() != cell.devices.size() ||
      kinds.size() > 1) {
    problems.push_back(fmt::format(
        "expected {} to take devices of one kind, each once, got {} of the kinds {}",
        ToString(cell.id), absl::StrJoin(cell.devices, ", "), absl::StrJoin(kinds, ", ")));
  }
  for (const EdgeKind kind : {EdgeKind::kState, EdgeKind::kUnknown}) {
    if (assignment.EdgesOf(cell.id, kind).empty()) continue;
    problems.push_back(
        fmt::format("expected edges of activations, of replicas and a tied one alone at {}, got "
                    "one of {}, which this version cannot do",
                    ToString(cell.id), ToString(kind)));
  }
  return problems;
}

}  // namespace longhaul::worker
