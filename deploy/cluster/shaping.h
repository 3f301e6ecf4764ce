// Shapes one direction of a link by tc, and reads how many bytes have passed.
//
// clang-format off
//   htb 1:  class 1:1         rate R
//             class 1:10      may use all of R, first    leaf 10:   IPv4 packets under 256 bytes, ARP
//             class 1:20      may use all of R, second   leaf 20:   everything else
//             class 1:1k      at most the rate of the k-th path: packets to its address
//               class 1:2k    first                      leaf 2k:   small packets
//               class 1:3k    second                     leaf 3k:   everything else
// clang-format on
//
// Small packets are acknowledgements and heartbeats. They pass waiting data and are counted
// separately. HTB is used rather than TBF with a prio qdisc inside: more kernels have HTB, HTB
// needs no burst of a whole 64 KB GSO packet, and its rates can change without losing the counters.
// On a kernel without htb or the u32 classifier, tbf alone shapes links, in one band. Leaves are
// bfifo, or netem where the kernel delays packets. `1k`, `2k` and `3k` are the numbers 0x1000,
// 0x2000 and 0x3000 plus k.
//
// Rates and byte counters count Ethernet frames of up to 1,514 bytes, so TCP's goodput is at
// most 95.6% of a rate. Each segment of a GSO packet counts with its headers, unlike in interface
// counters.
//
// Pure functions, except the last five. These five run tc from the program's main thread, and
// return the errors of RunTool (process.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/words.h"
#include "deploy/cluster/process.h"
#include "run/file/link_quality.h"

namespace longhaul {

enum class Shaper : uint8_t { kHtb, kTbf };
constexpr std::string_view ToString(Shaper shaper) {
  return WordOf(shaper, {"htb", "tbf"});
}
// kInvalidArgument: neither word.
StatusOr<Shaper> ParseShaper(std::string_view text);

// An interface in a network namespace.
struct Interface {
  std::string network;
  std::string device;
};

// Counters of one direction of a link, since tc began to shape it or since the last reset.
struct LinkCounters {
  uint64_t bytes = 0;
  uint64_t packets = 0;
  uint64_t dropped_packets = 0;
  uint64_t backlog_bytes = 0;  // waiting now
  // The parts of `bytes` in small packets (acknowledgement_bytes) and in other packets
  // (data_bytes). nullopt with tbf, which does not count them separately.
  std::optional<uint64_t> data_bytes;
  std::optional<uint64_t> acknowledgement_bytes;
};

// The shape of packets to one address.
struct PathShape {
  std::string to;                // "10.77.0.13"
  uint64_t bits_per_second = 0;  // maximum; 0 = the line's rate
  LinkQuality quality;           // used only if LineShape::netem
  friend bool operator==(const PathShape&, const PathShape&) = default;
};

// One direction of a line.
struct LineShape {
  uint64_t bits_per_second = 0;  // 0 = unlimited
  std::vector<PathShape> paths;  // exceptions for packets to single addresses; only with kHtb
  // Whether netem adds delay, jitter and loss: `quality`, or for addresses of `paths` the quality
  // of the path.
  bool netem = false;
  LinkQuality quality;
  // Packets leave one by one, not many as one GSO packet, so that each packet is lost or kept by
  // itself.
  bool single_packets = false;

  // Returns whether tc shapes this line at all.
  bool Shaped() const { return bits_per_second != 0 || !paths.empty() || netem; }
  friend bool operator==(const LineShape&, const LineShape&) = default;
};

// Returns the commands, to run in order, that change the shape of `interface` from `from`, its
// shape now, to `to`. Empty if the two are equal.
std::vector<Command> ShapeCommands(const Interface& interface, Shaper shaper, const LineShape& from,
                                   const LineShape& to);
// Returns whether a change from `from` to `to` resets the counters. False: the counters stay,
// because both shapes or neither use netem, and the paths of `to` begin with the addresses of
// `from` in the same order. Also false if one of the two does not shape the line at all.
bool BeginsAnew(const LineShape& from, const LineShape& to);

// Parses the output of `tc -s -j qdisc show dev ...`; nullopt if `shaper` does not shape the
// interface. kInternal: the text is not such an output.
StatusOr<std::optional<LinkCounters>> ParseCounters(std::string_view json, Shaper shaper);

// Tries on the loopback interface of `network` how this kernel can shape, and returns the best
// shaper. kFailedPrecondition: the kernel has neither htb nor tbf.
StatusOr<Shaper> ProbeShaper(const std::string& network);
// Tries netem on the loopback interface of `network`. OK if the kernel has netem.
Status ProbeNetem(const std::string& network);
// Runs ShapeCommands.
Status Shape(const Interface& interface, Shaper shaper, const LineShape& from, const LineShape& to);
// Removes the shape of `interface`, whatever it is, and applies `to`. Resets the counters.
Status Reshape(const Interface& interface, Shaper shaper, const LineShape& to);
// nullopt: `shaper` does not shape the interface.
StatusOr<std::optional<LinkCounters>> ReadCounters(const Interface& interface, Shaper shaper);

}  // namespace longhaul
