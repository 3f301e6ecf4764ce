// Carries out what people change in the dashboard, with the rights of the owners of their keys, as
// ControlServiceImpl does for their commands. Thread-safe.
#pragma once

#include <string>

#include "coordinator/http/changes.h"
#include "coordinator/rpc/dashboard_keys.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/own_blobs.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_store.h"

namespace longhaul::coordinator {

class DashboardChanges : public Changes {
 public:
  // All pointers must outlive this object. `with_members`: the coordinator has TLS; keys of nobody
  // are then refused.
  DashboardChanges(const DashboardKeys* keys, const Gate* gate, Shell* shell,
                   const BlobStore* blobs, OwnBlobs* own_blobs, bool with_members)
      : keys_(keys),
        gate_(gate),
        shell_(shell),
        blobs_(blobs),
        own_blobs_(own_blobs),
        with_members_(with_members) {}

  StatusOr<Viewer> Identify(const Asker& asker) override;
  StatusOr<v1::SubmitRequest> Submission(const Asker& asker, const std::string& run) override;
  StatusOr<v1::SubmitReply> Submit(const Asker& asker, const Wanted& wanted,
                                   Deadline deadline) override;
  StatusOr<v1::StopReply> Stop(const Asker& asker, const std::string& run, bool now,
                               Deadline deadline) override;

 private:
  // Returns the key's owner, if the owner may make this call. Notes a refusal.
  StatusOr<Caller> Admit(const Asker& asker, Call call) const;
  StatusOr<v1::SubmitRequest> SubmissionOf(const Caller& caller, const std::string& run) const;
  StatusOr<v1::SubmitReply> SubmitFor(const Caller& caller, const Wanted& wanted,
                                      Deadline deadline);

  const DashboardKeys* const keys_;
  const Gate* const gate_;
  Shell* const shell_;
  const BlobStore* const blobs_;
  OwnBlobs* const own_blobs_;
  const bool with_members_;
};

}  // namespace longhaul::coordinator
