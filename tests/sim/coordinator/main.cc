// coordinator-sim: seeded fault simulations of the coordinator's state machine.
//
//   coordinator-sim --first 1 --count 10000 --jobs 4
//   coordinator-sim --seed 4711 --print
//   coordinator-sim --only pair --count 1000
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/sim/coordinator/seed_runs.h"
#include "tests/sim/coordinator/simulation.h"
#include "tests/sim/coordinator/two_leaders.h"

namespace longhaul::coordinator::sim {
namespace {

// A check of the state machine itself ends the process.
void OnAbort(int) {
  DescribeTheOneAtHand();
  std::_Exit(kViolation);
}

// The simulations of a seed, one after another until one finds a violation. `only`: this one.
SimulationResult SimulateAll(uint64_t seed, bool print, const std::string& only,
                             std::map<std::string, uint64_t>* seen) {
  SimulationResult result;
  const auto wanted = [&](const char* what) {
    return result.violation.empty() && (only.empty() || only == what);
  };
  if (wanted("one")) result = Simulate({.seed = seed, .print = print});
  if (wanted("leaders")) result = SimulateTwoLeaders(seed, print);
  if (wanted("pair")) {
    result = Simulate({.seed = seed, .pair = true, .print = print});
    for (const auto& [what, times] : result.seen) (*seen)[what] += times;
  }
  return result;
}

int RunSeeds(const SeedFlags& flags, const std::string& only, bool table, uint64_t first,
             uint64_t count, uint64_t stride) {
  int failed = 0;
  std::map<std::string, uint64_t> seen;
  for (uint64_t i = 0; i < count; i += stride) {
    const uint64_t seed = first + i;
    const SimulationResult result = SimulateAll(seed, flags.print, only, &seen);
    if (flags.print) {
      std::printf("seed %llu: %llu notes, hash %016llx, %.0f virtual seconds\n",
                  static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(result.notes),
                  static_cast<unsigned long long>(result.hash), result.virtual_seconds);
    }
    if (result.violation.empty()) continue;
    failed = kViolation;
    TellViolation(flags, "coordinator-sim", seed, result.violation, result.tail);
    if (!flags.go_on) break;
  }
  if (table) {
    for (const auto& [what, times] : seen) {
      std::printf("%12llu  %s\n", static_cast<unsigned long long>(times), what.c_str());
    }
    std::fflush(stdout);
  }
  return failed;
}

int Main(int argc, char** argv) {
  CLI::App app{"Seeded fault simulations of the coordinator's state machine"};
  SeedFlags flags;
  flags.AddTo(&app);
  std::string only;
  bool table = false;
  app.add_option("--only", only, "one of the simulations of a seed: one, leaders or pair")
      ->check(CLI::IsMember({"one", "leaders", "pair"}));
  app.add_flag("--table", table, "how often `pair` met each situation, for each process");
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGABRT, OnAbort);
  return RunInProcesses(flags, [&](uint64_t first, uint64_t count, uint64_t stride) {
    return RunSeeds(flags, only, table, first, count, stride);
  });
}

}  // namespace
}  // namespace longhaul::coordinator::sim

int main(int argc, char** argv) {
  return longhaul::coordinator::sim::Main(argc, argv);
}
