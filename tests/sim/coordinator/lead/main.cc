// lead-sim: seeded fault simulations of who leads.
//
//   lead-sim --first 1 --count 100000 --jobs 2
//   lead-sim --seed 4711 --print
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "tests/sim/coordinator/lead/simulation.h"
#include "tests/sim/coordinator/seed_runs.h"

namespace longhaul::coordinator::lead_sim {
namespace {

int RunSeeds(const sim::SeedFlags& flags, bool table, uint64_t first, uint64_t count,
             uint64_t stride) {
  int failed = 0;
  std::map<std::string, uint64_t> seen;
  for (uint64_t i = 0; i < count; i += stride) {
    const uint64_t seed = first + i;
    const SimulationResult result = Simulate(seed, flags.print);
    for (const auto& [what, times] : result.seen) seen[what] += times;
    seen["commits"] += result.commits;
    seen["terms"] += result.terms;
    if (flags.print) {
      std::printf("seed %llu: hash %016llx, %.0f virtual seconds\n",
                  static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(result.hash), result.virtual_seconds);
    }
    if (result.violation.empty()) continue;
    failed = sim::kViolation;
    sim::TellViolation(flags, "lead-sim", seed, result.violation, result.tail);
    if (!flags.go_on) return failed;
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
  CLI::App app{"Seeded fault simulations of who leads: two seats, a witness and clients"};
  sim::SeedFlags flags;
  flags.AddTo(&app);
  bool table = false;
  app.add_flag("--table", table, "how often each situation was met, for each process");
  CLI11_PARSE(app, argc, argv);
  return sim::RunInProcesses(flags, [&](uint64_t first, uint64_t count, uint64_t stride) {
    return RunSeeds(flags, table, first, count, stride);
  });
}

}  // namespace
}  // namespace longhaul::coordinator::lead_sim

int main(int argc, char** argv) {
  return longhaul::coordinator::lead_sim::Main(argc, argv);
}
