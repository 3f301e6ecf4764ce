// Reads lists of blobs. A list is itself a blob, and names the chunks of a run's data sets or the
// tensors of its published model. Chunks and tensors at addresses are no blobs: of these it names
// the files. Parses the list's format, so a hash that merely occurs in some text of it does not
// count. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "coordinator/store/blob_store.h"

namespace longhaul::coordinator {

// Maximum size of a list's JSON text.
inline constexpr uint64_t kMostListBytes = uint64_t{256} << 20;

class BlobLists {
 public:
  // Hashes as 64 hexadecimal digits.
  using Names = std::unordered_set<std::string>;

  // `blobs` must outlive this object.
  explicit BlobLists(const BlobStore* blobs) : blobs_(blobs) {}
  // Returns the hashes that the list with the hash `list` names. May read and parse the blob; other
  // callers wait meanwhile. kNotFound: no such blob. kInvalidArgument: not a hash, or not a list.
  StatusOr<std::shared_ptr<const Names>> NamedBy(const std::string& list);
  // Returns the addresses (remote::ToString) of the files that the list names, and blocks as
  // NamedBy. Errors: those of NamedBy.
  StatusOr<std::shared_ptr<const Names>> ObjectsNamedBy(const std::string& list);

 private:
  struct List {
    Names blobs, objects;
  };
  StatusOr<std::shared_ptr<const List>> Read(const std::string& list);

  static constexpr size_t kKept = 8;  // most recently used lists kept in memory; they may be large

  const BlobStore* const blobs_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const List>>> kept_;  // newest first
};

}  // namespace longhaul::coordinator
