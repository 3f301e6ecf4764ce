// Opens files beneath folders that this machine's owner has named, where a stranger chose the path.
// No link, no ".." and no mount of the kernel's own (proc, sysfs) leads out of them, and only
// regular files are opened, so that neither a FIFO nor a device blocks or notices the caller.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul {

// A regular file, open for reading.
class FileBeneath {
 public:
  FileBeneath(UniqueFd file, uint64_t bytes) : file_(std::move(file)), bytes_(bytes) {}
  uint64_t bytes() const { return bytes_; }  // its size when it was opened
  // Fills `into` with the bytes from `offset` on. kDataLoss: the file ends before, or cannot be
  // read.
  Status Read(uint64_t offset, std::span<std::byte> into) const;

 private:
  UniqueFd file_;
  uint64_t bytes_ = 0;
};

class RootFolders {
 public:
  // kKernel: openat2, and the walk where the kernel or a container refuses that call.
  // kWalk: a path is walked one name at a time. Both give the same; tests name the second.
  enum class Resolver { kKernel, kWalk };

  // No folder: nothing is opened.
  RootFolders() = default;
  // `folders`: of this machine, which may be reached through links. "/" allows every file.
  // `withheld`: folders and files of which nothing is opened although they lie beneath a root;
  // those that are not there are left out. kFailedPrecondition: one of `folders` is no folder.
  static StatusOr<RootFolders> Open(const std::vector<std::string>& folders,
                                    const std::vector<std::string>& withheld = {},
                                    Resolver resolver = Resolver::kKernel);
  bool empty() const { return roots_.empty(); }

  // Opens the file at `path`, which must be absolute and begin with the path of a root as the owner
  // wrote it. Links are followed that are relative and stay beneath the root; of the root "/" also
  // absolute ones. kNotFound, with one and the same message for every path: there is no such file
  // beneath a root, for whatever reason.
  StatusOr<FileBeneath> OpenFile(std::string_view path) const;

 private:
  UniqueFd Find(const std::string& root, const std::string& below) const;

  std::vector<std::string> roots_;     // absolute, without a '/' at the end; "": the whole tree
  std::vector<std::string> withheld_;  // as the kernel names them
  Resolver resolver_ = Resolver::kKernel;
};

}  // namespace longhaul
