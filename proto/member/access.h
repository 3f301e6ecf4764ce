// How a worker, the CLI or a cluster reaches its coordinator: as a member over TLS, or with
// --insecure without encryption.
//
// A coordinator may have a standby, and then there are several addresses. At any time one address
// is current: at first, the first one. When a caller reports that the coordinator at the current
// address does not serve, the next address becomes current for all users of this Access.
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
#include <string_view>
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
  // File with a join token (proto/identity/join_token.h), or with `insecure` with the coordinator's
  // shared secret (base/token.h). Empty: no token.
  std::string token_file = {};
  // File of key and certificate (proto/identity/credentials.h); not used with `insecure`. If the
  // file is missing, joining writes it. Only one process at a time joins. The new key stays in
  // <file>.joining until its certificate arrives, so a failed attempt is harmless.
  std::string credentials_file = {};
  bool insecure = false;  // without TLS
  // The role to join as. nullopt: the role of the token.
  std::optional<Role> role = {};
  // The requested name. The coordinator changes it if it is not free or not valid.
  std::string name = {};
  std::string worker_id = {};  // to join as a worker: its WorkerId; else empty
};

class Access {
 public:
  // Uses the stored credentials. Joins by the token if there are no credentials, or if they have
  // expired or are of another authority, role or worker id than the token and `options`. Joining
  // blocks for at most `limit` per coordinator. kUnavailable: no coordinator answers, try again.
  // kUnauthenticated: a coordinator refuses, or its authority is not the token's.
  // kFailedPrecondition: a file is missing or wrong, or the credentials have expired and there is
  // no token. kInvalidArgument: an option is wrong.
  static StatusOr<std::shared_ptr<Access>> Open(const AccessOptions& options, absl::Duration limit);
  // Return an Access without encryption. If `token` is empty, calls carry no token.
  static std::shared_ptr<Access> Plain(std::string address, std::string token);
  static std::shared_ptr<Access> PlainOfSeveral(std::vector<std::string> addresses,
                                                std::string token);

  std::string address() const;  // of the current coordinator
  bool alone() const { return options_.addresses.size() == 1; }
  size_t count() const { return options_.addresses.size(); }  // number of coordinators
  bool insecure() const { return options_.insecure; }
  // Signs digests with the member's key (proto/identity/signature.h). kFailedPrecondition: there is
  // no key, because this Access is without encryption.
  StatusOr<std::string> SignDigests(std::string_view body) const;
  // Prepares the context of a call, before the call starts. Without TLS it adds the token. If
  // `wait` is true and there is a single coordinator, the call waits while the coordinator is down.
  // Else the call fails with UNAVAILABLE if the connection cannot be made.
  void Prepare(grpc::ClientContext* context, bool wait = true) const;
  // A number that grows with every new certificate and every change of the current coordinator.
  // When the number has grown, dial again.
  uint64_t generation() const;

  // A channel with its own connection, to the coordinator that was current when Dial was called.
  // Dial does not block. With several coordinators, an attempt to connect takes at most 2 s.
  struct Connection {
    std::string address;
    uint64_t generation = 0;
    std::shared_ptr<grpc::Channel> channel;
  };
  Connection Dial() const;

  // Reports that the coordinator that was current at `generation` does not serve: it is down, or is
  // a standby. The next address becomes current, unless generation() has grown since. Does nothing
  // with a single coordinator.
  void GoOnFrom(uint64_t generation);
  // Calls `ask` with the address of the current coordinator, on the caller's thread. If the result
  // is kUnavailable, asks the next coordinator, at most once around. Returns any other result at
  // once. If no coordinator serves, returns kUnavailable with the messages of all results.
  Status AskEach(const std::function<Status(const std::string& address)>& ask);

  // Reads from a call's initial metadata, which must have arrived, which authority signs
  // certificates now. If this side does not trust it yet, the next RenewIfDue renews, and learns
  // it.
  void NoteAuthority(const grpc::ClientContext& context);

  // Renews and stores the certificate if two thirds of its lifetime are over, or if NoteAuthority
  // found a new authority. Joins again if the certificate has ended and there is a token file.
  // Else, and without TLS, returns OK. Blocks for at most 5 s per coordinator. After an attempt
  // that failed, returns OK without another attempt until `pause` is over. Errors: kUnavailable if
  // no coordinator answers, else those of the coordinator or of files; the old certificate stays in
  // use.
  Status RenewIfDue(absl::Duration pause);

 private:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}
  StatusOr<bool> LoadStored(const std::optional<JoinToken>& token);
  Status Join(const JoinToken& token, absl::Duration limit);
  Status Renew(const Credentials& old);
  Status JoinAgain();
  Status DropOldAuthority();
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                           const Credentials& credentials) const;
  grpc::ClientContext* Until(grpc::ClientContext* context, Deadline deadline) const;
  // Checks and stores the credentials that a coordinator gave. Later channels use them.
  Status Keep(const Credentials& given);

  const AccessOptions options_;
  std::string token_;         // for calls without TLS
  mutable std::mutex mutex_;  // guards the members below
  Credentials credentials_;
  std::optional<MemberCertificate> certificate_;
  size_t at_hand_ = 0;  // index of the current address
  uint64_t generation_ = 0;
  MonoTime renew_from_{};
  bool new_authority_ = false;  // a coordinator signs with one that is not trusted here yet
};

// A gRPC stub of a service over its own channel. Get makes a new stub for each new certificate and
// each new current coordinator. Thread-safe.
template <class Service>
class StubOf {
 public:
  explicit StubOf(std::shared_ptr<Access> access) : access_(std::move(access)) {}
  // Returns the stub, never null. Dials first if there is no stub for the current generation. The
  // stub is valid while the caller holds it.
  std::shared_ptr<typename Service::Stub> Get() {
    const std::lock_guard lock(mutex_);
    if (stub_ == nullptr || dialled_.generation != access_->generation()) {
      dialled_ = access_->Dial();
      stub_ = Service::NewStub(dialled_.channel);
    }
    return stub_;
  }
  // Call address, unreachable and DoesNotServe only after Get. address returns the address of the
  // coordinator that the last Get used.
  std::string address() const {
    const std::lock_guard lock(mutex_);
    return dialled_.address;
  }
  // True if the last attempt to connect to the coordinator of the last Get failed.
  bool unreachable() const {
    const std::lock_guard lock(mutex_);
    return dialled_.channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  }
  // Reports that the coordinator of the last Get does not serve (Access::GoOnFrom).
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
