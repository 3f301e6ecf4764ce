// What placement finds on the files of tests/fixtures/placement, against the order of names, random
// restarts and the best that is known; and how long it takes. Of four replicas or more also what
// their exchange takes, and would take along a ring.
#pragma once

#include <cstdint>
#include <string>

namespace longhaul::bench {

struct PlacementFlags {
  std::string folder;        // with four_regions.yaml and regions_64.csv
  uint32_t stages = 32;      // of the 64 workers
  uint32_t replicas = 1;     // above 1 all workers of both files are so many; 0: the plan chooses
  uint32_t restarts = 1000;  // from random chains
  uint32_t times = 20;       // restarts go on for so many times what the search took
  uint32_t seeds = 5;        // of searches that are ten times as long, for the best known
};

// Prints a row for each. 0, or 1 where a file cannot be planned for.
int PrintPlacements(const PlacementFlags& flags);

}  // namespace longhaul::bench
