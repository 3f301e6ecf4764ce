#include "base/disk_call.h"

#include <fmt/core.h>

#include <map>
#include <mutex>

namespace longhaul {
namespace {

struct CallUnderWay {
  const char* what;
  std::string_view path;
  MonoTime since;
  bool is_short;
};

struct DiskCalls {
  std::mutex mutex;  // guards the members below
  uint64_t last = 0;
  std::map<uint64_t, CallUnderWay> calls;  // by number: the oldest first
};

// Never destroyed: threads may still write while the process ends.
DiskCalls& AllDiskCalls() {
  static auto* const calls = new DiskCalls;
  return *calls;
}

}  // namespace

DiskCall::DiskCall(const char* what, std::string_view path, bool is_short) {
  DiskCalls& all = AllDiskCalls();
  const MonoTime now = Now();
  const std::lock_guard lock(all.mutex);
  id_ = ++all.last;
  all.calls.emplace(id_, CallUnderWay{what, path, now, is_short});
}

DiskCall::~DiskCall() {
  DiskCalls& all = AllDiskCalls();
  const std::lock_guard lock(all.mutex);
  all.calls.erase(id_);
}

static std::optional<DiskCallNow> LongestCall(bool only_short) {
  DiskCalls& all = AllDiskCalls();
  const std::lock_guard lock(all.mutex);
  for (const auto& [id, call] : all.calls) {
    if (only_short && !call.is_short) continue;
    return DiskCallNow{id, fmt::format("{} of {}", call.what, call.path), call.since};
  }
  return std::nullopt;
}

std::optional<DiskCallNow> LongestDiskCall() {
  return LongestCall(/*only_short=*/false);
}

std::optional<DiskCallNow> LongestShortDiskCall() {
  return LongestCall(/*only_short=*/true);
}

}  // namespace longhaul
