#include "coordinator/rpc/gate.h"

#include <fmt/core.h>

#include "base/hash.h"
#include "proto/rpc/auth.h"

namespace longhaul::coordinator {

namespace {

v1::AuditEntry EntryOf(const Caller* caller, const std::string& address, std::string_view action,
                       std::string_view object, const Status& outcome) {
  v1::AuditEntry entry;
  if (caller != nullptr && caller->member) {
    entry.set_member(caller->member->name);
    entry.set_role(std::string(ToString(caller->member->role)));
  }
  entry.set_address(address);
  entry.set_action(std::string(action));
  entry.set_object(std::string(object));
  entry.set_outcome(outcome.ok() ? "ok" : std::string(Message(outcome)));
  return entry;
}

// Whether the answer's time counts: of calls that only look at what the coordinator knows, and that
// any member may make as often as it likes.
bool IsCounted(const Caller& caller, Call call) {
  if (MayAll(caller)) return false;
  switch (call) {
    case Call::kInfo:
    case Call::kListRuns:
    case Call::kGetRun:
    case Call::kListEvents:
    case Call::kListLogs:
    case Call::kListWorkers:
    case Call::kListCheckpoints:
    case Call::kListSteps:
    case Call::kTraceRun:
    case Call::kDashboardKey:
    case Call::kReportMetrics:
      return true;
    default:
      return false;
  }
}

}  // namespace

StatusOr<Caller> Gate::Admit(grpc::ServerContextBase& context, Call call) {
  const std::string_view name = RightOf(call).name;
  StatusOr<Caller> caller = port_->Identify(context);
  if (!caller.ok()) {
    NoteRefusal(context, nullptr, name, "", caller.status());
    return caller;
  }
  if (!signer_.empty()) context.AddInitialMetadata(kSignerKey, signer_);
  // A stranger with a revoked certificate stays one.
  Status status = StillMember(*caller);
  const bool limited =
      !MayAll(*caller) && shell_ != nullptr;  // tests of the gate alone have no shell
  const size_t connections = limited ? shell_->limits().connections : 0;
  if (status.ok()) status = port_->MayConnect(context, *caller, connections);
  if (status.ok()) {
    if (before_let_in_) before_let_in_();
    port_->LetIn(context, *caller);
    // Again, now that a revocation cuts this connection. One that came before may have missed it.
    status = StillMember(*caller);
    if (!status.ok()) port_->Cut(caller->member->name);
  }
  if (status.ok()) status = CheckRole(*caller, call);
  if (status.ok() && IsCounted(*caller, call)) {
    status = questions_.MayAsk(caller->member->name, Now());
  }
  if (status.ok()) return caller;
  NoteRefusal(context, &*caller, name, "", status);
  return status;
}

void Gate::Took(const Caller& caller, Call call, absl::Duration time) {
  if (IsCounted(caller, call)) questions_.Took(caller.member->name, time, Now());
}

Status Gate::StillMember(const Caller& caller) const {
  return caller.member ? members_->Check(*caller.member, caller.key_sha256) : absl::OkStatus();
}

StatusOr<v1::RunStatus> Gate::StatusOfOwnRun(const Caller& caller,
                                             const grpc::ServerContextBase& context, Call call,
                                             const std::string& run) const {
  StatusOr<v1::RunStatus> status = shell_->ReadStored([&](const Views& views) {
    if (!caller.member) return views.RunOf(run);
    StatusOr<v1::RunStatus> own = views.RunOf(run, caller.member->name);
    return own.ok() || !MayAll(caller) ? own : views.RunOf(run);
  });
  if (!status.ok()) NoteRefusal(context, &caller, RightOf(call).name, run, status.status());
  return status;
}

StatusOr<std::string> Gate::OwnRun(const Caller& caller, const grpc::ServerContextBase& context,
                                   Call call, const std::string& run) const {
  const StatusOr<v1::RunStatus> status = StatusOfOwnRun(caller, context, call, run);
  if (status.ok()) return status->run_id();
  if (MayAll(caller)) return run;
  return status.status();
}

StatusOr<MayBe> Gate::MayFetch(const Caller& caller, const std::string& sha256) const {
  if (MayAll(caller)) return MayBe{.blob = true, .copy = true};
  const bool worker = caller.member->role == Role::kWorker;
  if (IsSha256Hex(sha256)) {
    const Naming naming = shell_->Read([&](const Views& views) {
      return worker ? views.NamedForWorker(WorkerId(caller.member->worker_id), sha256)
                    : views.NamedForOwner(caller.member->name, sha256);
    });
    const bool listed = !naming.named && lists_->NamesBlob(naming.lists, sha256);
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

void Gate::Note(const Caller& caller, const grpc::ServerContextBase& context,
                std::string_view action, std::string_view object, const Status& outcome) const {
  Note(caller, PeerHost(context), action, object, outcome);
}

void Gate::Note(const Caller& caller, const std::string& address, std::string_view action,
                std::string_view object, const Status& outcome) const {
  audit_->Record(EntryOf(&caller, address, action, object, outcome));
}

void Gate::NoteRefusal(const grpc::ServerContextBase& context, const Caller* caller,
                       std::string_view action, std::string_view object, const Status& why) const {
  NoteRefusal(PeerHost(context), caller, action, object, why);
}

void Gate::NoteRefusal(const std::string& address, const Caller* caller, std::string_view action,
                       std::string_view object, const Status& why) const {
  audit_->RecordRefusal(EntryOf(caller, address, action, object, why));
}

}  // namespace longhaul::coordinator
