#include "base/watchdog.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <future>
#include <list>
#include <utility>

#include "base/disk_call.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace longhaul {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
constexpr absl::Duration kMostOfALook = absl::Seconds(2);
// The exit code of a process that ends because a loop hangs: EX_SOFTWARE.
constexpr int kHung = 70;
// How long the log may take before the process ends without.
constexpr std::chrono::seconds kLastWord{1};

std::string WholeSeconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

}  // namespace

// ---- Loops -------------------------------------------------------------------------

struct WatchedLoop::Watched {
  std::string name;
  absl::Duration limit;
  std::atomic<uint64_t> turns = 0;
  std::atomic<bool> rests = false;
  std::atomic<int> waits = 0;  // for others
  std::atomic<bool> spares_disk_calls = true;

  // Used with the registry's lock held.
  uint64_t seen_turns = 0;
  absl::Duration still;
};

namespace {

struct WatchedLoops {
  std::mutex mutex;  // guards the next member
  std::list<std::shared_ptr<WatchedLoop::Watched>> loops;
};

// Never destroyed: threads may still run while the process ends.
WatchedLoops& AllLoops() {
  static auto* const loops = new WatchedLoops;
  return *loops;
}

thread_local std::shared_ptr<WatchedLoop::Watched> loop_here;

}  // namespace

WatchedLoop::WatchedLoop(std::string name, absl::Duration limit)
    : watched_(std::make_shared<Watched>()) {
  watched_->name = std::move(name);
  watched_->limit = limit;
  const std::lock_guard lock(AllLoops().mutex);
  AllLoops().loops.push_back(watched_);
}

WatchedLoop::~WatchedLoop() {
  const std::lock_guard lock(AllLoops().mutex);
  AllLoops().loops.remove(watched_);
}

void WatchedLoop::Turned() {
  if (loop_here != watched_) loop_here = watched_;
  watched_->rests = false;
  ++watched_->turns;
}

void WatchedLoop::Rests() {
  watched_->rests = true;
}

void WatchedLoop::SpareDiskCalls(bool spare) {
  watched_->spares_disk_calls = spare;
}

WaitsForOthers::WaitsForOthers() : loop_(loop_here) {
  if (loop_ != nullptr) ++static_cast<WatchedLoop::Watched*>(loop_.get())->waits;
}

WaitsForOthers::~WaitsForOthers() {
  if (loop_ == nullptr) return;
  auto* const loop = static_cast<WatchedLoop::Watched*>(loop_.get());
  ++loop->turns;  // what was before does not count
  --loop->waits;
}

std::optional<std::string> LoopLook::Look(MonoTime now) {
  const absl::Duration gap =
      looked_ ? std::min(now - *looked_, kMostOfALook) : absl::ZeroDuration();
  looked_ = now;
  const std::optional<DiskCallNow> call = LongestDiskCall(), short_call = LongestShortDiskCall();
  if (!short_call || short_call->id != std::exchange(short_call_, short_call->id)) {
    short_call_took_ = absl::ZeroDuration();
  } else {
    short_call_took_ += gap;
  }
  const std::lock_guard lock(AllLoops().mutex);
  for (const auto& loop : AllLoops().loops) {
    if (short_call && !loop->spares_disk_calls && short_call_took_ >= loop->limit) {
      return fmt::format("{} has taken {}", short_call->what, WholeSeconds(short_call_took_));
    }
    const uint64_t turns = loop->turns;
    const bool moves = turns != std::exchange(loop->seen_turns, turns);
    if (turns == 0 || moves || loop->rests || loop->waits > 0) {
      loop->still = absl::ZeroDuration();
      continue;
    }
    loop->still += gap;
    if (loop->still < loop->limit) continue;
    const bool in_disk_call = call && now - call->since >= loop->limit - kMostOfALook;
    if (loop->spares_disk_calls && in_disk_call) continue;
    return fmt::format(
        "the loop '{}' has not turned for {}{}", loop->name, WholeSeconds(loop->still),
        in_disk_call ? fmt::format("; {} has taken {}", call->what, WholeSeconds(now - call->since))
                     : "");
  }
  return std::nullopt;
}

std::optional<std::string> SlowDiskTeller::Look(MonoTime now) {
  const std::optional<DiskCallNow> call = LongestDiskCall();
  if (!call) return std::nullopt;
  if (call->id != std::exchange(call_, call->id)) told_ = absl::ZeroDuration();
  const absl::Duration took = now - call->since;
  absl::Duration due = absl::Seconds(1);
  // 1, 3, 10, 30, ...
  for (bool three = true; due <= told_; three = !three) due = three ? due * 3 : due / 3 * 10;
  if (took < due) return std::nullopt;
  told_ = took;
  return fmt::format("{} has taken {} so far: the disk does not answer", call->what,
                     WholeSeconds(took));
}

// ---- The watchdog ------------------------------------------------------------------

Watchdog::Watchdog(End end)
    : end_(end ? std::move(end) : End(&EndHungProcess)),
      looks_([this] { Look(); }),
      tells_([this] { Tell(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  looks_.join();
  tells_.join();
}

void Watchdog::Look() {
  LoopLook loops;
  SlowDiskTeller disk;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, absl::ToChronoNanoseconds(kLookEvery),
                            [this] { return closing_; })) {
        return;
      }
    }
    const MonoTime now = Now();
    if (const auto slow = disk.Look(now)) Say(*slow);
    if (const auto hangs = loops.Look(now)) {
      end_(*hangs);
      return;
    }
    NotifySystemd("WATCHDOG=1");
  }
}

void Watchdog::Say(std::string sentence) {
  {
    const std::lock_guard lock(mutex_);
    to_say_.push_back(std::move(sentence));
  }
  changed_.notify_all();
}

void Watchdog::Tell() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !to_say_.empty(); });
    if (closing_) return;
    const std::vector<std::string> sentences = std::exchange(to_say_, {});
    lock.unlock();
    for (const std::string& sentence : sentences) LogWarning("{}", sentence);
    lock.lock();
  }
}

void EndHungProcess(const std::string& why) {
  // No file of a disk is opened or written before this has happened.
  if (DIR* const folder = ::opendir("/proc/self/fd"); folder != nullptr) {
    while (const dirent* const entry = ::readdir(folder)) {
      const int fd = std::atoi(entry->d_name);
      if (fd > 2) ::shutdown(fd, SHUT_RDWR);  // does nothing to what is no socket
    }
    ::closedir(folder);
  }
  std::promise<void> said;
  std::future<void> end = said.get_future();
  std::thread([&said, &why] {
    LogError("this process ends, because it hangs: {}", why);
    FlushLog();
    said.set_value();
  }).detach();
  end.wait_for(kLastWord);
  ::_exit(kHung);
}

void NotifySystemd(std::string_view what) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // a name that is in no folder
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return;
  // What systemd does not take now it hears a second later.
  (void)::sendto(fd.get(), what.data(), what.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

}  // namespace longhaul
