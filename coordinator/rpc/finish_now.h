// A gRPC reactor that ends a call at once, with success or an error.
#pragma once

#include "base/status.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

template <class Reactor>
class FinishNowReactor : public Reactor {
 public:
  explicit FinishNowReactor(const Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

// Returns a reactor that ends its call with `status` at once. `Reactor`: one of gRPC's reactor
// types. The object deletes itself when gRPC is done with it.
template <class Reactor>
Reactor* FinishNow(const Status& status) {
  return new FinishNowReactor<Reactor>(status);
}

}  // namespace longhaul::coordinator
