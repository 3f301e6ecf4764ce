#include "coordinator/store/disk_room.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "base/units.h"

namespace longhaul::coordinator {

Status DiskIsFull(const std::string& folder, uint64_t wanted, uint64_t left) {
  return ResourceExhausted(
      "the coordinator's disk has no room: {} are wanted, and {} are left in {}; remove runs that "
      "nobody needs (`longhaul rm RUN`), then have an admin delete what no run names (`longhaul "
      "gc`)",
      FormatBytes(wanted), FormatBytes(left), folder);
}

StatusOr<DiskRoom::Space> DiskRoom::LookAt(const std::string& path) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(path, error);
  if (error) return FromErrno(fmt::format("cannot look at the disk of {}", path), error.value());
  return Space{.capacity = space.capacity, .available = space.available};
}

std::unique_ptr<DiskRoom> DiskRoom::Open(const std::string& folder, Look look) {
  std::unique_ptr<DiskRoom> room(new DiskRoom(folder, std::move(look)));
  struct stat info {};
  room->has_reserve_ = ::stat(room->ReservePath().c_str(), &info) == 0 &&
                       static_cast<uint64_t>(info.st_size) == kReserveBytes;
  room->Check();
  return room;
}

bool DiskRoom::Check() {
  const StatusOr<Space> space = look_(folder_);
  if (!space.ok()) return full_;  // nothing is known
  const std::lock_guard lock(mutex_);
  const uint64_t left = space->available;
  if (has_reserve_ && left < kReserveBytes / 4) {
    ::unlink(ReservePath().c_str());
    has_reserve_ = false;
  } else if (!has_reserve_ && left >= 2 * kReserveBytes) {
    has_reserve_ = MakeReserve();
  }
  const bool full = !has_reserve_ && left < 2 * kReserveBytes;
  if (full_.exchange(full) != full) {
    if (full) {
      LogError(
          "DISK FULL: {} are left in {}. Runs go on; uploads and new runs are refused, and log "
          "lines of workers are not kept. Make room: longhaul rm RUN, then longhaul gc",
          FormatBytes(left), folder_);
    } else {
      LogInfo("the disk of {} has room again: {}", folder_, FormatBytes(left));
    }
  }
  return full;
}

void DiskRoom::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    ::unlink(ReservePath().c_str());
    has_reserve_ = false;
  }
  Check();
}

// Holes would be no reserve, so the blocks are really taken.
bool DiskRoom::MakeReserve() {
  const std::string path = ReservePath();
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return false;
  if (::posix_fallocate(fd.get(), 0, static_cast<off_t>(kReserveBytes)) == 0) return true;
  ::unlink(path.c_str());
  return false;
}

Status DiskRoom::MayTake(uint64_t bytes) const {
  const StatusOr<Space> space = look_(folder_);
  if (!space.ok()) return absl::OkStatus();
  const uint64_t left = space->available > kKeptFreeBytes ? space->available - kKeptFreeBytes : 0;
  if (!full_ && bytes <= left) return absl::OkStatus();
  return DiskIsFull(folder_, bytes, full_ ? 0 : left);
}

uint64_t DiskRoom::capacity() const {
  const StatusOr<Space> space = look_(folder_);
  return space.ok() ? space->capacity : 0;
}

}  // namespace longhaul::coordinator
