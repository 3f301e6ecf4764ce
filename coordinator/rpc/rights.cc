#include "coordinator/rpc/rights.h"

#include <array>
#include <cstddef>

namespace longhaul::coordinator {
namespace {

constexpr std::array kRights = {
    //    call                    name               worker user   admin  what is to be his own
    Right{Call::kInfo, "Info", true, true, true, Owned::kNothing},
    Right{Call::kMissingBlobs, "MissingBlobs", false, true, true, Owned::kNothing},
    Right{Call::kUploadBlob, "UploadBlob", false, true, true, Owned::kNothing},
    Right{Call::kSubmit, "Submit", false, true, true, Owned::kRun},  // where it resumes one
    Right{Call::kPlanRun, "PlanRun", false, true, true, Owned::kNothing},
    Right{Call::kListRuns, "ListRuns", false, true, true, Owned::kRun},
    Right{Call::kGetRun, "GetRun", false, true, true, Owned::kRun},
    Right{Call::kWatchRun, "WatchRun", false, true, true, Owned::kRun},
    Right{Call::kStopRun, "StopRun", false, true, true, Owned::kRun},
    Right{Call::kSetReplicas, "SetReplicas", false, true, true, Owned::kRun},
    Right{Call::kListEvents, "ListEvents", false, true, true, Owned::kRun},
    Right{Call::kListLogs, "ListLogs", false, true, true, Owned::kRun},
    Right{Call::kListWorkers, "ListWorkers", true, true, true, Owned::kNothing},
    Right{Call::kListCheckpoints, "ListCheckpoints", false, true, true, Owned::kRun},
    Right{Call::kFetchBlob, "FetchBlob", false, true, true, Owned::kBlob},
    Right{Call::kTraceRun, "TraceRun", false, true, true, Owned::kRun},
    Right{Call::kSampleRun, "SampleRun", false, true, true, Owned::kRun},
    Right{Call::kListSteps, "ListSteps", false, true, true, Owned::kRun},
    Right{Call::kRemoveRun, "RemoveRun", false, true, true, Owned::kRun},
    Right{Call::kCollectGarbage, "CollectGarbage", false, false, true, Owned::kNothing},
    Right{Call::kSession, "Session", true, false, false, Owned::kWorker},
    Right{Call::kFetchForCell, "FetchBlob of workers", true, false, false, Owned::kBlob},
    Right{Call::kStoreShard, "StoreShard", true, false, false, Owned::kWorker},
    Right{Call::kSignObject, "SignObject", true, false, false, Owned::kBlob},
    Right{Call::kRenew, "Renew", true, true, true, Owned::kNothing, true},
    Right{Call::kCreateToken, "CreateToken", false, false, true, Owned::kNothing},
    Right{Call::kListMembers, "ListMembers", false, false, true, Owned::kNothing},
    Right{Call::kRevokeMember, "RevokeMember", false, false, true, Owned::kNothing},
    Right{Call::kListTokens, "ListTokens", false, false, true, Owned::kNothing},
    Right{Call::kRevokeToken, "RevokeToken", false, false, true, Owned::kNothing},
    Right{Call::kDashboardKey, "CreateDashboardKey", false, true, true, Owned::kNothing},
    Right{Call::kReportMetrics, "ReportMetrics", true, false, false, Owned::kWorker},
    Right{Call::kFollow, "Follow", false, false, true, Owned::kNothing},
    Right{Call::kFetchCopy, "FetchCopy", false, false, true, Owned::kNothing},
    Right{Call::kGiveCopy, "GiveCopy", false, false, true, Owned::kNothing},
    Right{Call::kListAudit, "ListAudit", false, false, true, Owned::kNothing},
    Right{Call::kWitness, "Witness", false, false, false, Owned::kNothing, true},
    Right{Call::kVote, "Vote", false, false, true, Owned::kNothing},
    Right{Call::kLead, "Lead", false, false, true, Owned::kNothing},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < kRights.size(); ++i) {
    if (static_cast<size_t>(kRights[i].call) != i) return false;
  }
  return kRights.size() == static_cast<size_t>(Call::kLead) + 1;
}
static_assert(InOrder(), "every call has one row, at the place of its number");

}  // namespace

std::span<const Right> Rights() {
  return kRights;
}

const Right& RightOf(Call call) {
  return kRights[static_cast<size_t>(call)];
}

Status CheckRole(const Caller& caller, Call call) {
  if (!caller.member) return absl::OkStatus();
  const Right& right = RightOf(call);
  const Role role = caller.member->role;
  const bool may = role == Role::kWorker    ? right.worker
                   : role == Role::kUser    ? right.user
                   : role == Role::kWitness ? right.witness
                                            : right.admin;
  if (may) return absl::OkStatus();
  return PermissionDenied("{} has the role {}, which may not call {}", caller.member->name,
                          ToString(role), right.name);
}

bool MayAll(const Caller& caller) {
  return !caller.member || caller.member->role == Role::kAdmin;
}

bool IsOwn(const Caller& caller, const v1::RunStatus& run) {
  return MayAll(caller) || run.owner() == caller.member->name;
}

}  // namespace longhaul::coordinator
