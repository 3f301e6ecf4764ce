#include "worker/epoch/stored_objects.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/http/retries.h"
#include "base/remote/address.h"

namespace longhaul::worker {
namespace {

// Bytes of an object that are in memory at a time; they are read side by side.
constexpr uint64_t kWindowBytes = 64 << 20;
// Addresses that are asked for to write one object. An address may expire before a slow line is
// done with it.
constexpr int kAddresses = 4;

Status WithAdvice(const Status& status) {
  if (status.ok()) return status;
  return Status(status.code(),
                std::string(Message(status)) + std::string(AdviceOnAddresses(status)));
}

}  // namespace

Status StoredObjects::Write(const std::string& run, const std::string& address,
                            std::span<const std::byte> bytes, Deadline deadline,
                            const GivenUp& given_up) {
  const RunId id(run);
  const http::Call call{.deadline = deadline, .given_up = given_up};
  LH_ASSIGN_OR_RETURN(const remote::Address object, remote::ParseAddress(address));
  const std::shared_ptr<const remote::Store> store = objects_->OpenFor(id);
  const std::shared_ptr<ObjectSigner>& signer = objects_->signer();
  if (signer == nullptr) return store->Write(object, bytes, call).status();
  const http::Patience patience;
  http::Retries retries(patience, call);
  for (int addresses = 1;; ++addresses) {
    const StatusOr<remote::SignedAddress> place = signer->Write(id, object, bytes.size(), call);
    if (!place.ok()) {
      LH_RETURN_IF_ERROR(retries.Wait(place.status()));
      continue;
    }
    LH_ASSIGN_OR_RETURN(const remote::Address signed_object, remote::ParseAddress(place->url));
    const Status status = store->Write(signed_object, bytes, call).status();
    if (status.ok() || addresses == kAddresses) return status;
    const bool may_have_expired = absl::IsPermissionDenied(status) || absl::IsUnavailable(status);
    if (!may_have_expired) return status;
    LH_RETURN_IF_ERROR(call.Check());
  }
}

Status StoredObjects::Read(const std::string& run, const std::string& address, uint64_t bytes,
                           const std::function<Status(std::span<const std::byte>)>& take,
                           Deadline deadline, const GivenUp& given_up) {
  const http::Call call{.deadline = deadline, .given_up = given_up};
  LH_ASSIGN_OR_RETURN(const remote::Address object, remote::ParseAddress(address));
  const std::shared_ptr<const remote::Store> store = objects_->OpenFor(RunId(run));
  const StatusOr<remote::Version> version = store->Look(object, call);
  if (!version.ok()) return WithAdvice(version.status());
  if (version->bytes != bytes) {
    return DataLoss("{}: expected {} bytes, it has {}", address, bytes, version->bytes);
  }
  std::vector<std::byte> window(std::min(bytes, kWindowBytes));
  for (uint64_t at = 0; at < bytes; at += window.size()) {
    const auto part = std::span(window).first(std::min<uint64_t>(window.size(), bytes - at));
    const Status status = store->ReadInto(object, *version, at, part, call);
    // Somebody writes there: bytes of two versions are no file.
    if (absl::IsAborted(status)) return DataLoss("{}", Message(status));
    LH_RETURN_IF_ERROR(WithAdvice(status));
    LH_RETURN_IF_ERROR(take(part));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
