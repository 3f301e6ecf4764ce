// Makes token files (the token ids of a run's text files) and keeps them as blobs; one for each
// combination of data, tokenizer and validation share.
#pragma once

#include <string>

#include "base/status.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_store.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

class DataPreparer {
 public:
  // `cache_folder` stores which blob was made from which data; it is created if missing. `blobs`
  // must outlive this object. Errors: the system's for a folder that cannot be created.
  static StatusOr<DataPreparer> Open(const std::string& cache_folder, const BlobStore* blobs);

  // Requests with the same key get the same token file.
  std::string KeyOf(const command::PrepareData& request) const;

  // Makes a token file of the request's files, which must be blobs, or finds the result of an
  // earlier call. Data sets are tokens already and are only counted. Takes as long as reading and
  // writing the files. Thread-safe, but two calls at once with one key do the work twice.
  // kFailedPrecondition names a missing file. Other errors: the data does not fit the request, or
  // files cannot be read or written.
  StatusOr<DataSet> Prepare(const command::PrepareData& request) const;

 private:
  // For data sets, which are already tokens.
  StatusOr<DataSet> PrepareSets(const command::PrepareData& request) const;
  DataPreparer(std::string cache_folder, const BlobStore* blobs)
      : cache_folder_(std::move(cache_folder)), blobs_(blobs) {}
  std::string cache_folder_;
  const BlobStore* blobs_;
};

}  // namespace longhaul::coordinator
