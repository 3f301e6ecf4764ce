// Decides whether a caller is admitted. Checks its identity (GuardedPort), that it is still a
// member (Members), and that its role has the right to the call (rights.h). Thread-safe.
#pragma once

#include <string>

#include "base/status.h"
#include "coordinator/rpc/rights.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/members.h"
#include "proto/rpc/guarded_port.h"

namespace longhaul::coordinator {

// The stores in which a caller may look for a blob. At least one is true.
struct MayBe {
  bool blob = false;  // uploads, and token files made of them
  bool copy = false;  // copies of checkpoint shards
};

class Gate {
 public:
  // All arguments must outlive this object. `members`: null without TLS.
  Gate(GuardedPort* port, const Members* members, const Shell* shell, BlobLists* lists)
      : port_(port), members_(members), shell_(shell), lists_(lists) {}

  // Returns who makes `call`. Each function that serves a call must call Admit first.
  // kUnauthenticated: the coordinator does not know the caller. kPermissionDenied: the caller's
  // role lacks the right.
  StatusOr<Caller> Admit(const grpc::ServerContextBase& context, Call call);
  // Checks an admitted caller again. kUnauthenticated: the caller was revoked meanwhile.
  Status StillMember(const Caller& caller) const;
  // Returns the status of a run, given its id or name. kNotFound; kPermissionDenied: the run
  // belongs to another user.
  StatusOr<v1::RunStatus> StatusOfOwnRun(const Caller& caller, const std::string& run) const;
  // Checks that the caller may see and stop a run, and returns the run's id. A caller that may see
  // all runs gets `run` back unchecked. Errors as StatusOfOwnRun.
  StatusOr<std::string> OwnRun(const Caller& caller, const std::string& run) const;
  // Returns where the caller may look for a blob. kPermissionDenied: the caller may not have the
  // blob. A user may have the blobs that the user's own runs name. A worker may have the blobs of
  // the runs in which it has a cell (a stage of one replica). kUnavailable: the worker has no
  // session, as after a restart of the coordinator, so its cells are not known yet.
  StatusOr<MayBe> MayFetch(const Caller& caller, const std::string& sha256) const;
  // Closes every connection of a member, given the member's name.
  void Cut(const std::string& member) { port_->Cut(member); }

 private:
  GuardedPort* const port_;
  const Members* const members_;
  const Shell* const shell_;
  BlobLists* const lists_;
};

}  // namespace longhaul::coordinator
