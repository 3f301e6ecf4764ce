// What programs that simulate many seeds share: their flags, their processes side by side, and how
// they tell of a violation.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace longhaul::coordinator::sim {

// Exit codes. kViolation: a checker has found something, or a check of the simulated code itself.
// kBroken: the simulation ended otherwise, by an exception or a signal.
inline constexpr int kViolation = 3, kBroken = 4;

struct SeedFlags {
  uint64_t first = 1, count = 1000, jobs = 1;
  uint64_t seed = 0;  // simulate this one alone; 0: `count` seeds from `first` on
  bool print = false, go_on = false;

  void AddTo(CLI::App* app) {
    app->add_option("--seed", seed, "simulate this one");
    app->add_option("--first", first, "the first of the seeds")->capture_default_str();
    app->add_option("--count", count, "how many seeds")->capture_default_str();
    app->add_option("--jobs", jobs, "processes side by side")->capture_default_str();
    app->add_flag("--print", print, "every note of a simulation, as it is made");
    app->add_flag("--go-on", go_on, "a line for each violation, instead of ending at the first");
  }
};

// Tells of a violation. With --go-on in one line, else with `tail`, the simulation's last notes,
// and the command of `program` that repeats it.
inline void TellViolation(const SeedFlags& flags, const char* program, uint64_t seed,
                          const std::string& violation, const std::string& tail) {
  const auto number = static_cast<unsigned long long>(seed);
  if (flags.go_on) {
    std::printf("seed %llu: %s\n", number, violation.c_str());
    std::fflush(stdout);
    return;
  }
  std::fprintf(stderr, "%s\nseed %llu: %s\nrepeat it with: %s --seed %llu --print\n", tail.c_str(),
               number, violation.c_str(), program, number);
}

// Runs the seeds in `jobs` processes, and returns the exit code of the program. `run` simulates the
// seeds first, first + stride, ... below first + count, and returns 0 or kViolation. Without
// --go-on, one violation ends all processes.
inline int RunInProcesses(
    SeedFlags flags, absl::FunctionRef<int(uint64_t first, uint64_t count, uint64_t stride)> run) {
  std::set_terminate([] { std::_Exit(kBroken); });
  if (flags.seed != 0) {
    flags.first = flags.seed;
    flags.count = 1;
  }
  const uint64_t jobs = std::max<uint64_t>(1, std::min(flags.jobs, flags.count));
  const auto begin = std::chrono::steady_clock::now();
  int failed = 0;
  if (jobs == 1) {
    failed = run(flags.first, flags.count, 1);
  } else {
    std::vector<pid_t> children;
    for (uint64_t job = 0; job < jobs; ++job) {
      const pid_t child = fork();
      if (child == 0) std::_Exit(run(flags.first + job, flags.count - job, jobs));
      children.push_back(child);
    }
    while (!children.empty()) {
      int status = 0;
      std::erase(children, wait(&status));
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      const bool is_violation = WIFEXITED(status) && WEXITSTATUS(status) == kViolation;
      // The others are ended by a signal after the first violation.
      if (failed != kViolation) failed = is_violation ? kViolation : kBroken;
      if (flags.go_on) continue;
      for (const pid_t child : children) kill(child, SIGTERM);
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (failed == 0) {
    std::printf("%llu seeds from %llu: no violation, %.1f s\n",
                static_cast<unsigned long long>(flags.count),
                static_cast<unsigned long long>(flags.first), seconds);
  }
  return failed;
}

}  // namespace longhaul::coordinator::sim
