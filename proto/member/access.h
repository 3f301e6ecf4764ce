// How a worker, the CLI or a cluster reaches its coordinator: as a member, by TLS; or as --insecure
// has it, without encryption.
//
// A coordinator may have a standby. Then there are several addresses, and one of them is at hand:
// the first, until somebody finds that the coordinator there does not serve and says so. Then the
// next one is at hand, for all who use this Access.
//
//   AccessOptions options{
//       .addresses = {"h:7070"}, .token_file = "token", .credentials_file = "me.pem"};
//   LH_ASSIGN_OR_RETURN(const std::shared_ptr<Access> access,
//                       Access::Open(options, absl::Seconds(5)));
//   StubOf<v1::WorkerService> stub(access);
//   grpc::ClientContext context;
//   access->Prepare(&context);
//   stub.Get()->FetchBlob(&context, request);  // kUnavailable: stub.DoesNotServe();
//
// Thread-safe.
#ifndef LONGHAUL_PROTO_MEMBER_ACCESS_H_
#define LONGHAUL_PROTO_MEMBER_ACCESS_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "proto/identity/credentials.h"
#include "proto/identity/join_token.h"

namespace longhaul {

struct AccessOptions {
  std::vector<std::string> addresses;  // of coordinators, at least one; tried in this order
  // A join token, or with `insecure` the coordinator's token; empty: none.
  std::string token_file = {};
  // Where key and certificate are, or will be after joining. One process at a time joins; its new
  // key is in FILE.joining until the certificate has come, so an attempt that fails spoils nothing.
  std::string credentials_file = {};
  bool insecure = false;
  // As what to join; left out: as what the token says.
  std::optional<Role> role = {};
  std::string name = {};  // wished for
  std::string worker_id = {};
};

class Access {
 public:
  // Without credentials of the token's authority and role: joins, which blocks for `limit` at most
  // with each coordinator. kUnavailable: nobody answers, try again. kUnauthenticated: a coordinator
  // refuses, or is not the token's. kFailedPrecondition, kInvalidArgument: what files and flags
  // are.
  static StatusOr<std::shared_ptr<Access>> Open(const AccessOptions& options, absl::Duration limit);
  // Without encryption; an empty token is none.
  static std::shared_ptr<Access> Plain(std::string address, std::string token);
  static std::shared_ptr<Access> PlainOfSeveral(std::vector<std::string> addresses,
                                                std::string token);

  std::string address() const;  // of the coordinator at hand
  bool alone() const { return options_.addresses.size() == 1; }
  size_t count() const { return options_.addresses.size(); }  // of coordinators
  bool insecure() const { return options_.insecure; }
  // Call it before each call starts. It adds the token where access is insecure. A coordinator that
  // is alone is waited for by those who want to wait; of several, one that is down is not.
  void Prepare(grpc::ClientContext* context, bool wait = true) const;
  // Grows when there is a new certificate, or another coordinator is at hand: then channels are to
  // be made anew.
  uint64_t generation() const;

  // A connection of its own to the coordinator at hand. Of several coordinators, one has 2 s to
  // connect.
  struct Connection {
    std::string address;
    uint64_t generation = 0;
    std::shared_ptr<grpc::Channel> channel;
  };
  Connection Dial() const;

  // Says that the coordinator that was at hand at `generation` does not serve: it is down, or is a
  // standby. Then the next one is at hand, unless another one is by now. Nothing changes where
  // there is one alone.
  void GoOnFrom(uint64_t generation);
  // Asks the coordinator at hand, and where that one does not serve (kUnavailable) the next one,
  // each once. The error of several in vain says what each of them said.
  Status AskEach(const std::function<Status(const std::string& address)>& ask);

  // Gets a new certificate when two thirds of the old one's time are over, and has it stored.
  // Blocks for seconds at most; OK where nothing is due, and not tried again within `pause` after
  // an error.
  Status RenewIfDue(absl::Duration pause);

 private:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}
  StatusOr<bool> LoadStored(const std::optional<JoinToken>& token);
  Status Join(const JoinToken& token, absl::Duration limit);
  Status Renew(const Credentials& old);
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                           const Credentials& credentials) const;
  grpc::ClientContext* Until(grpc::ClientContext* context, Deadline deadline) const;
  // Checks and stores what the coordinator gave; channels are made with it from now on.
  Status Keep(const Credentials& given);

  const AccessOptions options_;
  std::string token_;         // insecure
  mutable std::mutex mutex_;  // of all below
  Credentials credentials_;
  std::optional<MemberCertificate> certificate_;
  size_t at_hand_ = 0;  // of the addresses
  uint64_t generation_ = 0;
  MonoTime renew_from_{};
};

// A stub of a service over a channel of its own, which is made anew with each certificate and for
// each coordinator that is at hand. Thread-safe.
template <class Service>
class StubOf {
 public:
  explicit StubOf(std::shared_ptr<Access> access) : access_(std::move(access)) {}
  // Valid as long as somebody holds it.
  std::shared_ptr<typename Service::Stub> Get() {
    const std::lock_guard lock(mutex_);
    if (stub_ == nullptr || dialled_.generation != access_->generation()) {
      dialled_ = access_->Dial();
      stub_ = Service::NewStub(dialled_.channel);
    }
    return stub_;
  }
  // The coordinator of the last Get: its address, whether the newest attempt to connect to it has
  // failed, and to say that it does not serve.
  std::string address() const {
    const std::lock_guard lock(mutex_);
    return dialled_.address;
  }
  bool unreachable() const {
    const std::lock_guard lock(mutex_);
    return dialled_.channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  }
  void DoesNotServe() {
    const std::lock_guard lock(mutex_);
    access_->GoOnFrom(dialled_.generation);
  }
  // The next Get dials from anew.
  void Drop() {
    const std::lock_guard lock(mutex_);
    stub_.reset();
  }
  const Access& access() const { return *access_; }

 private:
  const std::shared_ptr<Access> access_;
  mutable std::mutex mutex_;
  std::shared_ptr<typename Service::Stub> stub_;
  Access::Connection dialled_;
};

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_MEMBER_ACCESS_H_
