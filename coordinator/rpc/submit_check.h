// The coordinator's own check of what is submitted, by the same code as the CLI's.
#ifndef LONGHAUL_COORDINATOR_RPC_SUBMIT_CHECK_H_
#define LONGHAUL_COORDINATOR_RPC_SUBMIT_CHECK_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/control.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// What the submitter may name. A blob that is not his own is to him as one that is not there.
struct Nameable {
  bool all = false;  // then the rest is not looked at
  std::function<bool(const std::string& sha256)> own;
  BlobLists& lists;
};

// kInvalidArgument with every error of the run file or of its data; kFailedPrecondition for data
// files that were not uploaded by the submitter.
StatusOr<RunSpec> CheckSubmit(const v1::SubmitRequest& request, const BlobStore& blobs,
                              const Nameable& nameable);
// The same of a run that is only planned, which needs no weights.
StatusOr<RunSpec> CheckPlan(const v1::SubmitRequest& request, const BlobStore& blobs,
                            const Nameable& nameable);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_SUBMIT_CHECK_H_
