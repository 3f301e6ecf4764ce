// Writes log lines that a peer can cause. A peer is another program on the network, trusted or not.
// Writes at most one line a second about each peer. The next line about the peer ends with the
// number of omitted lines: "... (37 more in the last 2 s)". Nothing here fails.
//
//   LogAboutPeer(LogLevel::kWarn, "192.0.2.7", "a worker was refused: ...");
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace longhaul {

// `peer`: a name that the peer cannot choose freely, such as its address without the port.
// Thread-safe.
void LogAboutPeer(LogLevel level, std::string_view peer, std::string_view message);
// For each peer about which no line was written for a second, logs the number of omitted lines, if
// any were omitted, at level kWarn. Daemons call this function regularly, because the peer may
// cause no further line. Thread-safe.
void LogWhatWasLeftOut();

// The rate limit of both functions. The caller passes the time and writes the lines. Not
// thread-safe.
class PeerLines {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(1);
  // The largest number of peers that are counted separately. Further peers share one line a second.
  static constexpr size_t kMaxPeers = 256;

  // Returns the line to write. nullopt: the line is omitted, and counted.
  std::optional<std::string> Line(std::string_view peer, std::string_view message, MonoTime now);
  // Looks at the peers for which no line was written for a second. Returns a line for each that has
  // omitted lines, and forgets the others.
  std::vector<std::string> Overdue(MonoTime now);

 private:
  struct Peer {
    MonoTime written;  // time of the newest line
    uint64_t left_out = 0;
  };
  std::map<std::string, Peer, std::less<>> peers_;
};

}  // namespace longhaul
