// Some of the simulations that coordinator-sim makes by the thousand.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/sim/coordinator/simulation.h"
#include "tests/sim/coordinator/two_leaders.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator::sim {
namespace {

// Simulates the seeds from 1 to `last` and returns how often each situation was met.
std::map<std::string, uint64_t> SimulateSeeds(uint64_t last) {
  std::map<std::string, uint64_t> seen;
  for (uint64_t seed = 1; seed <= last; ++seed) {
    const SimulationResult result = Simulate({.seed = seed});
    EXPECT_EQ(result.violation, "")
        << result.tail << "\nrepeat it with: coordinator-sim --seed " << seed << " --print";
    if (!result.violation.empty()) break;
    for (const auto& [what, count] : result.seen) seen[what] += count;
  }
  return seen;
}

class StateSim : public ::testing::Test {
 protected:
  void SetUp() override {
    // A check of the state machine itself ends the process.
    std::signal(SIGABRT, [](int) {
      DescribeTheOneAtHand();
      std::_Exit(1);
    });
  }
};

TEST_F(StateSim, NothingGoesWrongThatMustNot) {
  EXPECT_GT(SimulateSeeds(30).size(), 10u);
}

// Simulations that never meet a situation prove nothing about it. 150 seeds do not meet all.
TEST_F(StateSim, SeedsMeetEverySituation) {
  const std::map<std::string, uint64_t> seen = SimulateSeeds(230);
  EXPECT_GT(seen.size(), 10u);
  for (const auto& [what, count] : seen) EXPECT_GT(count, 0u) << what;
}

TEST_F(StateSim, WorkersOfTwoLeadersDoNotMix) {
  std::map<std::string, uint64_t> seen;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationResult result = SimulateTwoLeaders(seed, /*print=*/false);
    ASSERT_EQ(result.violation, "")
        << result.tail << "\nrepeat it with: coordinator-sim --seed " << seed << " --print";
    for (const auto& [what, count] : result.seen) seen[what] += count;
  }
  EXPECT_GT(seen["a worker does not obey"], 0u);
  EXPECT_GT(seen["two assignments of an epoch"], 0u);
}

// Two coordinators, of which one leads, and their witness.
TEST_F(StateSim, APairLosesNothingAndSomebodyLeads) {
  std::map<std::string, uint64_t> seen;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const SimulationResult result = Simulate({.seed = seed, .pair = true});
    ASSERT_EQ(result.violation, "") << result.tail << "\nrepeat it with: coordinator-sim --seed "
                                    << seed << " --only pair --print";
    for (const auto& [what, times] : result.seen) seen[what] += times;
  }
  // Simulations that never meet a situation prove nothing about it.
  for (const char* what : {"a follower takes over", "leads by its own record", "both in sync",
                           "a follower resumes", "a whole copy", "a leader is not sure",
                           "a change was committed alone", "a tail was replaced"}) {
    EXPECT_GT(seen[what], 0u) << what;
  }
}

TEST_F(StateSim, ASeedRepeats) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const SimulationOptions options{.seed = seed, .pair = seed % 2 == 0};
    const SimulationResult once = Simulate(options);
    const SimulationResult again = Simulate(options);
    EXPECT_EQ(once.hash, again.hash) << seed;
    EXPECT_EQ(once.notes, again.notes) << seed;
    EXPECT_NE(once.hash, Simulate({.seed = seed + 1, .pair = options.pair}).hash) << seed;
  }
}

// What the simulations take for the store is like the store.
TEST_F(StateSim, TheRealStoreMakesNoDifference) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const ::longhaul::testing::TempDir folder;
    const SimulationResult real = Simulate({.seed = seed, .real_store_folder = folder.path()});
    EXPECT_EQ(real.violation, "") << seed;
    EXPECT_EQ(real.hash, Simulate({.seed = seed}).hash) << seed;
  }
}

}  // namespace
}  // namespace longhaul::coordinator::sim
