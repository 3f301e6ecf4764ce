// Token files: made once for each (data, tokenizer, share), kept as blobs.
#ifndef LONGHAUL_COORDINATOR_STORE_PREPARE_DATA_H_
#define LONGHAUL_COORDINATOR_STORE_PREPARE_DATA_H_

#include <string>

#include "base/status.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_store.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

class DataPreparer {
 public:
  // `cache_folder` remembers which blob was made from what. `blobs` must outlive this.
  static StatusOr<DataPreparer> Open(const std::string& cache_folder, const BlobStore* blobs);

  // What is made depends on this alone: requests with the same key get the same token file.
  std::string KeyOf(const command::PrepareData& request) const;

  // Tokenizes the files (blobs that are there), or finds what was made of them before. Takes as
  // long as reading and writing them does. Thread-safe; of one key one call at a time, or the work
  // is done twice. kFailedPrecondition naming a file that is not there.
  StatusOr<DataSet> Prepare(const command::PrepareData& request) const;

 private:
  // Of data sets, which are tokens already.
  StatusOr<DataSet> PrepareSets(const command::PrepareData& request) const;
  DataPreparer(std::string cache_folder, const BlobStore* blobs)
      : cache_folder_(std::move(cache_folder)), blobs_(blobs) {}
  std::string cache_folder_;
  const BlobStore* blobs_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_PREPARE_DATA_H_
