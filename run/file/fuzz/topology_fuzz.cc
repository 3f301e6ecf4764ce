// Any text as the topology of a local cluster, and as the quality of one of its links.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "base/fuzz/target.h"
#include "run/file/link_quality.h"
#include "run/file/topology.h"

LH_FUZZ_TARGET(topology) {
  using namespace longhaul;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool taken = ParseLinkRate(text).ok() || ParseLinkDelay(text).ok();
  if (const auto loss = ParseLoss(text); loss.ok()) {
    taken = true;
    if (!(*loss >= 0 && *loss <= 1)) std::abort();
  }
  const auto topology = ParseTopologyFile(text, "fuzz.yaml");
  if (!topology.ok()) return taken;
  std::set<std::string> workers, regions;
  for (const TopologyRegion& region : topology->regions) {
    if (!regions.insert(region.name).second) std::abort();
    for (const std::string& worker : region.workers) {
      if (!workers.insert(worker).second) std::abort();
    }
  }
  for (const TopologyLink& link : topology->links) {
    if (!regions.contains(link.one) || !regions.contains(link.other)) std::abort();
  }
  return true;
}
