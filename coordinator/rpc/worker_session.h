// One worker's stream: a hello of the worker, then messages in both directions.
//
// gRPC's threads call the methods On..., and the shell's loop calls Send, Close and Taken. The
// object keeps itself alive until gRPC is done with it (OnDone).
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/rate_limit.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/intake.h"
#include "coordinator/rpc/places.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/standby/leadership.h"
#include "longhaul/v1/worker.pb.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/caller.h"

namespace longhaul::coordinator {

class WorkerSession : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::WorkerCommand>,
                      public SessionSink {
 public:
  // While this many commands wait to be read by the worker, another one ends the session.
  static constexpr size_t kMaxOutgoing = 1024;
  // The session stops reading while this many messages wait for the loop.
  static constexpr size_t kMaxUntaken = 64;
  // The same two limits in bytes.
  static constexpr size_t kMaxOutgoingBytes = 64 << 20;
  static constexpr size_t kMaxUntakenBytes = 1 << 20;

  // Returns the reactor for gRPC. Tests use a shorter `hello_timeout`. `place`: the caller's.
  static WorkerSession* Start(Shell* shell, const Gate* gate, Leadership* leadership,
                              grpc::CallbackServerContext* context, const Caller& caller,
                              absl::Duration hello_timeout, Place place);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Send(v1::WorkerCommand command) override;
  void Close(const std::string& why, bool retry) override;
  void Taken(size_t messages) override;

 private:
  WorkerSession(Shell* shell, const Gate* gate, Leadership* leadership,
                grpc::CallbackServerContext* context, const Caller& caller, Place place)
      : shell_(shell),
        gate_(gate),
        leadership_(leadership),
        context_(context),
        caller_(caller),
        host_(PeerHost(*context)),
        place_(std::move(place)) {}
  Status TakeHello();
  void TakeMessage();
  Signature SignatureOfDigests() const;  // of incoming_
  // Reads on now, or once the loop has caught up and the worker's rate limit allows it.
  void ReadNextLocked();
  void WriteNextLocked();
  // Ends the stream: drops waiting commands and cancels a pending write. Later calls do nothing.
  void EndLocked(const Status& status);
  void End(const Status& status);

  Shell* const shell_;
  const Gate* const gate_;
  Leadership* const leadership_;
  grpc::CallbackServerContext* const context_;  // valid until OnDone
  const Caller caller_;
  const std::string host_;
  const Place place_;
  std::shared_ptr<WorkerSession> self_;
  v1::WorkerMessage incoming_;  // belongs to gRPC during a read

  std::mutex mutex_;  // guards the members below
  std::optional<SessionId> id_;
  std::deque<v1::WorkerCommand> outgoing_;  // if writing_, the front is being written
  size_t outgoing_bytes_ = 0;
  bool writing_ = false;
  bool reading_paused_ = false;  // until the loop has caught up, or the rate limit allows it
  std::deque<size_t> untaken_;   // sizes of the messages that the loop has not taken, oldest first
  size_t untaken_bytes_ = 0;
  RateLimit rate_{kReportsPerSecond, kReportBurst};
  RateLimit byte_rate_{kReportBytesPerSecond, kReportByteBurst};
  MonoTime read_from_{};  // earliest next read by the rate limit
  std::optional<Status> close_after_sending_;
  std::optional<Status> end_;
  bool finished_ = false;
};

}  // namespace longhaul::coordinator
