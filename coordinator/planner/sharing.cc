#include "coordinator/planner/sharing.h"

#include <algorithm>
#include <vector>

#include "coordinator/planner/pipeline_cost.h"
#include "run/schedule/simulator.h"

namespace longhaul::coordinator {
namespace {

// Each halves what is left of the error.
constexpr int kRounds = 8;

bool AreOnOneDevice(const CandidateWorker& one, const CandidateWorker& other) {
  return std::ranges::any_of(one.shared_devices, [&](const std::string& device) {
    return std::ranges::find(other.shared_devices, device) != other.shared_devices.end();
  });
}

}  // namespace

Status SlowDownSharedDevices(const PlanRequest& request, const std::stop_token& stop, Plan* plan) {
  const size_t stages = plan->cells.size();
  std::vector<std::vector<size_t>> beside(stages);
  bool any = false;
  for (size_t s = 0; s < stages && !request.spec.replay; ++s) {
    for (size_t other = 0; other < stages; ++other) {
      if (other == s || !AreOnOneDevice(request.workers[s], request.workers[other])) continue;
      beside[s].push_back(other);
      any = true;
    }
  }
  if (!any) return absl::OkStatus();
  const std::vector<CellEstimate> alone = plan->cells;
  std::vector<double> slowdown(stages, 1);
  for (int round = 0; round < kRounds; ++round) {
    LH_ASSIGN_OR_RETURN(
        const schedule::Simulation simulation,
        schedule::Simulate(PipelineCostOf(*plan, request.spec, NetworkOf(*plan)), stop));
    const auto busy = [&](size_t stage) {
      return absl::FDivDuration(simulation.stages[stage].time.compute, simulation.step);
    };
    for (size_t s = 0; s < stages; ++s) {
      double others = 0;
      for (const size_t other : beside[s]) others += busy(other);
      slowdown[s] = (slowdown[s] + 1 + others) / 2;
      CellEstimate& cell = plan->cells[s];
      cell.forward_seconds = slowdown[s] * alone[s].forward_seconds;
      cell.backward_seconds = slowdown[s] * alone[s].backward_seconds;
      // All of them step at once.
      cell.optimizer_seconds =
          (1 + static_cast<double>(beside[s].size())) * alone[s].optimizer_seconds;
    }
  }
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
