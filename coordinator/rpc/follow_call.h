// Calls of StandbyService.Follow, on threads of their own.
//
// gRPC serves all other calls with two threads on a small machine, and each may be held up where it
// looks up a member or a run: who changes those holds a lock until the standby has the change, too.
// So the standby's word that it has it must come by another way.
#ifndef LONGHAUL_COORDINATOR_RPC_FOLLOW_CALL_H_
#define LONGHAUL_COORDINATOR_RPC_FOLLOW_CALL_H_

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

// What this service answers itself has a method of gRPC's callback API.
using StandbyServiceBase = v1::StandbyService::WithAsyncMethod_Follow<
    v1::StandbyService::WithCallbackMethod_FetchCopy<v1::StandbyService::WithCallbackMethod_Fence<
        v1::StandbyService::WithCallbackMethod_GetTerm<v1::StandbyService::Service>>>>;

class FollowPort;

// One call. It owns itself until it has ended. Its Start... methods and Finish are for any thread,
// each as gRPC has it: a read and a write at a time, nothing after Finish.
class FollowCall {
 public:
  // Called by the one thread of all calls' messages.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnReadDone(bool ok) = 0;
    virtual void OnWriteDone(bool ok) = 0;
    // After Finish, when nothing is under way. The call is gone when it returns.
    virtual void OnDone() = 0;
  };

  grpc::ServerContext& context() { return context_; }
  // Before anything else; `handler` lives until OnDone.
  void Begin(Handler* handler) { handler_ = handler; }
  // The message belongs to gRPC until On...Done.
  void StartRead(v1::FollowerMessage* message);
  void StartWrite(const v1::FollowedMessage& message);
  void Finish(const Status& status);
  // Without a handler: the end of a call that is refused.
  void FinishAfter(absl::Duration delay, const Status& status);

 private:
  friend class FollowPort;
  enum class Event : unsigned char { kCalled, kDelayed, kRead, kWritten, kFinished };
  struct Tag {
    FollowCall* call;
    Event event;
  };
  explicit FollowCall(FollowPort* port) : port_(port), stream_(&context_) {}
  // Counts an operation that gRPC gives back.
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
  // `accept` begins or ends each call. It runs on a thread of its own, and may wait.
  using Accept = std::function<void(FollowCall* call)>;

  // Before the server is built. `service` must be registered with it, and outlive this.
  FollowPort(StandbyServiceBase* service, grpc::ServerBuilder* builder, Accept accept);
  // Once the server has started. Before, Stop is not needed.
  void Start();
  // After the server's Shutdown has returned, which ends all calls; before it is destroyed.
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
  size_t open_ = 0;  // calls that have begun, and not ended
  bool closing_ = false;
  std::thread accepts_, moves_messages_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_FOLLOW_CALL_H_
