// Serves calls of StandbyService.Follow on threads of their own.
//
// gRPC serves all other calls with two threads on a small machine. Each of these may block while it
// looks up a member or a run, because a change to those holds a lock until the standby has
// confirmed the change. So the standby's confirmation must arrive on another thread.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "base/status.h"
#include "longhaul/v1/standby.grpc.pb.h"

namespace longhaul::coordinator {

// This service's own calls use gRPC's callback API; Follow uses the async API.
using StandbyServiceBase = v1::StandbyService::WithAsyncMethod_Follow<
    v1::StandbyService::WithCallbackMethod_FetchCopy<v1::StandbyService::WithCallbackMethod_Fence<
        v1::StandbyService::WithCallbackMethod_GetTerm<v1::StandbyService::Service>>>>;

class FollowPort;

// One call, which owns itself until it has ended. Start... and Finish may be called on any thread,
// by gRPC's rules: one read and one write at a time, no call after Finish.
class FollowCall {
 public:
  // Called on the one thread that serves messages of all calls.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnReadDone(bool ok) = 0;
    virtual void OnWriteDone(bool ok) = 0;
    // Called after Finish, when no operation is pending. The call is destroyed when this returns.
    virtual void OnDone() = 0;
  };

  grpc::ServerContext& context() { return context_; }
  // Call it first; `handler` lives until OnDone.
  void Begin(Handler* handler) { handler_ = handler; }
  // The message belongs to gRPC until On...Done.
  void StartRead(v1::FollowerMessage* message);
  void StartWrite(const v1::FollowedMessage& message);
  void Finish(const Status& status);
  // Refuses a call, without a handler, after a delay.
  void FinishAfter(absl::Duration delay, const Status& status);

 private:
  friend class FollowPort;
  enum class Event : unsigned char { kCalled, kDelayed, kRead, kWritten, kFinished };
  struct Tag {
    FollowCall* call;
    Event event;
  };
  explicit FollowCall(FollowPort* port) : port_(port), stream_(&context_) {}
  // Counts an operation that gRPC will complete.
  void* Under(Tag* tag);
  void Happened(Event event, bool ok);

  FollowPort* const port_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<v1::FollowedMessage, v1::FollowerMessage> stream_;
  grpc::Alarm alarm_;
  Status late_;
  Handler* handler_ = nullptr;
  std::atomic<size_t> under_way_{0};
  bool finished_ = false;
  Tag called_{this, Event::kCalled}, delayed_{this, Event::kDelayed}, read_{this, Event::kRead},
      written_{this, Event::kWritten}, finish_{this, Event::kFinished};
};

class FollowPort {
 public:
  // Begins or refuses each call. Runs on a thread of its own, and may block.
  using Accept = std::function<void(FollowCall* call)>;

  // Call it before the server is built. `service` must be registered with it, and outlive this.
  FollowPort(StandbyServiceBase* service, grpc::ServerBuilder* builder, Accept accept);
  // Call it once the server has started. Before that, Stop is not needed.
  void Start();
  // Call it after the server's Shutdown has returned, which ends all calls, and before the server
  // is destroyed.
  void Stop();
  ~FollowPort() { Stop(); }

 private:
  friend class FollowCall;
  void RequestLocked();
  void AcceptLoop();
  void MessageLoop();
  size_t open();
  void Ended();

  StandbyServiceBase* const service_;
  const Accept accept_;
  const std::unique_ptr<grpc::ServerCompletionQueue> calls_, messages_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t open_ = 0;  // calls that have begun and not ended
  bool closing_ = false;
  std::thread accepts_, moves_messages_;
};

}  // namespace longhaul::coordinator
