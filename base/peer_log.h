// Lines of the log that a peer can cause: however often it does, at most one a second is written
// about it, and the next one says how many were left out: "... (37 more in the last 2 s)".
//
//   LogAboutPeer(spdlog::level::warn, "192.0.2.7", "a worker was refused: ...");
#ifndef LONGHAUL_BASE_PEER_LOG_H_
#define LONGHAUL_BASE_PEER_LOG_H_

#include <spdlog/common.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace longhaul {

// `peer`: what cannot be chosen at will, an address without its port rather than a name that it
// gives itself. Thread-safe.
void LogAboutPeer(spdlog::level::level_enum level, std::string_view peer, std::string_view message);
// Says what was left out about peers that have been quiet since. Daemons call it now and then.
void LogWhatWasLeftOut();

// The rule behind the two, without log and clock. Not thread-safe.
class PeerLines {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(1);
  // Peers that are told apart at a time; further ones share a line a second.
  static constexpr size_t kMaxPeers = 256;

  // The line to write, or nothing.
  std::optional<std::string> Line(std::string_view peer, std::string_view message, MonoTime now);
  // A line for each peer about which lines were left out for a second; forgets who was quiet.
  std::vector<std::string> Overdue(MonoTime now);

 private:
  struct Peer {
    MonoTime written;  // the newest line
    uint64_t left_out = 0;
  };
  std::map<std::string, Peer, std::less<>> peers_;
};

}  // namespace longhaul

#endif  // LONGHAUL_BASE_PEER_LOG_H_
