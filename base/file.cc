#include "base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/disk_call.h"
#include "base/unique_fd.h"

namespace longhaul {

StatusOr<std::string> ReadFile(const std::string& path, uint64_t limit_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return FromErrno(fmt::format("cannot stat {}", path), errno);
  if (S_ISDIR(info.st_mode)) {
    return InvalidArgument("expected a file, but {} is a folder", path);
  }
  std::string contents;
  std::string buffer(1 << 16, '\0');
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(fmt::format("cannot read {}", path), errno);
    if (n == 0) return contents;
    contents.append(buffer, 0, static_cast<size_t>(n));
    if (contents.size() > limit_bytes) {
      return ResourceExhausted("{} is larger than the limit of {} bytes", path, limit_bytes);
    }
  }
}

Status WriteFileAtomic(const std::string& path, std::string_view contents, unsigned mode) {
  const DiskCall call("writing", path);
  const std::string temporary = fmt::format("{}.tmp-{}", path, RandomUuid());
  Status status = [&]() -> Status {
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!fd) return FromErrno(fmt::format("cannot create {}", temporary), errno);
    while (!contents.empty()) {
      const ssize_t n = ::write(fd.get(), contents.data(), contents.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FromErrno(fmt::format("cannot write {}", temporary), errno);
      contents.remove_prefix(static_cast<size_t>(n));
    }
    if (::fsync(fd.get()) != 0) return FromErrno(fmt::format("cannot fsync {}", temporary), errno);
    return absl::OkStatus();
  }();
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = FromErrno(fmt::format("cannot rename to {}", path), errno);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return SyncPath(folder.empty() ? "." : folder);
}

Status CheckFileName(std::string_view what, std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (!name.empty() && name.size() <= 200 && name.front() != '.' &&
      name.find_first_not_of(kAllowed) == std::string_view::npos) {
    return absl::OkStatus();
  }
  return InvalidArgument("expected {} of letters, digits, '-', '_' and '.'; came '{}'", what,
                         name.substr(0, 80));
}

Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FromErrno(fmt::format("cannot make the folder {}", path), error.value());
  return absl::OkStatus();
}

Status SyncPath(const std::string& path) {
  const DiskCall call("fsync", path);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  if (::fsync(fd.get()) != 0) return FromErrno(fmt::format("cannot fsync {}", path), errno);
  return absl::OkStatus();
}

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return FromErrno(fmt::format("cannot stat {}", path), errno);
  if (info.st_size == 0) return MappedFile();
  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return FromErrno(fmt::format("cannot map {}", path), errno);
  return MappedFile(std::span(static_cast<const std::byte*>(address), size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t n = ::getrandom(bytes.data() + filled, count - filled, 0);
    if (n > 0) {
      filled += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      std::perror("getrandom");  // Only a kernel without it (before 3.17) comes here.
      std::abort();
    }
  }
  return bytes;
}

std::string RandomUuid() {
  std::string bytes = RandomBytes(16);
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);
  const std::string hex = absl::BytesToHexString(bytes);
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20));
}

}  // namespace longhaul
