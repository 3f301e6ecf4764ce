// The coordinator's own check of a submission, with the same code as the CLI's.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/control.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// The blobs that a submitter may name. The submitter cannot tell other blobs from missing ones.
struct Nameable {
  bool all = false;  // the submitter may name all blobs; `own` is not called
  std::function<bool(const std::string& sha256)> own;
  BlobLists& lists;
};

// Checks a submission and returns its run file, parsed. Claims the blobs that the submission names,
// so garbage collection keeps them for a day. kInvalidArgument names every error of the run file,
// or the limit (intake.h) that the submission exceeds. kFailedPrecondition names the data files
// that the coordinator lacks, or that have another size here.
StatusOr<RunSpec> CheckSubmit(const v1::SubmitRequest& request, const BlobStore& blobs,
                              const Nameable& nameable);
// As CheckSubmit, for a run that is only planned and so needs no weights.
StatusOr<RunSpec> CheckPlan(const v1::SubmitRequest& request, const BlobStore& blobs,
                            const Nameable& nameable);

}  // namespace longhaul::coordinator
