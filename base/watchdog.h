// Ends a process one of whose loops hangs, for example because a disk does not answer: others must
// hear that it is gone, instead of waiting for it. Tells systemd meanwhile that the process is
// well.
//
//   WatchedLoop watched("shell");
//   while (...) { watched.Turned(); ... }
//
// A loop that waits without a limit says so (Rests, WaitsForOthers), or turns once a second.
// All loops of the process register here. Without a Watchdog nobody looks at them, as in tests.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"

namespace longhaul {

// How long a loop may stand still before it hangs: two leases of a leader.
inline constexpr absl::Duration kLoopHangs = absl::Seconds(10);

// A loop that has to turn. Its thread calls all methods, but for the constructor and the
// destructor.
class WatchedLoop {
 public:
  // `limit`: a loop that does not turn for so long hangs. It is watched from its first turn on.
  explicit WatchedLoop(std::string name, absl::Duration limit = kLoopHangs);
  ~WatchedLoop();
  WatchedLoop(const WatchedLoop&) = delete;
  WatchedLoop& operator=(const WatchedLoop&) = delete;

  // The loop is about to do its work, or has nothing to do.
  void Turned();
  // The loop waits for somebody else, for as long as it takes. Until the next turn nobody looks.
  void Rests();
  // True, as at the beginning: a loop does not hang as long as a disk call of the process
  // (disk_call.h) has been under way for about as long. Such a call is only told of: for a process
  // that nobody could succeed. False: the process hangs, too, if a short disk call of any thread
  // takes as long as the loop's limit, even if the loop turns.
  void SpareDiskCalls(bool spare);

  struct Watched;  // of watchdog.cc

 private:
  const std::shared_ptr<Watched> watched_;
};

// The loop on this thread, if there is one, waits for another machine for the life of the object,
// and does not hang. Wait for no disk meanwhile.
class WaitsForOthers {
 public:
  WaitsForOthers();
  ~WaitsForOthers();
  WaitsForOthers(const WaitsForOthers&) = delete;
  WaitsForOthers& operator=(const WaitsForOthers&) = delete;

 private:
  std::shared_ptr<void> loop_;
};

// Returns what `call` returns, which waits for another machine as long as it takes.
template <class Call>
auto AwaitOthers(const Call& call) {
  const WaitsForOthers waits;
  return call();
}

// Looks at all loops of the process. Time counts by looks, each of which stands for at most two
// seconds: so a process or machine that was stopped as a whole is not blamed. Not thread-safe.
class LoopLook {
 public:
  // Returns a sentence about a loop that hangs; nullopt: none does.
  std::optional<std::string> Look(MonoTime now);

 private:
  std::optional<MonoTime> looked_;
  uint64_t short_call_ = 0;  // the oldest one, and for how long it was seen
  absl::Duration short_call_took_;
};

// Returns a sentence about a disk call that takes long: at 1, 3, 10, 30, ... seconds. Pure; not
// thread-safe.
class SlowDiskTeller {
 public:
  std::optional<std::string> Look(MonoTime now);

 private:
  uint64_t call_ = 0;
  absl::Duration told_;
};

class Watchdog {
 public:
  using End = std::function<void(const std::string& why)>;

  // Starts to look each second. `end`: what is done about a loop that hangs, once.
  explicit Watchdog(End end = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Look();
  void Tell();
  void Say(std::string sentence);

  const End end_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool closing_ = false;
  std::vector<std::string> to_say_;
  // The first one looks. The second one writes the log, which may wait for a disk, too.
  std::thread looks_, tells_;
};

// Ends the process with code 70 even if threads of it wait for a disk: shuts down all its sockets,
// because the kernel would keep connections open as long as such a thread lives, then logs `why`.
[[noreturn]] void EndHungProcess(const std::string& why);

// Tells systemd something of this process ("READY=1"), if systemd started it and wants to know: a
// service of Type=notify. Never blocks.
void NotifySystemd(std::string_view what);

}  // namespace longhaul
