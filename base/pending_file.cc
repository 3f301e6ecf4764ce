#include "base/pending_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/file.h"

namespace longhaul {
namespace {

constexpr std::string_view kMark = ".tmp-";
constexpr size_t kUuidSize = 36;

}  // namespace

StatusOr<std::unique_ptr<PendingFile>> PendingFile::Create(const std::string& path, unsigned mode) {
  const std::string temporary = fmt::format("{}{}{}", path, kMark, RandomUuid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return FromErrno(fmt::format("cannot create {}", temporary), errno);
  return std::unique_ptr<PendingFile>(new PendingFile(path, temporary, fd));
}

PendingFile::PendingFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

PendingFile::~PendingFile() {
  ::close(fd_);
  if (!published_) ::unlink(temporary_.c_str());
}

Status PendingFile::Append(std::span<const std::byte> bytes) {
  LH_RETURN_IF_ERROR(WriteAt(size_, bytes));
  size_ += bytes.size();
  return absl::OkStatus();
}

Status PendingFile::Overwrite(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > size_ || bytes.size() > size_ - offset) {
    return InvalidArgument("{} has {} bytes; {} at {} do not lie within", temporary_, size_,
                           bytes.size(), offset);
  }
  return WriteAt(offset, bytes);
}

Status PendingFile::Sync() {
  return ::fsync(fd_) == 0 ? absl::OkStatus() : Failed("fsync");
}

Status PendingFile::Publish() {
  LH_RETURN_IF_ERROR(Sync());
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failed("rename");
  published_ = true;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  return SyncPath(folder.empty() ? "." : folder);
}

Status PendingFile::Extend(uint64_t size) {
  if (size <= size_) return absl::OkStatus();
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) return Failed("extend");
  size_ = size;
  return absl::OkStatus();
}

Status PendingFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("write");
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

Status PendingFile::Failed(std::string_view what) const {
  const int error_number = errno;
  const std::string context = fmt::format("cannot {} {}", what, temporary_);
  if (error_number == EFBIG || error_number == EDQUOT) {  // Limits, as a full disk is one.
    return absl::ResourceExhaustedError(std::string(Message(FromErrno(context, error_number))));
  }
  return FromErrno(context, error_number);
}

bool IsPendingFileName(std::string_view file_name) {
  return file_name.size() > kMark.size() + kUuidSize &&
         file_name.substr(file_name.size() - kMark.size() - kUuidSize).starts_with(kMark);
}

}  // namespace longhaul
