// The one place where callers are let in: who they are (GuardedPort), whether they are members
// still (Members), and whether their role may (rights.h). Thread-safe.
#ifndef LONGHAUL_COORDINATOR_RPC_GATE_H_
#define LONGHAUL_COORDINATOR_RPC_GATE_H_

#include <string>

#include "base/status.h"
#include "coordinator/rpc/rights.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/members.h"
#include "proto/rpc/guarded_port.h"

namespace longhaul::coordinator {

// In which stores a caller may look for a blob; at least one of them.
struct MayBe {
  bool blob = false;  // what was uploaded, and tokens made of it
  bool copy = false;  // shards
};

class Gate {
 public:
  // All must outlive this. `members`: null without TLS.
  Gate(GuardedPort* port, const Members* members, const Shell* shell, BlobLists* lists)
      : port_(port), members_(members), shell_(shell), lists_(lists) {}

  // First in every call. kUnauthenticated: nobody whom this coordinator knows; kPermissionDenied.
  StatusOr<Caller> Admit(const grpc::ServerContextBase& context, Call call);
  // Of a caller who was let in before. kUnauthenticated: revoked since.
  Status StillMember(const Caller& caller) const;
  // The id of a run that the caller may see and stop; for those who may all, `run` as it is.
  StatusOr<std::string> OwnRun(const Caller& caller, const std::string& run) const;
  // kPermissionDenied unless the blob is named as the caller's role needs it. kUnavailable of a
  // worker that has no session here, as after a takeover or a restart: it may have a cell.
  StatusOr<MayBe> MayFetch(const Caller& caller, const std::string& sha256) const;
  // Ends every connection of a member.
  void Cut(const std::string& member) { port_->Cut(member); }

 private:
  GuardedPort* const port_;
  const Members* const members_;
  const Shell* const shell_;
  BlobLists* const lists_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_GATE_H_
