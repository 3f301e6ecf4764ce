#include "worker/agent/state_dir.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/file.h"
#include "base/private_files.h"

namespace longhaul::worker {
namespace {

StatusOr<UniqueFd> Lock(const std::string& folder) {
  const std::string path = folder + "/lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return FailedPrecondition(
        "another worker uses the state directory {}; give each worker its own", folder);
  }
  return fd;
}

Status CheckFormat(const std::string& folder) {
  const std::string path = folder + "/format";
  if (::access(path.c_str(), F_OK) != 0) {
    return WriteFileAtomic(path, fmt::format("{}\n", kStateDirFormat));
  }
  LH_ASSIGN_OR_RETURN(std::string text, ReadFile(path, 4096));
  absl::StripAsciiWhitespace(&text);
  int format = 0;
  if (!absl::SimpleAtoi(text, &format) || format < 1) {
    return FailedPrecondition(
        "expected the number of a format in {}, got '{}'; put back a copy of the state "
        "directory, or give another --state-dir",
        path, text.substr(0, 40));
  }
  if (format > kStateDirFormat) {
    return FailedPrecondition(
        "the state directory {} has format {}, and this worker knows formats up to {}; it was left "
        "as it is. Run the worker that wrote it, or give another --state-dir",
        folder, format, kStateDirFormat);
  }
  return absl::OkStatus();
}

// The persistent identity: made at the first start.
StatusOr<std::string> LoadWorkerId(const std::string& folder) {
  const std::string path = folder + "/worker-id";
  if (::access(path.c_str(), F_OK) != 0) {
    LH_RETURN_IF_ERROR(WriteFileAtomic(path, RandomUuid() + "\n"));
  }
  LH_ASSIGN_OR_RETURN(std::string id, ReadFile(path, 4096));
  absl::StripAsciiWhitespace(&id);
  if (id.size() != 36) {
    return FailedPrecondition(
        "expected a UUID of 36 characters in {}, got {}; delete the file to become a new worker",
        path, id.size());
  }
  return id;
}

}  // namespace

StatusOr<StateDir> StateDir::Open(const std::string& path) {
  LH_RETURN_IF_ERROR(MakePrivateDirectories(path));
  LH_ASSIGN_OR_RETURN(UniqueFd lock, Lock(path));
  LH_RETURN_IF_ERROR(CheckFormat(path));
  LH_ASSIGN_OR_RETURN(std::string worker_id, LoadWorkerId(path));
  return StateDir(std::move(lock), std::move(worker_id));
}

}  // namespace longhaul::worker
