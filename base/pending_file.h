// A file that is written piece by piece and appears under its name whole or not at all, also after
// a crash. It has a temporary name until Publish. An object that is destroyed before Publish
// removes the file. A killed process leaves "<path>.tmp-<uuid>" (IsPendingFileName).
//
// Threads: one at a time. Errors: by errno, naming the file; a full disk is kResourceExhausted.
#pragma once

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

  // Writes at the end. After a failed write the file can only be destroyed.
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  // Writes over bytes that were appended before.
  Status Overwrite(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t size() const { return size_; }

  // Makes the bytes durable, still under the temporary name. To publish several files together,
  // sync all of them first: then no Publish can fail for lack of space.
  Status Sync();
  // Calls Sync, gives the file its name, replacing an older file, and makes the name durable.
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

// Whether a file of this name was left by a process that was killed before Publish.
bool IsPendingFileName(std::string_view file_name);

}  // namespace longhaul
