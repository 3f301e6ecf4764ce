#include "coordinator/store/state_dir_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/private_files.h"

namespace longhaul::coordinator {
namespace {

constexpr char kLock[] = "/lock";

std::string Holder(int fd) {
  char text[32] = {};
  const ssize_t bytes = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string_view pid(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  pid = pid.substr(0, pid.find('\n'));
  return pid.empty() ? "unknown pid" : fmt::format("pid {}", pid);
}

}  // namespace

StatusOr<StateDirLock> StateDirLock::Acquire(const std::string& state_dir) {
  LH_RETURN_IF_ERROR(Annotate(MakePrivateDirectories(state_dir), "state directory"));
  const std::string path = state_dir + kLock;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) {
    return FromErrno(fmt::format("state directory: cannot open {}", path), errno);
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FromErrno(fmt::format("cannot lock {}", path), errno);
    return FailedPrecondition(
        "state directory {} is in use by another coordinator ({}); stop that one or give another "
        "--state-dir",
        state_dir, Holder(fd.get()));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return FromErrno(fmt::format("cannot write {}", path), errno);
  }
  return StateDirLock(std::move(fd));
}

bool StateDirLock::IsIn(const std::string& folder) {
  return ::access((folder + kLock).c_str(), F_OK) == 0;
}

}  // namespace longhaul::coordinator
