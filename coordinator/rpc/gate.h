// Decides whether a caller is admitted: its identity (GuardedPort), whether it is still a member
// (Members), and whether its role has the right (rights.h). Thread-safe.
#pragma once

#include <string>

#include "base/status.h"
#include "coordinator/rpc/rights.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/members.h"
#include "proto/rpc/guarded_port.h"

namespace longhaul::coordinator {

// The stores in which a caller may look for a blob; at least one.
struct MayBe {
  bool blob = false;  // uploads, and token files made of them
  bool copy = false;  // shards
};

class Gate {
 public:
  // All arguments must outlive this object. `members`: null without TLS.
  Gate(GuardedPort* port, const Members* members, const Shell* shell, BlobLists* lists)
      : port_(port), members_(members), shell_(shell), lists_(lists) {}

  // Call it first in every call. kUnauthenticated: the coordinator does not know the caller.
  // kPermissionDenied: its role lacks the right.
  StatusOr<Caller> Admit(const grpc::ServerContextBase& context, Call call);
  // Checks an admitted caller again. kUnauthenticated: revoked since.
  Status StillMember(const Caller& caller) const;
  // kPermissionDenied: the run belongs to another user.
  StatusOr<v1::RunStatus> StatusOfOwnRun(const Caller& caller, const std::string& run) const;
  // Returns the id of a run that the caller may see and stop. For callers that may see all runs,
  // returns `run` unchanged.
  StatusOr<std::string> OwnRun(const Caller& caller, const std::string& run) const;
  // kPermissionDenied unless the caller's role has a right to this blob. kUnavailable for a worker
  // without a session, as after a takeover or a restart: it may have a cell.
  StatusOr<MayBe> MayFetch(const Caller& caller, const std::string& sha256) const;
  // Closes every connection of a member.
  void Cut(const std::string& member) { port_->Cut(member); }

 private:
  GuardedPort* const port_;
  const Members* const members_;
  const Shell* const shell_;
  BlobLists* const lists_;
};

}  // namespace longhaul::coordinator
