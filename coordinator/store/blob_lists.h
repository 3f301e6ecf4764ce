// Tells what lists of blobs name. A list is itself a blob, and names the chunks of a run's data
// sets or the tensors of its published model. Chunks and tensors at addresses are no blobs: of
// these it names the files. A list is read once, as a stream; what it names goes into an index
// (blob_index.h), and questions are answered from there. Thread-safe: who reads a list keeps nobody
// waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/store/blob_index.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/list_names.h"

namespace longhaul::coordinator {

class BlobLists {
 public:
  // Both must outlive this object.
  BlobLists(const BlobStore* blobs, BlobIndex* index) : blobs_(blobs), index_(index) {}

  // Reads a list, given its SHA-256. Takes as long as reading a file of kMostListBytes. kNotFound:
  // no such blob. kInvalidArgument: not a hash, not a list, or too large a list.
  StatusOr<ListNames> Read(const std::string& list) const { return Read(*blobs_, list); }
  static StatusOr<ListNames> Read(const BlobStore& blobs, const std::string& list);
  // Puts what a list names into the index, as Read has returned it. Then no question has to read
  // the list.
  Status Add(const std::string& list, const ListNames& names);
  // Returns whether one of these lists names the blob with this SHA-256. Reads lists that are not
  // in the index. A list that is gone, or is none, names nothing.
  bool NamesBlob(const std::vector<std::string>& lists, const std::string& sha256);
  // Returns whether the list names the file at this address (remote::ToString). Errors: those of
  // Read.
  StatusOr<bool> NamesObject(const std::string& list, const std::string& address);

  // As NamesBlob, for many questions about the same lists. Must not outlive this object.
  std::function<bool(const std::string& sha256)> NamedByAny(const std::set<std::string>& lists);

 private:
  StatusOr<int64_t> NumberOf(const std::string& list);

  const BlobStore* const blobs_;
  BlobIndex* const index_;
  std::mutex mutex_;  // guards reading_
  // Held by the thread that reads a list, so that others who need this one wait for it.
  std::map<std::string, std::shared_ptr<std::mutex>> reading_;
};

}  // namespace longhaul::coordinator
