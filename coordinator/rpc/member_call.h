// A call that changes the list of members. The change waits for the disk and for the other
// coordinator, so it is made on a thread of the service, and the caller hears in time if that takes
// long.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "base/work_threads.h"
#include "coordinator/rpc/refuse_caller.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

// How long a caller waits for a change to be stored.
inline constexpr std::chrono::milliseconds kMemberCallLimit{4000};

// Keeps itself alive until gRPC is done with it and its work has ended. The work goes on if the
// caller goes away, or does not wait so long.
template <class Reply>
class MemberCall : public grpc::ServerUnaryReactor {
 public:
  // Runs once, on one of `threads`, and must not use anything that belongs to the call.
  using Work = std::function<StatusOr<Reply>()>;

  // Calls with the same `key` are worked on one after the other. `reply` belongs to the call.
  // `refuses_late`: errors of the work are told late (refuse_caller.h), so that nobody tries
  // secrets as fast as the network carries them. `limit`: how long the caller waits.
  static MemberCall* Start(WorkThreads* threads, const std::string& key, Reply* reply, Work work,
                           bool refuses_late, std::chrono::milliseconds limit) {
    // Not make_shared: the constructor is private.
    std::shared_ptr<MemberCall> call(new MemberCall(reply, refuses_late));
    MemberCall* const raw = call.get();
    raw->self_ = call;
    // The alarm keeps its function, so the function gives the call up once it has run.
    const auto late = std::make_shared<std::shared_ptr<MemberCall>>(call);
    raw->alarm_.Set(std::chrono::system_clock::now() + limit, [late, limit](bool due) {
      const std::shared_ptr<MemberCall> waiting = std::exchange(*late, nullptr);
      if (due) waiting->End(TakesLong(limit));
    });
    threads->Add(
        key, [call, work = std::move(work)] { call->End(work()); },
        [call] {
          call->End(absl::UnavailableError(
              "the coordinator is shutting down; try again when it is back"));
        });
    return raw;
  }

  void OnDone() override {
    alarm_.Cancel();
    self_.reset();  // last: this may be the end of `this`
  }

 private:
  MemberCall(Reply* reply, bool refuses_late) : reply_(reply), refuses_late_(refuses_late) {}

  static Status TakesLong(std::chrono::milliseconds limit) {
    return Unavailable(
        "this takes longer than {}: the disk or the other coordinator does not answer; whether it "
        "is stored is not known yet; look at the members, and try again",
        absl::FormatDuration(absl::FromChrono(limit)));
  }

  void End(StatusOr<Reply> result) {
    const Status status = result.status();
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(ended_, true)) return;
      if (result.ok()) *reply_ = *std::move(result);
    }
    if (status.ok() || !refuses_late_) return Finish(ToGrpc(status));
    if (++waiting_refusals > kMaxWaitingRefusals) {
      --waiting_refusals;
      return Finish(ToGrpc(status));
    }
    // This object lives until Finish was called.
    refusal_.Set(std::chrono::system_clock::now() + kRefusalDelay, [this, status](bool /*due*/) {
      --waiting_refusals;
      Finish(ToGrpc(status));
    });
  }

  Reply* const reply_;
  const bool refuses_late_;
  std::shared_ptr<MemberCall> self_;
  grpc::Alarm alarm_, refusal_;
  std::mutex mutex_;  // guards ended_, and reply_ until then
  bool ended_ = false;
};

}  // namespace longhaul::coordinator
