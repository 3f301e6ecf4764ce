// Serves a call if its caller is admitted, and else refuses it.
//
//   return Serve<grpc::ServerUnaryReactor>(gate_, *context, Call::kInfo, [&](const Caller&) {
//     reply->set_version(version_);
//     return absl::OkStatus();
//   });
#pragma once

#include <time.h>

#include <type_traits>

#include "base/status.h"
#include "coordinator/rpc/finish_now.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/refuse_caller.h"

namespace longhaul::coordinator {

// Returns the reactor of the call. `body` gets the caller. It returns a Status, which ends the call
// at once, or a StatusOr<Reactor*>: the reactor that goes on with the call, or the error that ends
// the call.
template <class Reactor, class Body>
Reactor* Serve(Gate* gate, grpc::ServerContextBase& context, Call call, const Body& body) {
  const StatusOr<Caller> caller = gate->Admit(context, call);
  if (!caller.ok()) return RefuseCaller<Reactor>(context, caller.status());
  const auto end = [&](const Status& status) {
    if (absl::IsPermissionDenied(status)) {
      gate->NoteRefusal(context, &*caller, RightOf(call).name, "", status);
    }
    return FinishNow<Reactor>(status);
  };
  // Not the time that passes, in which the answer may wait for others.
  const auto processor_time = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  };
  const absl::Duration before = processor_time();
  auto result = body(*caller);
  gate->Took(*caller, call, processor_time() - before);
  if constexpr (std::is_same_v<decltype(result), Status>) {
    return end(result);
  } else {
    return result.ok() ? *result : end(result.status());
  }
}

}  // namespace longhaul::coordinator
