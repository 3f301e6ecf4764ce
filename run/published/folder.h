// The files of a folder with a published model: on this machine, or at an address
// (remote/remote_folder.h).
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul::published {

// What a file is when somebody looks at it.
struct FileVersion {
  std::string name;  // in the folder
  uint64_t bytes = 0;
  std::string tag;  // the server's ETag or Last-Modified; empty: the file is on this machine
  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

// File names have no '/'. Calls block. Errors name the file: those of base/file.h, or those of
// base/remote/store.h.
class ModelFolder {
 public:
  ModelFolder() = default;
  virtual ~ModelFolder() = default;
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  // The folder, or one of its files, for messages.
  virtual std::string Shown() const = 0;
  virtual std::string Shown(const std::string& file) const = 0;
  // Where workers read the files; the address of a hub has the commit. Empty: on this machine.
  virtual std::string Address() const = 0;

  virtual StatusOr<bool> Has(const std::string& file) = 0;
  // Reads a file of at most `limit` bytes.
  virtual StatusOr<std::string> ReadWhole(const std::string& file, uint64_t limit) = 0;
  virtual StatusOr<FileVersion> Look(const std::string& file) = 0;
  // Reads the first `count` bytes of the file that Look saw last. `count`: at most its size.
  virtual StatusOr<std::vector<std::byte>> ReadStart(const FileVersion& file, uint64_t count) = 0;
};

std::unique_ptr<ModelFolder> OpenFolder(const std::string& path);

}  // namespace longhaul::published
