// A file that is written piece by piece and appears under its name whole or not at all, also after
// a crash: a temporary name beside it, then fsync, rename and fsync of the folder (Publish). One
// that is destroyed unpublished leaves nothing behind; a killed process leaves "<path>.tmp-<uuid>"
// (IsPendingFileName).
//
// Threads: one at a time. Errors: by errno, naming the file; a full disk is kResourceExhausted.
#ifndef LONGHAUL_BASE_PENDING_FILE_H_
#define LONGHAUL_BASE_PENDING_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

class PendingFile {
 public:
  // `mode` as in open(2).
  static StatusOr<std::unique_ptr<PendingFile>> Create(const std::string& path,
                                                       unsigned mode = 0644);
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();

  // At the end. A failed write may leave a part; the file is then only good to be destroyed.
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  // In place, over what was appended.
  Status Overwrite(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t size() const { return size_; }

  // Makes the bytes durable; Publish does so too. To publish several files together, sync all
  // first: what can run out of room has happened then.
  Status Sync();
  Status Publish();

 private:
  PendingFile(std::string path, std::string temporary, int fd);
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  Status Failed(std::string_view what) const;

  const std::string path_, temporary_;
  const int fd_;
  uint64_t size_ = 0;
  bool published_ = false;
};

// Whether a file of this name is what a killed process left.
bool IsPendingFileName(std::string_view file_name);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_PENDING_FILE_H_
