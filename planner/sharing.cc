#include "planner/sharing.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "planner/pipeline_cost.h"
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

Status SlowDownSharedDevices(const RunSpec& spec, std::span<const CandidateWorker> workers,
                             std::span<Plan> replicas, const std::stop_token& stop) {
  std::vector<std::vector<size_t>> beside(workers.size());
  bool any = false;
  for (size_t w = 0; w < workers.size() && !spec.replay; ++w) {
    for (size_t other = 0; other < workers.size(); ++other) {
      if (other == w || !AreOnOneDevice(workers[w], workers[other])) continue;
      beside[w].push_back(other);
      any = true;
    }
  }
  if (!any) return absl::OkStatus();
  const size_t stages = workers.size() / replicas.size();
  std::vector<CellEstimate> alone;
  for (const Plan& plan : replicas) {
    alone.insert(alone.end(), plan.cells.begin(), plan.cells.end());
  }
  std::vector<double> slowdown(workers.size(), 1);
  for (int round = 0; round < kRounds; ++round) {
    // Stages are busy for shares of a step, and all replicas have the step of the slowest.
    std::vector<double> busy;
    double step = 0;
    for (const Plan& plan : replicas) {
      LH_ASSIGN_OR_RETURN(const schedule::Simulation simulation,
                          schedule::Simulate(PipelineCostOf(plan, spec, NetworkOf(plan)), stop));
      step = std::max(step, absl::ToDoubleSeconds(simulation.step));
      for (const schedule::StageUse& use : simulation.stages) {
        busy.push_back(absl::ToDoubleSeconds(use.time.compute));
      }
    }
    for (size_t w = 0; w < workers.size(); ++w) {
      double others = 0;
      for (const size_t other : beside[w]) others += busy[other] / step;
      slowdown[w] = (slowdown[w] + 1 + others) / 2;
      CellEstimate& cell = replicas[w / stages].cells[w % stages];
      cell.forward_seconds = slowdown[w] * alone[w].forward_seconds;
      cell.backward_seconds = slowdown[w] * alone[w].backward_seconds;
      // All of them step at once.
      cell.optimizer_seconds =
          (1 + static_cast<double>(beside[w].size())) * alone[w].optimizer_seconds;
    }
  }
  return absl::OkStatus();
}

bool AnyShareDevices(std::span<const CandidateWorker> workers) {
  for (size_t w = 0; w < workers.size(); ++w) {
    for (size_t other = 0; other < w; ++other) {
      if (AreOnOneDevice(workers[w], workers[other])) return true;
    }
  }
  return false;
}

std::vector<uint32_t> SpreadOverDevices(std::span<const CandidateWorker> workers, uint32_t count) {
  // How many workers of each of its devices come before a worker.
  std::map<std::string, uint32_t> of_device;
  std::vector<uint32_t> before;
  for (const CandidateWorker& worker : workers) {
    uint32_t most = 0;
    for (const std::string& device : worker.shared_devices) {
      most = std::max(most, of_device[device]++);
    }
    before.push_back(most);
  }
  std::vector<uint32_t> chosen;
  for (uint32_t of_each = 1; chosen.size() < std::min<size_t>(count, workers.size()); ++of_each) {
    chosen.clear();
    for (uint32_t w = 0; w < workers.size(); ++w) {
      if (before[w] < of_each) chosen.push_back(w);
    }
  }
  return chosen;
}

}  // namespace longhaul::coordinator
