#include "base/peer_log.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>
#include <mutex>
#include <utility>

namespace longhaul {
namespace {

constexpr std::string_view kFurtherPeers = "further peers";

struct Shared {
  std::mutex mutex;  // of lines
  PeerLines lines;
};
Shared& TheShared() {
  static auto* const shared = new Shared;  // used until the process ends
  return *shared;
}

std::string Count(uint64_t left_out, absl::Duration since) {
  return fmt::format("{} more in the last {} s", left_out,
                     std::llround(absl::ToDoubleSeconds(since)));
}

}  // namespace

std::optional<std::string> PeerLines::Line(std::string_view peer, std::string_view message,
                                           MonoTime now) {
  auto found = peers_.find(peer);
  if (found == peers_.end() && peers_.size() >= kMaxPeers) {
    // Room of those that nothing more is to be said about.
    std::erase_if(peers_, [now](const auto& entry) {
      return entry.second.left_out == 0 && now - entry.second.written >= kInterval;
    });
    if (peers_.size() >= kMaxPeers) {
      peer = kFurtherPeers;
      found = peers_.find(peer);
    }
  }
  if (found == peers_.end()) {
    peers_.emplace(peer, Peer{now, 0});
    return std::string(message);
  }
  Peer& known = found->second;
  const absl::Duration since = now - known.written;
  if (since < kInterval) {
    ++known.left_out;
    return std::nullopt;
  }
  known.written = now;
  const uint64_t left_out = std::exchange(known.left_out, 0);
  return left_out == 0 ? std::string(message)
                       : fmt::format("{} ({})", message, Count(left_out, since));
}

std::vector<std::string> PeerLines::Overdue(MonoTime now) {
  std::vector<std::string> lines;
  for (auto it = peers_.begin(); it != peers_.end();) {
    const absl::Duration since = now - it->second.written;
    if (since < kInterval) {
      ++it;
      continue;
    }
    if (it->second.left_out > 0) {
      lines.push_back(fmt::format("{}: lines of its kind were left out ({})", it->first,
                                  Count(it->second.left_out, since)));
      it->second = {now, 0};
      ++it;
    } else {
      it = peers_.erase(it);
    }
  }
  return lines;
}

void LogAboutPeer(LogLevel level, std::string_view peer, std::string_view message) {
  if (!LogsAt(level)) return;
  std::optional<std::string> line;
  {
    Shared& shared = TheShared();
    const std::lock_guard lock(shared.mutex);
    line = shared.lines.Line(peer, message, Now());
  }
  if (line) WriteLog(level, *line);
}

void LogWhatWasLeftOut() {
  std::vector<std::string> lines;
  {
    Shared& shared = TheShared();
    const std::lock_guard lock(shared.mutex);
    lines = shared.lines.Overdue(Now());
  }
  for (const std::string& line : lines) WriteLog(LogLevel::kWarn, line);
}

}  // namespace longhaul
