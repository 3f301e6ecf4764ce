// The coordinator's own check of what is submitted, by the same code as the CLI's.
#ifndef LONGHAUL_COORDINATOR_RPC_SUBMIT_CHECK_H_
#define LONGHAUL_COORDINATOR_RPC_SUBMIT_CHECK_H_

#include "base/status.h"
#include "coordinator/store/blob_store.h"
#include "longhaul/v1/control.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// kInvalidArgument with every error of the run file or of its data; kFailedPrecondition for data
// files that were not uploaded.
StatusOr<RunSpec> CheckSubmit(const v1::SubmitRequest& request, const BlobStore& blobs);
// The same of a run that is only planned, which needs no weights.
StatusOr<RunSpec> CheckPlan(const v1::SubmitRequest& request, const BlobStore& blobs);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_SUBMIT_CHECK_H_
