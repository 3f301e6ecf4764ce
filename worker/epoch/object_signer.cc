#include "worker/epoch/object_signer.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "proto/rpc/status.h"

namespace longhaul::worker {
namespace {

// A coordinator that does not answer for so long is asked again.
constexpr absl::Duration kAnswerLimit = absl::Seconds(30);
constexpr absl::Duration kCheck = absl::Milliseconds(100);

remote::SignedAddress AddressIn(v1::SignObjectReply reply) {
  remote::SignedAddress address{.url = std::move(*reply.mutable_url()), .expires = std::nullopt};
  if (reply.valid_seconds() > 0) {
    address.expires = absl::Now() + absl::Seconds(reply.valid_seconds());
  }
  if (reply.has_version()) {
    address.version = {.bytes = reply.version().bytes(), .tag = reply.version().tag()};
  }
  return address;
}

}  // namespace

StatusOr<v1::SignObjectReply> ObjectSigner::Ask(const v1::SignObjectRequest& request,
                                                const http::Call& call) {
  LH_RETURN_IF_ERROR(call.Check());
  const auto stub = stub_.Get();
  grpc::ClientContext context;
  stub_.access().Prepare(&context);
  context.set_deadline(
      std::chrono::system_clock::now() +
      absl::ToChronoNanoseconds(std::min(kAnswerLimit, call.deadline.Remaining())));
  v1::SignObjectReply reply;
  grpc::Status answer;
  absl::Notification answered;
  stub->async()->SignObject(&context, &request, &reply, [&](grpc::Status status) {
    answer = std::move(status);
    answered.Notify();
  });
  while (!answered.WaitForNotificationWithTimeout(kCheck)) {
    if (!call.Check().ok()) context.TryCancel();
  }
  LH_RETURN_IF_ERROR(call.Check());
  const std::string what = "asking the coordinator for an address of " + request.address();
  Status status = FromGrpc(answer, what);
  // Its own limit, which has passed; that of `call` has not.
  if (absl::IsDeadlineExceeded(status)) status = Unavailable("{}", Message(status));
  if (absl::IsUnavailable(status)) stub_.DoesNotServe();
  LH_RETURN_IF_ERROR(status);
  return reply;
}

StatusOr<std::optional<remote::SignedAddress>> ObjectSigner::Read(const RunId& run,
                                                                  const remote::Address& object,
                                                                  const http::Call& call) {
  v1::SignObjectRequest request;
  request.set_run_id(run.value());
  request.set_address(remote::ToString(object));
  request.mutable_read();
  StatusOr<v1::SignObjectReply> reply = Ask(request, call);
  // An older coordinator.
  if (absl::IsUnimplemented(reply.status())) return std::optional<remote::SignedAddress>();
  LH_RETURN_IF_ERROR(reply.status());
  if (reply->url().empty()) return std::optional<remote::SignedAddress>();
  return std::optional(AddressIn(*std::move(reply)));
}

StatusOr<remote::SignedAddress> ObjectSigner::Write(const RunId& run, const remote::Address& object,
                                                    uint64_t bytes, const http::Call& call) {
  v1::SignObjectRequest request;
  request.set_run_id(run.value());
  request.set_address(remote::ToString(object));
  request.mutable_write()->set_bytes(bytes);
  LH_ASSIGN_OR_RETURN(v1::SignObjectReply reply, Ask(request, call));
  return AddressIn(std::move(reply));
}

}  // namespace longhaul::worker
