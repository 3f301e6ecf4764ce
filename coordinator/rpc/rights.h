// A table that says for each call which roles may make it, and what must belong to the caller. Join
// and GetTerm are not in the table, because everybody may call them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"
#include "proto/rpc/caller.h"

namespace longhaul::coordinator {

enum class Call : uint8_t {
  kInfo,
  kMissingBlobs,
  kUploadBlob,
  kSubmit,
  kPlanRun,
  kListRuns,
  kGetRun,
  kWatchRun,
  kStopRun,
  kSetReplicas,
  kListEvents,
  kListLogs,
  kListWorkers,
  kListCheckpoints,
  kFetchBlob,
  kTraceRun,
  kSampleRun,
  kListSteps,
  kRemoveRun,
  kCollectGarbage,
  kSession,
  kFetchForCell,
  kStoreShard,
  kSignObject,
  kRenew,
  kCreateToken,
  kListMembers,
  kRevokeMember,
  kListTokens,
  kRevokeToken,
  kDashboardKey,
  kReportMetrics,
  kFollow,
  kFetchCopy,
  kGiveCopy,
  kListAudit,
  kWitness,
  kVote,
  kLead,
};

// What a call is about. It must belong to the caller, unless the caller is an admin. CheckRole does
// not check this; the handler of the call must (IsOwn, and gate.h).
enum class Owned : uint8_t {
  kNothing,
  kRun,     // the caller submitted it
  kBlob,    // a run of the caller names it, or a run in which the caller has a cell (a stage)
  kWorker,  // its id is in the caller's certificate
};

struct Right {
  Call call;
  std::string_view name;     // of the rpc, for messages
  bool worker, user, admin;  // the roles that may make the call, besides `witness`
  Owned owned;
  bool witness = false;
};

// The rights of all calls, in the order of enum Call.
std::span<const Right> Rights();
const Right& RightOf(Call call);
// Checks that the caller's role may make this call; kPermissionDenied: it may not. Without
// encryption every caller may make all calls.
Status CheckRole(const Caller& caller, Call call);
// True if all runs count as the caller's own: for admins, and for all callers without encryption.
bool MayAll(const Caller& caller);
// Returns whether a run counts as the caller's own.
bool IsOwn(const Caller& caller, const v1::RunStatus& run);

}  // namespace longhaul::coordinator
