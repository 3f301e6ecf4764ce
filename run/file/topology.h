// The run file's section `topology`: regions of workers, and what lies between them. A local
// cluster emulates it; nothing else can. Plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "run/file/link_quality.h"

namespace longhaul {

struct TopologyRegion {
  std::string name;
  std::vector<std::string> workers;  // names; a worker is in one region at most
  friend bool operator==(const TopologyRegion&, const TopologyRegion&) = default;
};

// What each worker of one region sends to each of the other, both ways. Pairs of regions without
// one are as the workers' own links are.
struct TopologyLink {
  std::string one, other;        // names of regions; the same: between the workers inside
  uint64_t bits_per_second = 0;  // of each pair of workers, each way; 0 = what their links have
  LinkQuality quality;
  friend bool operator==(const TopologyLink&, const TopologyLink&) = default;
};

struct TopologySpec {
  std::vector<TopologyRegion> regions;
  std::vector<TopologyLink> links;
  friend bool operator==(const TopologySpec&, const TopologySpec&) = default;
};

// Reads a run file, or a file with `topology:` alone. All errors come at once, as ParseRunSpec's;
// a run file without a topology is one.
StatusOr<TopologySpec> ParseTopologyFile(std::string_view yaml, std::string_view file_name);

}  // namespace longhaul
