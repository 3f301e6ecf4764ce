// The room on the disk of the state directory. Keeps a file of kReserveBytes there, which it gives
// up when the disk is full, so that the coordinator still starts, answers, and deletes what nobody
// needs (`longhaul gc`). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"

namespace longhaul::coordinator {

// Size of the file that is given up when the disk is full.
inline constexpr uint64_t kReserveBytes = 16 << 20;
// What uploads and data that are being prepared leave free, besides the reserve, for the records of
// runs.
inline constexpr uint64_t kKeptFreeBytes = 16 << 20;

class DiskRoom {
 public:
  // What a disk has, in bytes. `available`: for this process.
  struct Space {
    uint64_t capacity = 0, available = 0;
  };
  // Returns the space at a path. Tests give their own.
  using Look = std::function<StatusOr<Space>(const std::string& path)>;
  static StatusOr<Space> LookAt(const std::string& path);

  // `folder` must exist. Makes the reserve, or gives it up if the disk is full, before anything
  // else is written there. Never fails: without a reserve the coordinator works until the disk is
  // full.
  static std::unique_ptr<DiskRoom> Open(const std::string& folder, Look look = LookAt);

  // Looks at the disk, gives up or makes the reserve, and logs when that changes. True: the disk is
  // full, and only what frees room may be written.
  bool Check();
  // The disk has just refused a write.
  void GiveUp();
  // The result of the last look.
  bool full() const { return full_; }
  // kResourceExhausted: the disk has no room for so many bytes; the message says what to do.
  Status MayTake(uint64_t bytes) const;
  // Size of the disk in bytes; 0: unknown.
  uint64_t capacity() const;

 private:
  DiskRoom(std::string folder, Look look) : folder_(std::move(folder)), look_(std::move(look)) {}
  std::string ReservePath() const { return folder_ + "/reserve"; }
  bool MakeReserve();

  const std::string folder_;
  const Look look_;
  std::mutex mutex_;  // guards has_reserve_, and is held while the file changes
  bool has_reserve_ = false;
  std::atomic<bool> full_{false};
};

// The sentence about a disk without room. `left`: bytes.
Status DiskIsFull(const std::string& folder, uint64_t wanted, uint64_t left);

}  // namespace longhaul::coordinator
