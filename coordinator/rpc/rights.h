// The table of the roles that may make each call, and of what must belong to the caller. Pure.
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
  kListSteps,
  kRemoveRun,
  kCollectGarbage,
  kSession,
  kFetchForCell,
  kStoreShard,
  kRenew,
  kCreateToken,
  kListMembers,
  kRevokeMember,
  kFollow,
  kFetchCopy,
  kFence,
};

// The thing that a call is about, which must belong to the caller. Admins are exempt.
enum class Owned : uint8_t {
  kNothing,
  kRun,     // submitted by the caller
  kBlob,    // named by one of the caller's runs, or by a run in which the caller has a cell
  kWorker,  // with the id in the caller's certificate
};

struct Right {
  Call call;
  std::string_view name;  // as in the service
  bool worker, user, admin;
  Owned owned;
};

// The rights of all calls, in the order of enum Call.
std::span<const Right> Rights();
const Right& RightOf(Call call);
// kPermissionDenied: the caller's role lacks the right. Without encryption a caller may make all
// calls.
Status CheckRole(const Caller& caller, Call call);
// Whether all runs count as the caller's own: for admins, and without encryption.
bool MayAll(const Caller& caller);
// kPermissionDenied: the run belongs to another user.
Status CheckOwner(const Caller& caller, const v1::RunStatus& run);

}  // namespace longhaul::coordinator
