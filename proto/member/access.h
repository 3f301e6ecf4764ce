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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "proto/identity/credentials.h"
#include "proto/identity/join_token.h"

namespace longhaul {

struct AccessOptions {
  // host:port, or several with commas between: a coordinator and its standbys.
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
  // Without credentials of the token's authority and role: joins at the first coordinator that
  // answers, which blocks until `deadline` at most. kUnavailable: nobody answers, try again.
  // kUnauthenticated: the coordinator refuses, or is not the token's. kFailedPrecondition,
  // kInvalidArgument: what files and flags are.
  static StatusOr<std::shared_ptr<Access>> Open(const AccessOptions& options, Deadline deadline);
  // Without encryption; an empty token is none.
  static std::shared_ptr<Access> Plain(std::string address, std::string token);

  // The coordinator at hand.
  std::string address() const;
  // Whether there are others to go to. Calls then do not wait for one that is not there.
  bool several() const { return count() > 1; }
  size_t count() const { return addresses_.size(); }
  // The coordinator at `address` does not serve: from now on the next of several is at hand, unless
  // another is already.
  void GiveUp(const std::string& address) const;
  bool insecure() const { return options_.insecure; }
  // Call it before each call starts. It adds the token where access is insecure, else nothing.
  void AddTo(grpc::ClientContext* context) const;
  std::shared_ptr<grpc::Channel> NewChannel() const;  // a connection of its own
  // Grows with a new certificate and with another coordinator: then channels are to be made anew.
  uint64_t generation() const;

  // Gets a new certificate when two thirds of the old one's time are over, and has it stored.
  // Blocks for seconds at most; OK where nothing is due, and not tried again within `pause` after
  // an error.
  Status RenewIfDue(absl::Duration pause);

 private:
  Access(AccessOptions options, std::vector<std::string> addresses)
      : options_(std::move(options)), addresses_(std::move(addresses)) {}
  static StatusOr<std::shared_ptr<Access>> Make(const AccessOptions& options);
  StatusOr<bool> LoadStored(const std::optional<JoinToken>& token);
  // At the coordinator at hand.
  Status Join(const JoinToken& token, Deadline deadline);
  Status JoinAtOneOf(const JoinToken& token, Deadline deadline);
  Status Renew(const Credentials& old);
  // Checks and stores what the coordinator gave; channels are made with it from now on.
  Status Keep(const Credentials& given);

  const AccessOptions options_;
  const std::vector<std::string> addresses_;
  std::string token_;         // insecure
  mutable std::mutex mutex_;  // of all below
  Credentials credentials_;
  std::optional<MemberCertificate> certificate_;
  mutable size_t at_hand_ = 0;
  mutable uint64_t generation_ = 0;
  MonoTime renew_from_{};
};

// Works at a channel's connection until there is one; false after `limit`, and as soon as an
// attempt has failed.
bool Connect(grpc::Channel& channel, absl::Duration limit);
// One of several coordinators is given so long.
inline constexpr absl::Duration kConnectLimit = absl::Seconds(2);

// A stub of a service over a channel of its own, which is made anew with each certificate and each
// coordinator.
template <class Service>
class StubOf {
 public:
  explicit StubOf(std::shared_ptr<const Access> access) : access_(std::move(access)) {}
  // Valid as long as somebody holds it.
  std::shared_ptr<typename Service::Stub> Get() {
    const std::lock_guard lock(mutex_);
    Refresh();
    return stub_;
  }
  // Before a call: where there are several coordinators, whether the one at hand is there. If not,
  // the next one is at hand: kUnavailable.
  Status AwaitConnection() {
    if (!access_->several()) return absl::OkStatus();
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    {
      const std::lock_guard lock(mutex_);
      address = access_->address();
      Refresh();
      channel = channel_;
    }
    if (Connect(*channel, kConnectLimit)) return absl::OkStatus();
    access_->GiveUp(address);
    return absl::UnavailableError("no answer from " + address);
  }
  // The next Get dials from anew.
  void Drop() {
    const std::lock_guard lock(mutex_);
    stub_.reset();
  }
  const Access& access() const { return *access_; }

 private:
  void Refresh() {
    const uint64_t now = access_->generation();
    if (stub_ != nullptr && generation_ == now) return;
    generation_ = now;
    channel_ = access_->NewChannel();
    stub_ = Service::NewStub(channel_);
  }

  const std::shared_ptr<const Access> access_;
  std::mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<typename Service::Stub> stub_;
  uint64_t generation_ = 0;
};

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_MEMBER_ACCESS_H_
