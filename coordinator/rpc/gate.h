// Decides whether a caller is admitted. Checks its identity (GuardedPort), that it is still a
// member (Members), and that its role has the right to the call (rights.h). Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "coordinator/rpc/rights.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/rpc/time_share.h"
#include "coordinator/store/audit.h"
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
  // `signer`: fingerprint of the authority that signs certificates now, which callers are told
  // while its key is rotated; empty: they know it.
  Gate(GuardedPort* port, const Members* members, const Shell* shell, BlobLists* lists,
       Audit* audit, std::string signer)
      : port_(port),
        members_(members),
        shell_(shell),
        lists_(lists),
        audit_(audit),
        signer_(std::move(signer)),
        // Tests of the gate alone have no shell.
        questions_(shell == nullptr
                       ? TimeShare(kTimeShareOfMember, kTimeBurstOfMember)
                       : TimeShare(shell->limits().time_share, shell->limits().time_burst)) {}

  // Returns who makes `call`. Each function that serves a call must call Admit first.
  // kUnauthenticated: the coordinator does not know the caller. kPermissionDenied: the caller's
  // role lacks the right. kResourceExhausted: answers to this member have taken more than its share
  // of the coordinator's time. A refusal is noted in the audit log.
  //
  // A member that is revoked meanwhile is refused here, or its connection is cut: the member is
  // checked once more after the port knows the connection as the member's, and a revocation ends
  // the membership before it cuts the member's connections.
  StatusOr<Caller> Admit(grpc::ServerContextBase& context, Call call);
  // Counts the processor's time that answering an admitted call took.
  void Took(const Caller& caller, Call call, absl::Duration time);
  // Checks an admitted caller again. kUnauthenticated: the caller was revoked meanwhile.
  Status StillMember(const Caller& caller) const;
  // Returns the status of the caller's run with this id, or of the caller's newest run of this
  // name. Admins get any run, their own ones first. kNotFound: there is none; the answer is the
  // same whether others have one, and is noted as the refusal of `call`.
  StatusOr<v1::RunStatus> StatusOfOwnRun(const Caller& caller,
                                         const grpc::ServerContextBase& context, Call call,
                                         const std::string& run) const;
  // Returns the id of this run. An admin gets `run` back if there is none, because a run that
  // cannot be read has no status. Errors as StatusOfOwnRun.
  StatusOr<std::string> OwnRun(const Caller& caller, const grpc::ServerContextBase& context,
                               Call call, const std::string& run) const;
  // Returns where the caller may look for a blob. kPermissionDenied: the caller may not have the
  // blob. A user may have the blobs that the user's own runs name. A worker may have the blobs of
  // the runs in which it has a cell (a stage of one replica). kUnavailable: the worker has no
  // session, as after a restart of the coordinator, so its cells are not known yet.
  StatusOr<MayBe> MayFetch(const Caller& caller, const std::string& sha256) const;
  // Closes every connection of a member, given the member's name.
  void Cut(const std::string& member) { port_->Cut(member); }

  // ---- The audit log (coordinator/store/audit.h)
  // Notes that the caller did `action`, or tried to, and how it ended.
  void Note(const Caller& caller, const grpc::ServerContextBase& context, std::string_view action,
            std::string_view object, const Status& outcome) const;
  // The same after the call has ended. `address`: the caller's, PeerHost of its context.
  void Note(const Caller& caller, const std::string& address, std::string_view action,
            std::string_view object, const Status& outcome) const;
  // Notes a call that was refused. `caller`: nullptr if nobody knows who called.
  void NoteRefusal(const grpc::ServerContextBase& context, const Caller* caller,
                   std::string_view action, std::string_view object, const Status& why) const;
  void NoteRefusal(const std::string& address, const Caller* caller, std::string_view action,
                   std::string_view object, const Status& why) const;
  // For tests: runs inside Admit, after a first look at the member and before the port knows the
  // connection. Set it before the first call.
  void BeforeLetIn(std::function<void()> hook) { before_let_in_ = std::move(hook); }

 private:
  GuardedPort* const port_;
  const Members* const members_;
  const Shell* const shell_;
  BlobLists* const lists_;
  Audit* const audit_;
  const std::string signer_;
  TimeShare questions_;
  std::function<void()> before_let_in_;
};

}  // namespace longhaul::coordinator
