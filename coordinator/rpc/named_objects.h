// Decides which objects (base/remote/store.h) of other servers a run names. Only for these its
// workers get signed addresses. Thread-safe.
#pragma once

#include <cstdint>

#include "base/remote/address.h"
#include "base/status.h"
#include "coordinator/state/queries/rights.h"
#include "coordinator/store/blob_lists.h"

namespace longhaul::coordinator {

enum class ObjectUse : uint8_t { kRead, kWrite };

class NamedObjects {
 public:
  // `lists` must outlive this object.
  explicit NamedObjects(BlobLists* lists) : lists_(lists) {}

  // Reads: the files in the run's list of weights and in its list of data sets. Writes: none. The
  // objects of checkpoints are another matter (Views::MovesObject). kPermissionDenied: the run does
  // not name the object for this use. Reads lists from the disk; their errors are those of
  // BlobLists.
  Status Check(const WorkersRun& run, const remote::Address& object, ObjectUse use) const;

 private:
  BlobLists* const lists_;
};

}  // namespace longhaul::coordinator
