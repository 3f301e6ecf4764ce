#include "coordinator/rpc/dashboard_changes.h"

#include <utility>

#include "absl/time/clock.h"
#include "coordinator/rpc/await_answer.h"
#include "coordinator/rpc/submit_check.h"

namespace longhaul::coordinator {
namespace {

std::optional<std::string_view> OwnerFor(const Caller& caller) {
  if (MayAll(caller)) return std::nullopt;
  return std::string_view(caller.member->name);
}

}  // namespace

StatusOr<Caller> DashboardChanges::Admit(const Asker& asker, Call call) const {
  StatusOr<Caller> caller = keys_->Check(asker.key, absl::Now());
  if (caller.ok() && caller->member.has_value() != with_members_) {
    caller = absl::UnauthenticatedError(
        "this key was made before the coordinator was started with, or without, --insecure; "
        "`longhaul dashboard-key` prints another");
  }
  Status status = caller.status();
  if (status.ok()) status = gate_->StillMember(*caller);
  if (status.ok()) status = CheckRole(*caller, call);
  if (status.ok()) return caller;
  gate_->NoteRefusal(asker.address, caller.ok() ? &*caller : nullptr, RightOf(call).name, "",
                     status);
  return status;
}

StatusOr<Viewer> DashboardChanges::Identify(const Asker& asker) {
  LH_ASSIGN_OR_RETURN(const Caller caller, Admit(asker, Call::kListRuns));
  Viewer viewer{.all = MayAll(caller)};
  if (caller.member) {
    viewer.name = caller.member->name;
    viewer.role = std::string(ToString(caller.member->role));
  }
  return viewer;
}

StatusOr<v1::SubmitRequest> DashboardChanges::SubmissionOf(const Caller& caller,
                                                           const std::string& run) const {
  return shell_->ReadStored(
      [&](const Views& views) { return views.SubmissionOf(run, OwnerFor(caller)); });
}

StatusOr<v1::SubmitRequest> DashboardChanges::Submission(const Asker& asker,
                                                         const std::string& run) {
  LH_ASSIGN_OR_RETURN(const Caller caller, Admit(asker, Call::kGetRun));
  return SubmissionOf(caller, run);
}

StatusOr<v1::SubmitReply> DashboardChanges::SubmitFor(const Caller& caller, const Wanted& wanted,
                                                      Deadline deadline) {
  LH_RETURN_IF_ERROR(shell_->HasRoom());
  LH_ASSIGN_OR_RETURN(const Place place, shell_->places().Take(caller, Use::kCall));
  v1::SubmitRequest request;
  if (!wanted.run.empty()) {
    LH_ASSIGN_OR_RETURN(request, SubmissionOf(caller, wanted.run));
  }
  request.set_run_yaml(wanted.yaml);
  request.set_file_name("the run file");
  request.set_resume(wanted.resume);
  LH_ASSIGN_OR_RETURN(
      RunSpec spec,
      CheckSubmit(request, *blobs_, {MayAll(caller), own_blobs_->Of(caller), own_blobs_->lists()}));
  LH_RETURN_IF_ERROR(own_blobs_->MayName(caller, spec));
  if (wanted.resume) {
    // A submission resumes by name, the newest run of all owners for an admin.
    LH_ASSIGN_OR_RETURN(const v1::RunStatus newest, shell_->ReadStored([&](const Views& views) {
      return views.RunOf(spec.name, OwnerFor(caller));
    }));
    if (newest.run_id() != wanted.run && newest.name() != wanted.run) {
      return FailedPrecondition(
          "{} is not the newest run of the name {}, which is {}; `longhaul submit --resume` goes "
          "on with the newest one, and this page does so as well",
          wanted.run, spec.name, newest.run_id());
    }
  }
  const Submitter by{caller.member ? caller.member->name : "", MayAll(caller)};
  return AwaitAnswer<v1::SubmitReply>(shell_, deadline, [&](auto done) {
    return shell_->Submit(std::move(spec), std::move(request), by, std::move(done));
  });
}

StatusOr<v1::SubmitReply> DashboardChanges::Submit(const Asker& asker, const Wanted& wanted,
                                                   Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const Caller caller, Admit(asker, Call::kSubmit));
  StatusOr<v1::SubmitReply> reply = SubmitFor(caller, wanted, deadline);
  gate_->Note(caller, asker.address, "submit", reply.ok() ? reply->run_id() : wanted.run,
              reply.status());
  return reply;
}

StatusOr<v1::StopReply> DashboardChanges::Stop(const Asker& asker, const std::string& run, bool now,
                                               Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const Caller caller, Admit(asker, Call::kStopRun));
  LH_ASSIGN_OR_RETURN(const v1::RunStatus found, shell_->ReadStored([&](const Views& views) {
    return views.RunOf(run, OwnerFor(caller));
  }));
  LH_ASSIGN_OR_RETURN(const Place place, shell_->places().Take(caller, Use::kCall));
  StatusOr<v1::StopReply> reply = AwaitAnswer<v1::StopReply>(shell_, deadline, [&](auto done) {
    return shell_->Ask(event::StopAsked{.run = found.run_id(), .now = now}, std::move(done));
  });
  gate_->Note(caller, asker.address, "stop", found.run_id(), reply.status());
  return reply;
}

}  // namespace longhaul::coordinator
