// What a run's list names: the chunks of data sets, or the tensors of a published model, that the
// coordinator has for its workers. Read as the list's format has it, so that a hash which only
// stands somewhere in the text is not named. Thread-safe.
#ifndef LONGHAUL_COORDINATOR_STORE_BLOB_LISTS_H_
#define LONGHAUL_COORDINATOR_STORE_BLOB_LISTS_H_

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

// As a JSON text.
inline constexpr uint64_t kMostListBytes = uint64_t{256} << 20;

class BlobLists {
 public:
  // Hashes as 64 hexadecimal digits.
  using Names = std::unordered_set<std::string>;

  // `blobs` must outlive this.
  explicit BlobLists(const BlobStore* blobs) : blobs_(blobs) {}
  // Data sets on the web are left out: workers fetch these there. kNotFound: there is no such blob.
  // kInvalidArgument: it is no list.
  StatusOr<std::shared_ptr<const Names>> NamedBy(const std::string& list);

 private:
  static constexpr size_t kKept = 8;  // that were asked for last; they may be large

  const BlobStore* const blobs_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Names>>> kept_;  // newest first
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_BLOB_LISTS_H_
