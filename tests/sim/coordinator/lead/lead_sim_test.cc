// Some of the simulations that lead-sim makes by the thousand.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "tests/sim/coordinator/lead/simulation.h"

namespace longhaul::coordinator::lead_sim {
namespace {

TEST(LeadSim, NothingGoesWrongAndEverySituationIsMet) {
  std::map<std::string, uint64_t> seen;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const SimulationResult result = Simulate(seed);
    ASSERT_EQ(result.violation, "")
        << result.tail << "\nrepeat it with: lead-sim --seed " << seed << " --print";
    EXPECT_GT(result.commits, 0u) << seed;
    for (const auto& [what, times] : result.seen) seen[what] += times;
  }
  // Simulations that never meet a situation prove nothing about it.
  for (const char* what :
       {"somebody came to lead", "the witness elects", "leads by its own record",
        "the other seat elects", "a leader stepped down", "a leader handed over",
        "both in sync again", "the witness agrees that one is alone",
        "a change was committed alone", "a tail was replaced", "a follower resumes", "a whole copy",
        "unsynced changes lost", "an old image was put back",
        "a process ends because its disk is full", "a repeated call was known"}) {
    EXPECT_GT(seen[what], 0u) << what;
  }
}

TEST(LeadSim, ASeedRepeats) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_EQ(Simulate(seed).hash, Simulate(seed).hash) << seed;
    EXPECT_NE(Simulate(seed).hash, Simulate(seed + 1).hash) << seed;
  }
}

}  // namespace
}  // namespace longhaul::coordinator::lead_sim
