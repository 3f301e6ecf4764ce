// How a worker, the CLI or a cluster reaches its coordinator: as a member over TLS, or with
// --insecure without encryption.
//
// A coordinator may have a standby, and then there are several addresses. One of them is current,
// at the start the first. When a caller reports that the current coordinator does not serve, the
// next one becomes current for all users of this Access.
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
#pragma once

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
  std::vector<std::string> addresses;  // of coordinators, at least one; tried in order
  // A join token, or with `insecure` the coordinator's token; empty: none.
  std::string token_file = {};
  // File of key and certificate, present or to be written after joining. One process at a time
  // joins. Its new key stays in FILE.joining until the certificate arrives, so a failed attempt is
  // harmless.
  std::string credentials_file = {};
  bool insecure = false;
  // The role to join as. Absent: the token's.
  std::optional<Role> role = {};
  std::string name = {};  // the requested name
  std::string worker_id = {};
};

class Access {
 public:
  // Joins if there are no credentials of the token's authority and role; this blocks for at most
  // `limit` per coordinator. kUnavailable: no coordinator answers, try again. kUnauthenticated: a
  // coordinator refuses, or is not the token's. kFailedPrecondition, kInvalidArgument: problems of
  // files and flags.
  static StatusOr<std::shared_ptr<Access>> Open(const AccessOptions& options, absl::Duration limit);
  // Without encryption. An empty token means no token.
  static std::shared_ptr<Access> Plain(std::string address, std::string token);
  static std::shared_ptr<Access> PlainOfSeveral(std::vector<std::string> addresses,
                                                std::string token);

  std::string address() const;  // of the current coordinator
  bool alone() const { return options_.addresses.size() == 1; }
  size_t count() const { return options_.addresses.size(); }  // number of coordinators
  bool insecure() const { return options_.insecure; }
  // Call it before each call starts. Without TLS it adds the token. With `wait` the call waits
  // while the coordinator is down, but only if there is a single coordinator.
  void Prepare(grpc::ClientContext* context, bool wait = true) const;
  // Grows with every new certificate and every change of the current coordinator. After that, make
  // channels anew.
  uint64_t generation() const;

  // A connection to the current coordinator, not shared with others. With several coordinators it
  // has 2 s to connect.
  struct Connection {
    std::string address;
    uint64_t generation = 0;
    std::shared_ptr<grpc::Channel> channel;
  };
  Connection Dial() const;

  // Reports that the coordinator that was current at `generation` does not serve: it is down, or is
  // a standby. The next one becomes current, unless another already is. Does nothing with a single
  // coordinator.
  void GoOnFrom(uint64_t generation);
  // Calls `ask` for the current coordinator, and for the next one if that does not serve
  // (kUnavailable); each once. If all fail, the error quotes each of them.
  Status AskEach(const std::function<Status(const std::string& address)>& ask);

  // Renews and stores the certificate when two thirds of its lifetime are over. Blocks for seconds
  // at most. OK if nothing is due. Does not try again within `pause` after an error.
  Status RenewIfDue(absl::Duration pause);

 private:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}
  StatusOr<bool> LoadStored(const std::optional<JoinToken>& token);
  Status Join(const JoinToken& token, absl::Duration limit);
  Status Renew(const Credentials& old);
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                           const Credentials& credentials) const;
  grpc::ClientContext* Until(grpc::ClientContext* context, Deadline deadline) const;
  // Checks and stores the coordinator's credentials; later channels use them.
  Status Keep(const Credentials& given);

  const AccessOptions options_;
  std::string token_;         // without TLS
  mutable std::mutex mutex_;  // guards the members below
  Credentials credentials_;
  std::optional<MemberCertificate> certificate_;
  size_t at_hand_ = 0;  // index of the current address
  uint64_t generation_ = 0;
  MonoTime renew_from_{};
};

// A stub of a service over its own channel, remade for each new certificate and each new current
// coordinator. Thread-safe.
template <class Service>
class StubOf {
 public:
  explicit StubOf(std::shared_ptr<Access> access) : access_(std::move(access)) {}
  // Valid while a caller holds it.
  std::shared_ptr<typename Service::Stub> Get() {
    const std::lock_guard lock(mutex_);
    if (stub_ == nullptr || dialled_.generation != access_->generation()) {
      dialled_ = access_->Dial();
      stub_ = Service::NewStub(dialled_.channel);
    }
    return stub_;
  }
  // Functions about the coordinator of the last Get: its address; whether the last attempt to
  // connect failed; and a report that it does not serve.
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
  // Makes the next Get dial again.
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
