#include "coordinator/rpc/gate.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/escaping.h"
#include "base/hash.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kHexDigits = 64;  // the longest way to write a hash

// Whether a list names a blob: in hexadecimal digits or in bytes. A stranger cannot make it so,
// since the list's own hash is named by a run.
bool Lists(const BlobStore& blobs, const std::string& list, const std::string& sha256) {
  const StatusOr<BlobReader> reader = blobs.OpenBlob(list);
  if (!reader.ok()) return false;
  const std::string bytes = absl::HexStringToBytes(sha256);
  bool found = false;
  const Status looked = reader->LookThrough(kHexDigits, [&](std::string_view piece) {
    found =
        piece.find(sha256) != std::string_view::npos || piece.find(bytes) != std::string_view::npos;
    return !found;
  });
  return looked.ok() && found;
}

}  // namespace

StatusOr<Caller> Gate::Admit(const grpc::CallbackServerContext& context, Call call) {
  LH_ASSIGN_OR_RETURN(Caller caller, port_->Identify(context));
  LH_RETURN_IF_ERROR(StillMember(caller));
  port_->LetIn(context, caller);
  LH_RETURN_IF_ERROR(CheckRole(caller, call));
  return caller;
}

Status Gate::StillMember(const Caller& caller) const {
  return caller.member ? members_->Check(*caller.member, caller.key_sha256) : absl::OkStatus();
}

StatusOr<std::string> Gate::OwnRun(const Caller& caller, const std::string& run) const {
  if (MayAll(caller)) return run;
  LH_ASSIGN_OR_RETURN(const v1::RunStatus status, shell_->Run(run));
  LH_RETURN_IF_ERROR(CheckOwner(caller, status));
  return status.run_id();
}

Status Gate::MayFetch(const Caller& caller, const std::string& sha256) const {
  if (MayAll(caller)) return absl::OkStatus();
  const bool worker = caller.member->role == Role::kWorker;
  if (IsSha256Hex(sha256)) {
    const Naming naming = worker
                              ? shell_->NamedForWorker(WorkerId(caller.member->worker_id), sha256)
                              : shell_->NamedForOwner(caller.member->name, sha256);
    const bool listed = std::ranges::any_of(
        naming.lists, [&](const std::string& list) { return Lists(*blobs_, list, sha256); });
    if (naming.named || listed) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      worker ? fmt::format("no run in which the worker {} has a cell names this blob",
                           caller.member->name)
             : fmt::format("no run of {} names this blob", caller.member->name));
}

}  // namespace longhaul::coordinator
