#include "coordinator/rpc/gate.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/hash.h"

namespace longhaul::coordinator {
StatusOr<Caller> Gate::Admit(const grpc::ServerContextBase& context, Call call) {
  LH_ASSIGN_OR_RETURN(Caller caller, port_->Identify(context));
  LH_RETURN_IF_ERROR(StillMember(caller));
  port_->LetIn(context, caller);
  LH_RETURN_IF_ERROR(CheckRole(caller, call));
  return caller;
}

Status Gate::StillMember(const Caller& caller) const {
  return caller.member ? members_->Check(*caller.member, caller.key_sha256) : absl::OkStatus();
}

StatusOr<v1::RunStatus> Gate::StatusOfOwnRun(const Caller& caller, const std::string& run) const {
  LH_ASSIGN_OR_RETURN(v1::RunStatus status,
                      shell_->Read([&](const Views& views) { return views.RunOf(run); }));
  LH_RETURN_IF_ERROR(CheckOwner(caller, status));
  return status;
}

StatusOr<std::string> Gate::OwnRun(const Caller& caller, const std::string& run) const {
  if (MayAll(caller)) return run;
  LH_ASSIGN_OR_RETURN(const v1::RunStatus status, StatusOfOwnRun(caller, run));
  return status.run_id();
}

StatusOr<MayBe> Gate::MayFetch(const Caller& caller, const std::string& sha256) const {
  if (MayAll(caller)) return MayBe{.blob = true, .copy = true};
  const bool worker = caller.member->role == Role::kWorker;
  if (IsSha256Hex(sha256)) {
    const Naming naming = shell_->Read([&](const Views& views) {
      return worker ? views.NamedForWorker(WorkerId(caller.member->worker_id), sha256)
                    : views.NamedForOwner(caller.member->name, sha256);
    });
    const bool listed = std::ranges::any_of(naming.lists, [&](const std::string& list) {
      const auto names = lists_->NamedBy(list);
      return names.ok() && (*names)->contains(sha256);
    });
    const MayBe may{.blob = naming.named || listed, .copy = naming.copied};
    if (may.blob || may.copy) return may;
    if (!naming.connected) {
      return Unavailable(
          "the worker {} has not said hello to this coordinator; try again after that",
          caller.member->name);
    }
  }
  return absl::PermissionDeniedError(
      worker ? fmt::format("no run in which the worker {} has a cell names this blob",
                           caller.member->name)
             : fmt::format("no run of {} names this blob", caller.member->name));
}

}  // namespace longhaul::coordinator
