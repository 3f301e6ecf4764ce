// coordinator-sim: seeded fault simulations of the coordinator's state machine.
//
//   coordinator-sim --first 1 --count 10000 --jobs 4
//   coordinator-sim --seed 4711 --print
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>

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

int RunSeeds(const SeedFlags& flags, uint64_t first, uint64_t count, uint64_t stride) {
  int failed = 0;
  for (uint64_t i = 0; i < count; i += stride) {
    const uint64_t seed = first + i;
    SimulationResult result = Simulate({.seed = seed, .print = flags.print});
    if (result.violation.empty()) result = SimulateTwoLeaders(seed, flags.print);
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
  return failed;
}

int Main(int argc, char** argv) {
  CLI::App app{"Seeded fault simulations of the coordinator's state machine"};
  SeedFlags flags;
  flags.AddTo(&app);
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGABRT, OnAbort);
  return RunInProcesses(flags, [&](uint64_t first, uint64_t count, uint64_t stride) {
    return RunSeeds(flags, first, count, stride);
  });
}

}  // namespace
}  // namespace longhaul::coordinator::sim

int main(int argc, char** argv) {
  return longhaul::coordinator::sim::Main(argc, argv);
}
