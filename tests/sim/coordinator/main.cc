// coordinator-sim: seeded fault simulations of the coordinator's state machine.
//
//   coordinator-sim --first 1 --count 10000 --jobs 4
//   coordinator-sim --seed 4711 --print
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tests/sim/coordinator/simulation.h"
#include "tests/sim/coordinator/two_leaders.h"

namespace longhaul::coordinator::sim {
namespace {

// A checker has found something, or a check of the state machine itself.
constexpr int kViolation = 3;
// The simulation ended otherwise: an exception, a signal.
constexpr int kBroken = 4;

// A check of the state machine itself ends the process.
void OnAbort(int) {
  DescribeTheOneAtHand();
  std::_Exit(kViolation);
}

int RunSeeds(uint64_t first, uint64_t count, uint64_t stride, bool print, bool go_on) {
  int failed = 0;
  for (uint64_t i = 0; i < count; i += stride) {
    const uint64_t seed = first + i;
    SimulationResult result = Simulate({.seed = seed, .print = print});
    if (result.violation.empty()) result = SimulateTwoLeaders(seed, print);
    if (print) {
      std::printf("seed %llu: %llu notes, hash %016llx, %.0f virtual seconds\n",
                  static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(result.notes),
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
    std::fprintf(stderr, "%s\nseed %llu: %s\nrepeat it with: coordinator-sim --seed %llu --print\n",
                 result.tail.c_str(), static_cast<unsigned long long>(seed),
                 result.violation.c_str(), static_cast<unsigned long long>(seed));
    return kViolation;
  }
  return failed;
}

int Main(int argc, char** argv) {
  CLI::App app{"Seeded fault simulations of the coordinator's state machine"};
  uint64_t first = 1, count = 1000, seed = 0;
  uint64_t jobs = 1;
  bool print = false, go_on = false;
  app.add_option("--seed", seed, "simulate this one");
  app.add_option("--first", first, "the first of the seeds")->capture_default_str();
  app.add_option("--count", count, "how many seeds")->capture_default_str();
  app.add_option("--jobs", jobs, "processes side by side")->capture_default_str();
  app.add_flag("--print", print, "every note of a simulation, as it is made");
  app.add_flag("--go-on", go_on, "a line for each violation, instead of ending at the first");
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGABRT, OnAbort);
  std::set_terminate([] { std::_Exit(kBroken); });
  if (seed != 0) {
    first = seed;
    count = 1;
  }
  jobs = std::max<uint64_t>(1, std::min(jobs, count));
  const auto begin = std::chrono::steady_clock::now();
  int failed = 0;
  if (jobs == 1) {
    failed = RunSeeds(first, count, 1, print, go_on);
  } else {
    std::vector<pid_t> children;
    for (uint64_t job = 0; job < jobs; ++job) {
      const pid_t child = fork();
      if (child == 0) {
        std::_Exit(RunSeeds(first + job, count - job, jobs, print, go_on));
      }
      children.push_back(child);
    }
    while (!children.empty()) {
      int status = 0;
      std::erase(children, wait(&status));
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      const bool is_violation = WIFEXITED(status) && WEXITSTATUS(status) == kViolation;
      // The others are ended by a signal after the first violation.
      if (failed != kViolation) failed = is_violation ? kViolation : kBroken;
      if (go_on) continue;
      for (const pid_t child : children) kill(child, SIGTERM);  // one violation is enough
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
}  // namespace longhaul::coordinator::sim

int main(int argc, char** argv) {
  return longhaul::coordinator::sim::Main(argc, argv);
}
