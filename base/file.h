// Reads whole files, writes files atomically, and maps files read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// Reads the whole file. kResourceExhausted if it is larger than `limit_bytes`.
StatusOr<std::string> ReadFile(const std::string& path, uint64_t limit_bytes = 1ull << 30);

// Writes `path` atomically: a reader sees the whole old or the whole new contents, also after a
// crash. Uses a temporary name, fsync, rename, fsync of the folder. `mode` as in open(2).
Status WriteFileAtomic(const std::string& path, std::string_view contents, unsigned mode = 0644);

// Checks that a name from a peer, such as a run's id, is safe as a file name: 1 to 200 letters,
// digits, '-', '_' and '.', not beginning with '.'. The error message calls the name `what`.
Status CheckFileName(std::string_view what, std::string_view name);

// Makes the folder and its parents; OK if it exists.
Status MakeDirectories(const std::string& path);

// Calls fsync for the file or folder at `path`.
Status SyncPath(const std::string& path);

// A read-only memory mapping, valid for the life of the object. Move-only. An empty file maps to
// an empty span.
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

// 128 random bits from the kernel as UUID text (version 4).
std::string RandomUuid();
// `count` random bytes from the kernel.
std::string RandomBytes(size_t count);

}  // namespace longhaul
