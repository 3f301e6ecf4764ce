#include "base/private_files.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace longhaul {
namespace {

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

}  // namespace

void KeepFilesPrivate() {
  ::umask(kOthers);
}

Status MakePrivateDirectories(const std::string& path) {
  LH_RETURN_IF_ERROR(MakeDirectories(path));
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return FromErrno(fmt::format("cannot stat {}", path), errno);
  if ((info.st_mode & kOthers) == 0 || (info.st_mode & S_ISVTX) != 0 ||
      info.st_uid != ::geteuid()) {
    return absl::OkStatus();
  }
  if (::chmod(path.c_str(), S_IRWXU) == 0) return absl::OkStatus();
  return FromErrno(fmt::format("cannot make {} private", path), errno);
}

}  // namespace longhaul
