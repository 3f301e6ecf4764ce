// Tells which calls of this process wait for a disk, and for how long. A disk that does not answer
// stops the threads that wait for it, and nothing else says so.
//
//   const DiskCall call("fsync", path);
//   if (::fsync(fd) != 0) ...
//
// Thread-safe. Nothing here waits for a disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul {

// A call that may wait for a disk, for the life of the object. `what`: the call, as text that lives
// as long as the program. `path` must outlive the object. `is_short`: others wait for it, so a
// healthy disk does it within moments; false for a call that may have much to write.
class DiskCall {
 public:
  DiskCall(const char* what, std::string_view path, bool is_short = false);
  ~DiskCall();
  DiskCall(const DiskCall&) = delete;
  DiskCall& operator=(const DiskCall&) = delete;

 private:
  uint64_t id_;
};

struct DiskCallNow {
  uint64_t id = 0;
  std::string what;  // "fsync of /var/lib/longhaul/store.db"
  MonoTime since;
};
// Returns the call that has been under way longest, or the one of the short calls; nullopt: none
// is.
std::optional<DiskCallNow> LongestDiskCall();
std::optional<DiskCallNow> LongestShortDiskCall();

}  // namespace longhaul
