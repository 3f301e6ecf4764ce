#include "coordinator/state/model.h"

namespace longhaul::coordinator {

std::vector<StageRecord> StagesOf(const Assignment& assignment) {
  std::vector<StageRecord> stages;
  for (const Cell& cell : assignment.cells) {
    StageRecord& stage = stages.emplace_back();
    stage.id = cell.id;
    stage.place = stages.size() - 1;
    stage.is_first = assignment.Incoming(cell.id, EdgeKind::kActivations) == nullptr;
    stage.is_last = assignment.Outgoing(cell.id, EdgeKind::kActivations) == nullptr;
    stage.worker = cell.worker;
    stage.incarnation = cell.incarnation;
    stage.name = cell.worker_name;
  }
  return stages;
}

}  // namespace longhaul::coordinator
