// Reads whole files, writes files atomically, and maps files read-only. Thread-safe. Errors: the
// code that fits errno (kNotFound, kPermissionDenied, ...); the message names the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// Reads the whole file. kResourceExhausted: the file is larger than `limit_bytes`.
// kInvalidArgument: `path` is a folder.
StatusOr<std::string> ReadFile(const std::string& path, uint64_t limit_bytes = 1ull << 30);

// Writes `path` atomically: a reader sees the whole old or the whole new contents, also after a
// crash. Uses a temporary name, fsync, rename, fsync of the folder. The folder must exist. `mode`
// as in open(2).
Status WriteFileAtomic(const std::string& path, std::string_view contents, unsigned mode = 0644);

// Checks that a name from a peer, such as a run's id, is safe as a file name: 1 to 200 letters,
// digits, '-', '_' and '.', not beginning with '.'. kInvalidArgument: the name is not safe; the
// message calls it `what`.
Status CheckFileName(std::string_view what, std::string_view name);

// Makes the folder and its parents. OK if the folder exists already.
Status MakeDirectories(const std::string& path);

// Calls fsync for the file or folder at `path`.
Status SyncPath(const std::string& path);

// A read-only memory mapping, valid for the life of the object. Move-only. An empty file, and a
// default object, have an empty span. The file must not shrink while it is mapped: reading bytes
// that are gone ends the process with SIGBUS.
class MappedFile {
 public:
  static StatusOr<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// Returns 128 random bits from the kernel as UUID text (version 4). Cannot fail.
std::string RandomUuid();
// Returns `count` random bytes from the kernel. Cannot fail.
std::string RandomBytes(size_t count);

}  // namespace longhaul
