// A call whose question is made on a thread of the shell, because making it reads files, and that
// the state machine then answers.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "coordinator/rpc/places.h"
#include "coordinator/rpc/shell.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

// Keeps itself alive until gRPC is done with it and its work has ended. Ends at once when the
// caller goes away, except while the question is being made.
template <class Reply>
class LaterCall : public grpc::ServerUnaryReactor {
 public:
  using Done = std::function<void(StatusOr<Reply>)>;
  // Asks the shell, and returns the number of the question; an error ends the call. Runs once, on
  // one of shell->submit_threads().
  using Ask = std::function<StatusOr<RequestId>(Done done)>;

  // Calls with the same `key` are asked one after the other. `reply` belongs to the call.
  static LaterCall* Start(Shell* shell, Place place, const std::string& key, Reply* reply,
                          Ask ask) {
    // Not make_shared: the constructor is private.
    std::shared_ptr<LaterCall> call(new LaterCall(shell, std::move(place), reply, std::move(ask)));
    LaterCall* const raw = call.get();
    raw->self_ = call;
    shell->submit_threads().Add(
        key, [call] { call->Run(call); },
        [call] {
          call->End(absl::UnavailableError(
              "the coordinator is shutting down; try again when it is back"));
        });
    return raw;
  }

  void OnCancel() override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      if (!asked_) return;  // Run ends the call
    }
    if (shell_->Drop(id_)) End(absl::CancelledError("the caller is gone"));
  }
  void OnDone() override { self_.reset(); }

 private:
  LaterCall(Shell* shell, Place place, Reply* reply, Ask ask)
      : shell_(shell), place_(std::move(place)), reply_(reply), ask_(std::move(ask)) {}

  void Run(const std::shared_ptr<LaterCall>& self) {
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) return End(absl::CancelledError("the caller is gone"));
    }
    const StatusOr<RequestId> id = ask_([self](StatusOr<Reply> answer) {
      if (answer.ok()) *self->reply_ = std::move(*answer);
      self->End(answer.status());
    });
    if (!id.ok()) return End(id.status());
    {
      const std::lock_guard lock(mutex_);
      id_ = *id;
      asked_ = true;
      if (!cancelled_) return;
    }
    if (shell_->Drop(id_)) End(absl::CancelledError("the caller is gone"));
  }

  void End(const Status& status) { Finish(ToGrpc(status)); }

  Shell* const shell_;
  const Place place_;
  Reply* const reply_;
  const Ask ask_;
  std::shared_ptr<LaterCall> self_;

  std::mutex mutex_;  // guards the members below
  RequestId id_{};    // set once, before asked_
  bool asked_ = false;
  bool cancelled_ = false;
};

}  // namespace longhaul::coordinator
