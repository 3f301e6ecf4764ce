#include "coordinator/rpc/sign_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/http/host_rules.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kSigningThreads = 4;
// A worker waits for the answer, and asks again.
constexpr absl::Duration kSigningLimit = absl::Seconds(20);
constexpr int kSigningAttempts = 4;

remote::Options OptionsForSigning(const remote::Settings& settings) {
  return {.hosts = remote::RulesFor(settings.endpoints),
          .patience = {.attempts = kSigningAttempts}};
}

Status ShuttingDown() {
  return absl::UnavailableError("the coordinator is shutting down; try again when it is back");
}

void Fill(const remote::SignedAddress& address, v1::SignObjectReply* reply) {
  reply->set_url(address.url);
  if (address.expires) {
    const int64_t left = absl::ToInt64Seconds(*address.expires - absl::Now());
    reply->set_valid_seconds(static_cast<uint32_t>(std::clamp<int64_t>(left, 1, UINT32_MAX)));
  }
  if (!address.version) return;
  reply->mutable_version()->set_bytes(address.version->bytes);
  reply->mutable_version()->set_tag(address.version->tag);
}

// One call. gRPC keeps its messages until Finish.
class SignReactor final : public grpc::ServerUnaryReactor {
 public:
  void OnDone() override { delete this; }
};

}  // namespace

ObjectSigner::ObjectSigner(const Shell* shell, BlobLists* lists, const remote::Settings& settings,
                           const SigningLimits& limits)
    : shell_(shell),
      named_(lists),
      settings_(settings),
      limits_(limits),
      store_(settings_, OptionsForSigning(settings_)),
      threads_(kSigningThreads) {}

bool ObjectSigner::Begin(const std::string& caller) {
  const std::lock_guard lock(mutex_);
  const auto own = calls_of_.find(caller);
  if (calls_ >= limits_.calls) return false;
  if (own != calls_of_.end() && own->second >= limits_.calls_of_worker) return false;
  ++calls_;
  ++calls_of_[caller];
  return true;
}

void ObjectSigner::End(const std::string& caller) {
  const std::lock_guard lock(mutex_);
  --calls_;
  if (--calls_of_[caller] == 0) calls_of_.erase(caller);
}

grpc::ServerUnaryReactor* ObjectSigner::Sign(const std::optional<WorkerId>& worker,
                                             const v1::SignObjectRequest& request,
                                             v1::SignObjectReply* reply) {
  auto* const call = new SignReactor();
  const std::string caller =
      worker ? worker->value() : fmt::format("{}", static_cast<const void*>(call));
  if (!Begin(caller)) {
    call->Finish(ToGrpc(Unavailable(
        "expected at most {} calls for signed addresses at a time, {} of one worker; try again "
        "later",
        limits_.calls, limits_.calls_of_worker)));
    return call;
  }
  // A worker's calls take turns, so that a worker with many does not keep the others waiting.
  threads_.Add(
      caller,
      [this, call, caller, worker, &request, reply] {
        const Status status = Answer(worker, request, reply);
        End(caller);
        call->Finish(ToGrpc(status));
      },
      [this, call, caller] {
        End(caller);
        call->Finish(ToGrpc(ShuttingDown()));
      });
  return call;
}

bool ObjectSigner::Stop(Deadline deadline) {
  stopping_ = true;
  return threads_.Stop(deadline);
}

bool ObjectSigner::HasCredentialsFor(remote::Kind kind) const {
  const remote::Credentials& credentials = settings_.credentials;
  switch (kind) {
    case remote::Kind::kHubModel:
    case remote::Kind::kHubDataset:
      return !credentials.hub_token.empty();
    case remote::Kind::kS3:
      return !credentials.s3.empty();
    case remote::Kind::kGoogle:
      return !credentials.google.empty();
    case remote::Kind::kWeb:
      break;
  }
  return false;
}

Status ObjectSigner::Answer(const std::optional<WorkerId>& worker,
                            const v1::SignObjectRequest& request,
                            v1::SignObjectReply* reply) const {
  LH_ASSIGN_OR_RETURN(const remote::Address object, remote::ParseAddress(request.address()));
  const bool writes = request.has_write();
  if (!writes && !request.has_read()) {
    return absl::InvalidArgumentError("expected a read or a write of the object");
  }
  // Files of a checkpoint move only while the worker is asked for them, which may be after the end
  // of the run.
  const bool is_of_checkpoint = shell_->Read([&](const Views& views) {
    return views.MovesObject(RunId(request.run_id()), remote::ToString(object), writes, worker);
  });
  if (!is_of_checkpoint) {
    LH_ASSIGN_OR_RETURN(const WorkersRun run, shell_->Read([&](const Views& views) {
      return views.RunOfWorker(worker, request.run_id());
    }));
    LH_RETURN_IF_ERROR(named_.Check(run, object, writes ? ObjectUse::kWrite : ObjectUse::kRead));
  }
  if (writes) {
    LH_ASSIGN_OR_RETURN(const remote::SignedAddress address,
                        store_.SignWrite(object, limits_.validity));
    Fill(address, reply);
    return absl::OkStatus();
  }
  if (!HasCredentialsFor(object.kind)) return absl::OkStatus();
  const StatusOr<remote::SignedAddress> address = store_.SignRead(
      object, limits_.validity, {.deadline = Deadline::After(kSigningLimit), .given_up = [this] {
                                   return stopping_.load();
                                 }});
  if (absl::IsCancelled(address.status())) return ShuttingDown();
  if (absl::IsDeadlineExceeded(address.status())) {
    return Unavailable("{}", Message(address.status()));
  }
  // A hub signs nothing for small files, which it sends itself. Public ones need no signature.
  if (absl::IsFailedPrecondition(address.status()) && object.IsOnHub()) return absl::OkStatus();
  LH_RETURN_IF_ERROR(address.status());
  Fill(*address, reply);
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
