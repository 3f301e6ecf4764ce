// A file that is written piece by piece and appears under its name whole or not at all, also after
// a crash. The file has a temporary name in the same folder until Publish. An object that is
// destroyed before Publish removes the file. A killed process leaves "<path>.tmp-<uuid>"
// (IsPendingFileName).
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
  // Makes the file under its temporary name; the folder must exist. `mode` as in open(2).
  static StatusOr<std::unique_ptr<PendingFile>> Create(const std::string& path,
                                                       unsigned mode = 0644);
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();

  // Writes at the end. After a failed write the file can only be destroyed.
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  // Writes over bytes that were appended before. kInvalidArgument: the range is not inside them.
  Status Overwrite(uint64_t offset, std::span<const std::byte> bytes);
  // Makes the file `size` bytes long, if it is shorter. The new bytes are zero until Overwrite.
  Status Extend(uint64_t size);
  uint64_t size() const { return size_; }

  // Makes the bytes durable, still under the temporary name. To publish several files together,
  // sync all of them first: then no Publish can fail for lack of space.
  Status Sync();
  // Calls Sync, renames the file to `path`, where it replaces an older file, and makes the name
  // durable. Call Publish once, last.
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

// Whether `file_name`, with or without folder, is a temporary name of a PendingFile. If no process
// writes the file, a process was killed before Publish.
bool IsPendingFileName(std::string_view file_name);

}  // namespace longhaul
