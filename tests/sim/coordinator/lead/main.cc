// lead-sim: seeded fault simulations of who leads.
//
//   lead-sim --first 1 --count 100000 --jobs 2
//   lead-sim --seed 4711 --print
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tests/sim/coordinator/lead/simulation.h"

namespace longhaul::coordinator::lead_sim {
namespace {

// As coordinator-sim: a checker has found something, or the simulation ended otherwise.
constexpr int kViolation = 3, kBroken = 4;

int RunSeeds(uint64_t first, uint64_t count, uint64_t stride, bool print, bool go_on, bool table) {
  int failed = 0;
  std::map<std::string, uint64_t> seen;
  for (uint64_t i = 0; i < count; i += stride) {
    const uint64_t seed = first + i;
    const SimulationResult result = Simulate(seed, print);
    for (const auto& [what, times] : result.seen) seen[what] += times;
    seen["commits"] += result.commits;
    seen["terms"] += result.terms;
    if (print) {
      std::printf("seed %llu: hash %016llx, %.0f virtual seconds\n",
                  static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(result.hash), result.virtual_seconds);
    }
    if (result.violation.empty()) continue;
    failed = kViolation;
    if (go_on) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                  result.violation.c_str());
      std::fflush(stdout);
      continue;
    }
    std::fprintf(stderr, "%s\nseed %llu: %s\nrepeat it with: lead-sim --seed %llu --print\n",
                 result.tail.c_str(), static_cast<unsigned long long>(seed),
                 result.violation.c_str(), static_cast<unsigned long long>(seed));
    return kViolation;
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
  uint64_t first = 1, count = 1000, seed = 0, jobs = 1;
  bool print = false, go_on = false, table = false;
  app.add_option("--seed", seed, "simulate this one");
  app.add_option("--first", first, "the first of the seeds")->capture_default_str();
  app.add_option("--count", count, "how many seeds")->capture_default_str();
  app.add_option("--jobs", jobs, "processes side by side")->capture_default_str();
  app.add_flag("--print", print, "every note of a simulation, as it is made");
  app.add_flag("--go-on", go_on, "a line for each violation, instead of ending at the first");
  app.add_flag("--table", table, "how often each situation was met, for each process");
  CLI11_PARSE(app, argc, argv);
  std::set_terminate([] { std::_Exit(kBroken); });
  if (seed != 0) {
    first = seed;
    count = 1;
  }
  jobs = std::max<uint64_t>(1, std::min(jobs, count));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (uint64_t job = 1; job < jobs; ++job) {
    const pid_t child = fork();
    if (child == 0) std::_Exit(RunSeeds(first + job, count - job, jobs, print, go_on, table));
    children.push_back(child);
  }
  int failed = RunSeeds(first, count, jobs, print, go_on, table);
  for (const pid_t child : children) {
    if (failed != 0 && !go_on) kill(child, SIGTERM);  // one violation is enough
    int status = 0;
    if (waitpid(child, &status, 0) != child) failed = failed == 0 ? kBroken : failed;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kViolation) {
      failed = kViolation;
    } else if (failed == 0) {
      failed = kBroken;
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (failed == 0) {
    std::printf("%llu seeds from %llu: no violation, %.1f s\n",
                static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
                seconds);
  }
  return failed;
}

}  // namespace
}  // namespace longhaul::coordinator::lead_sim

int main(int argc, char** argv) {
  return longhaul::coordinator::lead_sim::Main(argc, argv);
}
