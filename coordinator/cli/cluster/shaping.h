// How tc shapes one direction of a link, and how many bytes it let through.
//
//   htb 1:  class 1:1  rate R
//             class 1:10  R/2, may use all of R, first   bfifo 10:  IPv4 packets under 256 bytes,
//             ARP class 1:20  R/2, may use all of R, second  bfifo 20:  everything else
//
// Small packets are acknowledgements and heartbeats: they pass waiting data, and are counted apart
// from it. HTB rather than TBF with a prio qdisc inside, because more kernels have it, it needs no
// burst of a whole 64 KB GSO packet, and a rate can be changed without losing counters. Where a
// kernel lacks htb or the u32 classifier, links are shaped by tbf alone, in one band.
//
// Rates count Ethernet frames of up to 1,514 bytes, so TCP's goodput is at most 95.6% of them. The
// byte counters do too: segments of a GSO packet are counted each with its headers, which interface
// counters do not do.
//
// Pure functions, but for the three at the end, which run tc.
#ifndef LONGHAUL_COORDINATOR_CLI_CLUSTER_SHAPING_H_
#define LONGHAUL_COORDINATOR_CLI_CLUSTER_SHAPING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/cli/cluster/process.h"

namespace longhaul {

enum class Shaper : uint8_t { kHtb, kTbf };
std::string_view ToString(Shaper shaper);  // "htb", "tbf"
StatusOr<Shaper> ParseShaper(std::string_view text);

// An interface in a network namespace.
struct Interface {
  std::string network;
  std::string device;
};

struct LinkCounters {
  uint64_t bytes = 0;
  uint64_t packets = 0;
  uint64_t dropped_packets = 0;
  uint64_t backlog_bytes = 0;
  // Unset where acknowledgements are not counted apart (tbf).
  std::optional<uint64_t> data_bytes;
  std::optional<uint64_t> acknowledgement_bytes;
};

// "10mbit", or "unlimited" = 0. kInvalidArgument; below 64 kbit/s and above 100 Gbit/s too.
StatusOr<uint64_t> ParseLinkRate(std::string_view text);
std::string FormatLinkRate(uint64_t bits_per_second);  // "10 Mbit/s", "unlimited"

// What makes what leaves `interface` go at `to` bits per second instead of `from` (0 = not shaped).
// Counters survive a change from one rate to another.
std::vector<Command> ShapeCommands(const Interface& interface, Shaper shaper, uint64_t from,
                                   uint64_t to);

// From the output of `tc -s -j qdisc show dev ...`; nullopt if the interface is not shaped.
StatusOr<std::optional<LinkCounters>> ParseCounters(std::string_view json, Shaper shaper);

// What this kernel has, tried out on the loopback interface of `network`. kFailedPrecondition if it
// can shape in neither way.
StatusOr<Shaper> ProbeShaper(const std::string& network);
Status Shape(const Interface& interface, Shaper shaper, uint64_t from, uint64_t to);
StatusOr<std::optional<LinkCounters>> ReadCounters(const Interface& interface, Shaper shaper);

}  // namespace longhaul

#endif  // LONGHAUL_COORDINATOR_CLI_CLUSTER_SHAPING_H_
