// Who may make which call: one table, and what has to be the caller's own. Pure.
#ifndef LONGHAUL_COORDINATOR_RPC_RIGHTS_H_
#define LONGHAUL_COORDINATOR_RPC_RIGHTS_H_

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

// What a call is about, and has to be of the caller. Admins may do all that their roles may.
enum class Owned : uint8_t {
  kNothing,
  kRun,     // that he submitted
  kBlob,    // that one of his runs names, or a run in which he has a cell
  kWorker,  // whose id his certificate has
};

struct Right {
  Call call;
  std::string_view name;  // as the service has it
  bool worker, user, admin;
  Owned owned;
};

// Of every call, in the order of their numbers.
std::span<const Right> Rights();
const Right& RightOf(Call call);
// kPermissionDenied: his role may not. A caller without encryption may all.
Status CheckRole(const Caller& caller, Call call);
// Whether everybody's runs are as his own: of admins, and without encryption.
bool MayAll(const Caller& caller);
// kPermissionDenied: somebody else's.
Status CheckOwner(const Caller& caller, const v1::RunStatus& run);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_RIGHTS_H_
