// Refuses a call that has no valid credentials: logs it, at most one line a second for each
// address, and answers late, so that attackers cannot try tokens at the network's speed.
#pragma once

#include <fmt/core.h>
#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>

#include "base/peer_log.h"
#include "base/status.h"
#include "coordinator/rpc/finish_now.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

inline constexpr std::chrono::milliseconds kRefusalDelay{500};
// Maximum number of delayed refusals; further ones are answered at once.
inline constexpr size_t kMaxWaitingRefusals = 1024;
inline std::atomic<size_t> waiting_refusals{0};  // delayed refusals of the whole process

// Owns itself until gRPC is done with it.
template <class Reactor>
class LateRefusal : public Reactor {
 public:
  explicit LateRefusal(Status status) : status_(std::move(status)) {
    alarm_.Set(std::chrono::system_clock::now() + kRefusalDelay,
               [this](bool /*due*/) { this->Finish(ToGrpc(status_)); });
  }
  // The caller is gone, or the server shuts down.
  void OnCancel() override { alarm_.Cancel(); }
  void OnDone() override {
    --waiting_refusals;
    delete this;
  }

 private:
  const Status status_;
  grpc::Alarm alarm_;
};

inline void LogRefusal(const grpc::ServerContextBase& context, const Status& status) {
  LogAboutPeer(LogLevel::kWarn, PeerHost(context),
               fmt::format("a call from {} was refused: {}", context.peer(), Message(status)));
}

// Logs the refusal, and returns a reactor that ends the call with `status`. `Reactor`: one of
// gRPC's reactor types. The object deletes itself when gRPC is done with it.
template <class Reactor>
Reactor* RefuseCaller(const grpc::ServerContextBase& context, const Status& status) {
  LogRefusal(context, status);
  if (++waiting_refusals <= kMaxWaitingRefusals) return new LateRefusal<Reactor>(status);
  --waiting_refusals;
  return FinishNow<Reactor>(status);
}

}  // namespace longhaul::coordinator
