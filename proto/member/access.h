// How a worker, the CLI or a cluster reaches its coordinator: as a member, by TLS; or as --insecure
// has it, without encryption.
//
//   AccessOptions options{.address = "h:7070", .token_file = "token", .credentials_file =
//   "me.pem"}; LH_ASSIGN_OR_RETURN(const std::shared_ptr<Access> access, Access::Open(options,
//   deadline)); StubOf<v1::WorkerService> stub(access); grpc::ClientContext context;
//   access->AddTo(&context);
//   stub.Get()->FetchBlob(&context, request);
//
// Thread-safe.
#ifndef LONGHAUL_PROTO_MEMBER_ACCESS_H_
#define LONGHAUL_PROTO_MEMBER_ACCESS_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "proto/identity/credentials.h"
#include "proto/identity/join_token.h"

namespace longhaul {

struct AccessOptions {
  std::string address;
  // A join token, or with `insecure` the coordinator's token; empty: none.
  std::string token_file = {};
  // Where key and certificate are, or will be after joining. One process at a time joins.
  std::string credentials_file = {};
  bool insecure = false;
  // As what to join; left out: as what the token says.
  std::optional<Role> role = {};
  std::string name = {};  // wished for
  std::string worker_id = {};
};

class Access {
 public:
  // Without credentials of the token's authority and role: joins, which blocks until `deadline` at
  // most. kUnavailable: nobody answers, try again. kUnauthenticated: the coordinator refuses, or is
  // not the token's. kFailedPrecondition, kInvalidArgument: what files and flags are.
  static StatusOr<std::shared_ptr<Access>> Open(const AccessOptions& options, Deadline deadline);
  // Without encryption; an empty token is none.
  static std::shared_ptr<Access> Plain(std::string address, std::string token);

  const std::string& address() const { return options_.address; }
  bool insecure() const { return options_.insecure; }
  // Call it before each call starts. It adds the token where access is insecure, else nothing.
  void AddTo(grpc::ClientContext* context) const;
  std::shared_ptr<grpc::Channel> NewChannel() const;  // a connection of its own
  // Grows when there is a new certificate: then channels are to be made anew.
  uint64_t generation() const;

  // Gets a new certificate when two thirds of the old one's time are over, and has it stored.
  // Blocks for seconds at most; OK where nothing is due, and not tried again within `pause` after
  // an error.
  Status RenewIfDue(absl::Duration pause);

 private:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}
  StatusOr<bool> LoadStored(const std::optional<JoinToken>& token);
  Status Join(const JoinToken& token, Deadline deadline);
  Status Renew(const Credentials& old);
  // Checks and stores what the coordinator gave; channels are made with it from now on.
  Status Keep(const Credentials& given);

  const AccessOptions options_;
  std::string token_;         // insecure
  mutable std::mutex mutex_;  // of all below
  Credentials credentials_;
  std::optional<MemberCertificate> certificate_;
  uint64_t generation_ = 0;
  MonoTime renew_from_{};
};

// A stub of a service over a channel of its own, which is made anew with each certificate.
template <class Service>
class StubOf {
 public:
  explicit StubOf(std::shared_ptr<const Access> access) : access_(std::move(access)) {}
  // Valid as long as somebody holds it.
  std::shared_ptr<typename Service::Stub> Get() {
    const std::lock_guard lock(mutex_);
    const uint64_t now = access_->generation();
    if (stub_ == nullptr || generation_ != now) {
      generation_ = now;
      stub_ = Service::NewStub(access_->NewChannel());
    }
    return stub_;
  }
  // The next Get dials from anew.
  void Drop() {
    const std::lock_guard lock(mutex_);
    stub_.reset();
  }
  const Access& access() const { return *access_; }

 private:
  const std::shared_ptr<const Access> access_;
  std::mutex mutex_;
  std::shared_ptr<typename Service::Stub> stub_;
  uint64_t generation_ = 0;
};

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_MEMBER_ACCESS_H_
