// Asks the coordinator for signed addresses of objects (base/remote/store.h), so that this worker
// needs no credentials for them. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/http/client.h"
#include "base/ids.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/member/access.h"

namespace longhaul::worker {

class ObjectSigner {
 public:
  explicit ObjectSigner(std::shared_ptr<Access> access) : stub_(std::move(access)) {}

  // Each blocks until the coordinator answers, the deadline of `call`, or its `given_up`. `run`: a
  // run in which this worker has a part, and which names the object. Tries once. kUnavailable: the
  // coordinator does not serve now. kPermissionDenied: it refuses. Other errors: those of
  // Store::SignRead and Store::SignWrite at the coordinator.

  // nullopt: the coordinator has no credentials for the object's service.
  StatusOr<std::optional<remote::SignedAddress>> Read(const RunId& run,
                                                      const remote::Address& object,
                                                      const http::Call& call);
  // `bytes`: the size of what will be written, by one PUT.
  StatusOr<remote::SignedAddress> Write(const RunId& run, const remote::Address& object,
                                        uint64_t bytes, const http::Call& call);

 private:
  StatusOr<v1::SignObjectReply> Ask(const v1::SignObjectRequest& request, const http::Call& call);

  StubOf<v1::WorkerService> stub_;
};

}  // namespace longhaul::worker
