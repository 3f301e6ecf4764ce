// The run file's section `topology`: regions of workers, and the links between them. Only a local
// cluster emulates it. Plain data and pure functions.
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

// The link from each worker of one region to each worker of the other, both ways. Pairs of regions
// without an entry have the workers' own links.
struct TopologyLink {
  std::string one, other;        // names of regions; equal names: between the workers inside
  uint64_t bits_per_second = 0;  // of each pair of workers, each way; 0: their links' rate
  LinkQuality quality;
  friend bool operator==(const TopologyLink&, const TopologyLink&) = default;
};

struct TopologySpec {
  std::vector<TopologyRegion> regions;
  std::vector<TopologyLink> links;
  friend bool operator==(const TopologySpec&, const TopologySpec&) = default;
};

// Reads a run file, or a file with only `topology:`. `yaml` is the text of the file that messages
// call `file_name`. kInvalidArgument has all errors of the file, a line each, as ParseRunSpec's
// (run_spec.h). A run file without a topology is an error.
StatusOr<TopologySpec> ParseTopologyFile(std::string_view yaml, std::string_view file_name);

}  // namespace longhaul
