// Finds the checkpoint of a run in an object store, with the credentials of the user's environment
// (base/remote/settings.h).
#pragma once

#include <string>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::cli {

struct FoundCheckpoint {
  std::string folder;  // "s3://bucket/prefix/run/step-00000050/"
  v1::StoredCheckpoint checkpoint;
};

// `address`: the folder of one checkpoint, or of a run, whose newest checkpoint is then taken.
// kInvalidArgument: not an address of S3 or Google Cloud Storage. kNotFound: there is no whole
// checkpoint. Other errors: those of FindSettings, of the store and of stored::FromJson.
StatusOr<FoundCheckpoint> FindStoredCheckpoint(const std::string& address);

}  // namespace longhaul::cli
