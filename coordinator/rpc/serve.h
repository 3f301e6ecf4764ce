// Serves a call if its caller is admitted, and else refuses it.
//
//   return Serve<grpc::ServerUnaryReactor>(gate_, *context, Call::kInfo, [&](const Caller&) {
//     reply->set_version(version_);
//     return absl::OkStatus();
//   });
#pragma once

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
Reactor* Serve(Gate* gate, const grpc::ServerContextBase& context, Call call, const Body& body) {
  const StatusOr<Caller> caller = gate->Admit(context, call);
  if (!caller.ok()) return RefuseCaller<Reactor>(context, caller.status());
  auto result = body(*caller);
  if constexpr (std::is_same_v<decltype(result), Status>) {
    return FinishNow<Reactor>(result);
  } else {
    return result.ok() ? *result : FinishNow<Reactor>(result.status());
  }
}

}  // namespace longhaul::coordinator
