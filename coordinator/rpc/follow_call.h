// Serves calls of StandbyService.Follow, by which a standby follows this coordinator, on threads of
// their own.
//
// All other calls share gRPC's threads, of which a small machine has two. Any of these threads may
// block while it looks up a member or a run: a thread that changes members or runs holds a lock
// until the standby has confirmed the change. So the confirmation must arrive on another thread.
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

// Follow uses gRPC's async API; the other calls of the service use the callback API.
using StandbyServiceBase =
    v1::StandbyService::WithAsyncMethod_Follow<v1::StandbyService::WithCallbackMethod_FetchCopy<
        v1::StandbyService::WithCallbackMethod_GiveCopy<
            v1::StandbyService::WithCallbackMethod_GetTerm<v1::StandbyService::Service>>>>;

class FollowPort;

// One call of Follow. The object deletes itself when the call has ended. StartRead, StartWrite and
// Finish may be called on any thread, by gRPC's rules: at most one read and one write at a time,
// and none after Finish.
class FollowCall {
 public:
  // One thread calls the handlers of all calls, so a handler must not wait for another call. `ok`
  // is false if the stream has ended.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnReadDone(bool ok) = 0;
    virtual void OnWriteDone(bool ok) = 0;
    // Called after Finish, when no operation is pending. The call is destroyed when this returns.
    virtual void OnDone() = 0;
  };

  grpc::ServerContext& context() { return context_; }
  // Must be the first function called. `handler` must live until OnDone.
  void Begin(Handler* handler) { handler_ = handler; }
  // StartRead reads into `message`, and StartWrite sends `message`. The message belongs to gRPC
  // until OnReadDone or OnWriteDone.
  void StartRead(v1::FollowerMessage* message);
  void StartWrite(const v1::FollowedMessage& message);
  // Ends the call with `status`.
  void Finish(const Status& status);
  // Refuses the call: ends it with `status` after `delay`, or at once while many calls are open.
  // The call must have no handler.
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

// Takes calls of Follow for a server.
class FollowPort {
 public:
  // Begins a new call (FollowCall::Begin) or refuses it (Finish, FinishAfter). One thread, used for
  // nothing else, makes all calls of Accept. So Accept may block.
  using Accept = std::function<void(FollowCall* call)>;

  // Construct it before the server is built. `service` must be registered with `builder`, and must
  // outlive this object.
  FollowPort(StandbyServiceBase* service, grpc::ServerBuilder* builder, Accept accept);
  // Call Start once the server has started. Without Start, Stop does nothing.
  void Start();
  // Waits until all calls have ended. Call Stop after the server's Shutdown has returned, because
  // Shutdown ends the calls, and before the server is destroyed.
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
