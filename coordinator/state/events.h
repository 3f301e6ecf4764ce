// The input of the state machine. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/ids.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The submitter of a run, who then owns the run.
struct Submitter {
  std::string name = {};  // a member's; empty: a coordinator without TLS
  bool may_all = true;    // may resume runs of others
};

// Some events are calls of users. They have the type `Reply`, which is the type of the answer in
// command::Reply, and `request`, the number of the call. Shell::Ask sets `request`.
namespace event {
struct WorkerJoined {
  SessionId session;
  v1::Hello hello;
};
struct WorkerSaid {
  SessionId session;
  v1::WorkerMessage message;
};
struct WorkerLeft {
  SessionId session;
  std::string why;
  bool for_good = false;  // no longer a member: nothing waits for it to come back
};
// `longhaul submit`. The shell has validated the request with ParseRunSpec, and its data blobs
// exist.
struct Submitted {
  using Reply = v1::SubmitReply;
  RequestId request = {};
  RunSpec spec;
  v1::SubmitRequest submit;
  RunId new_id;             // the run's id, if the call makes a new run
  std::string link_secret;  // 32 random bytes
  Submitter by = {};
};
// `longhaul plan`: as Submitted, but makes only a plan, which is the reply.
struct PlanAsked {
  using Reply = v1::PlanReply;
  RequestId request = {};
  RunSpec spec;
  v1::SubmitRequest submit;
  RunId new_id;
  std::string link_secret;
};
// `longhaul stop`.
struct StopAsked {
  using Reply = v1::StopReply;
  RequestId request = {};
  std::string run;
  bool now = false;
};
// `longhaul replicas`: sets the number of replicas that the run shall train with.
struct ReplicasAsked {
  using Reply = v1::ReplicasReply;
  RequestId request = {};
  std::string run;
  uint32_t replicas = 0;
};
// Answer to command::PrepareData.
struct DataPrepared {
  RunId run;
  StatusOr<DataSet> data;
};
// Answers to command::ComputePlan and command::ComputeRetune. Answers to cancelled computations are
// dropped.
struct PlanComputed {
  ComputationId id;
  StatusOr<Plan> plan;
};
struct RetuneComputed {
  ComputationId id;
  StatusOr<std::optional<Plan>> plan;  // nullopt: the run keeps its plan
};
// `longhaul checkpoints`.
struct CheckpointsAsked {
  using Reply = v1::CheckpointsReply;
  RequestId request = {};
  std::string run;
  bool verify = false;  // holders hash all files before the answer
  // If set, the coordinator fetches copies of a checkpoint's parameters before it answers: of the
  // checkpoint of this step, or of the newest whole one if 0. `verify` then has no effect.
  std::optional<uint64_t> gather_step = std::nullopt;
};
// `longhaul trace`.
struct TraceAsked {
  using Reply = v1::TraceReply;
  RequestId request = {};
  std::string run;
  uint32_t steps = 0;  // number of newest steps; 0: all that workers keep
};
// `longhaul rm`: removes a run that has ended.
struct RemoveAsked {
  using Reply = v1::RemoveRunReply;
  RequestId request = {};
  std::string run;
};
// `longhaul gc`.
struct GarbageAsked {
  using Reply = v1::CollectGarbageReply;
  RequestId request = {};
  v1::CollectGarbageRequest ask;
};
// Answer to command::CheckCopies. `problems` has the fault of each copy, in the order of the files;
// "": the copy is whole.
struct CopiesChecked {
  uint64_t check;
  std::vector<std::string> problems;
  // True for a file that the disk could not read, which proves nothing about the copy. Empty: all
  // files could be read.
  std::vector<bool> unreadable = {};
};
// All bytes of a shard have arrived at the coordinator, with this hash.
struct CopyStored {
  std::optional<WorkerId> from;  // nullopt: unknown, as without TLS
  std::string sha256;
};
}  // namespace event

using Event =
    std::variant<event::WorkerJoined, event::WorkerSaid, event::WorkerLeft, event::Submitted,
                 event::PlanAsked, event::StopAsked, event::DataPrepared, event::CheckpointsAsked,
                 event::CopiesChecked, event::TraceAsked, event::PlanComputed,
                 event::RetuneComputed, event::ReplicasAsked, event::RemoveAsked,
                 event::GarbageAsked, event::CopyStored>;

}  // namespace longhaul::coordinator
