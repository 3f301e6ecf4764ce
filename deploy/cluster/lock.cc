#include "deploy/cluster/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "base/clock.h"
#include "deploy/cluster/state_file.h"

namespace longhaul {
namespace {

// Is the open file still the one at `path`? Its last holder may have removed it.
bool IsSameFile(int fd, const std::string& path) {
  struct stat open_file {
  }, named{};
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

std::string Holder(int fd) {
  char text[16] = {};
  const ssize_t got = pread(fd, text, sizeof text - 1, 0);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "?";
}

}  // namespace

StatusOr<std::unique_ptr<ClusterLock>> ClusterLock::Acquire(std::string_view cluster,
                                                            absl::Duration patience) {
  const std::string path = fmt::format("{}/.{}.lock", ClusterRuntimeRoot(), cluster);
  const Deadline deadline = Deadline::After(patience);
  while (true) {
    LH_RETURN_IF_ERROR(MakePrivateFolder(ClusterRuntimeRoot()));
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) {
      if (errno == ENOENT && !deadline.Expired()) continue;  // the folder was removed just now
      return FromErrno(fmt::format("cannot open {}", path), errno);
    }
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!IsSameFile(fd.get(), path)) continue;
      const std::string holder = std::to_string(getpid());
      if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), holder.data(), holder.size(), 0) < 0) {
        return FromErrno(fmt::format("cannot write {}", path), errno);
      }
      return std::unique_ptr<ClusterLock>(new ClusterLock(std::move(fd), path));
    }
    const std::string holder = Holder(fd.get());
    fd.Reset();
    if (deadline.Expired()) {
      return FailedPrecondition(
          "another `longhaul cluster` command (process {}) is working on cluster '{}'; wait for it "
          "or end it (Ctrl-C there, or kill {}), then try again",
          holder, cluster, holder);
    }
    // flock has no deadline of its own, and an alarm is not ours to set.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

ClusterLock::~ClusterLock() {
  unlink(path_.c_str());
  rmdir(ClusterRuntimeRoot().c_str());  // Stays while any other cluster is up.
}

}  // namespace longhaul
