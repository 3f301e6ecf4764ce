// The input of the state machine: messages of workers, calls of users, and answers to commands of
// earlier ticks (commands.h). Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/ids.h"
#include "coordinator/state/once.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The submitter of a run, who then owns the run.
struct Submitter {
  std::string name = {};  // the member's name; empty: the coordinator has no TLS
  bool may_all = true;    // may also resume runs of other owners
};

// Some events are calls of users. `Reply` is the type of the answer in command::Reply, and
// `request` is the number of the call, set by Shell::Ask. A `run` in a call is a run's id or its
// name.
namespace event {
struct WorkerJoined {
  SessionId session;
  v1::Hello hello;
};
struct WorkerSaid {
  SessionId session;
  v1::WorkerMessage message;
  Signature signature = Signature::kNone;  // of the digests of a step report
};
struct WorkerLeft {
  SessionId session;
  std::string why;
  bool for_good = false;  // the worker's membership has ended: its stage is lost at once
};
// `longhaul submit`. The shell has already validated the run file with ParseRunSpec. The data blobs
// are in the store. `submit` has the call's id (once.h).
struct Submitted {
  using Reply = v1::SubmitReply;
  RequestId request = {};
  RunSpec spec;
  v1::SubmitRequest submit;
  RunId new_id;             // the run's id, if the call makes a new run
  std::string link_secret;  // 32 random bytes; secrets of the run's links are derived from them
  Submitter by = {};
};
// `longhaul plan`: as Submitted, but the reply is a plan, and no run begins.
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
  bool now = false;  // true: a running run stops at once; false: after its current step
  Once once = {};
};
// `longhaul replicas`: sets the number of data-parallel replicas that the run shall train with.
struct ReplicasAsked {
  using Reply = v1::ReplicasReply;
  RequestId request = {};
  std::string run;
  uint32_t replicas = 0;  // at least 1, else the reply is an error
  Once once = {};
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
  StatusOr<std::optional<Plan>> plan;  // nullopt or an error: the run keeps its plan
};
// `longhaul checkpoints`.
struct CheckpointsAsked {
  using Reply = v1::CheckpointsReply;
  RequestId request = {};
  std::string run;
  bool verify = false;  // connected holders hash all files before the answer
  // Set: before the answer, workers send the coordinator the parameters of the checkpoint of this
  // step; 0: of the newest checkpoint without known damage. `verify` is then ignored.
  std::optional<uint64_t> gather_step = std::nullopt;
};
// `longhaul trace`.
struct TraceAsked {
  using Reply = v1::TraceReply;
  RequestId request = {};
  std::string run;
  uint32_t steps = 0;  // number of newest steps; 0: all that workers keep
};
// `longhaul generate RUN`: the run's pipeline continues texts between two steps.
struct SamplesAsked {
  using Reply = v1::SampleReply;
  RequestId request = {};
  std::string run;
  v1::TakeSamples wanted;
};
// `longhaul rm`: removes a run that has ended.
struct RemoveAsked {
  using Reply = v1::RemoveRunReply;
  RequestId request = {};
  std::string run;
  Once once = {};
};
// `longhaul gc`.
struct GarbageAsked {
  using Reply = v1::CollectGarbageReply;
  RequestId request = {};
  v1::CollectGarbageRequest ask;
};
// Answer to command::CheckCopies. `problems` has the fault of each copy, in the order of the files
// of the command; "": the copy is whole.
struct CopiesChecked {
  uint64_t check;
  std::vector<std::string> problems;
  // True for a file that the disk could not read, which proves nothing about the copy. Empty: all
  // files could be read.
  std::vector<bool> unreadable = {};
};
// Answer to command::RunHook.
struct HookEnded {
  RunId run;
  uint64_t step;
  bool ok = false;     // the program has ended with exit code 0
  std::string how;     // "ended with exit code 3", "took longer than 10m and was killed"
  std::string output;  // the end of what the program wrote, as it wrote it; from a stranger
};
// Answer to command::StoreCheckpoint.
struct CheckpointStored {
  RunId run;
  uint64_t epoch, step;  // of the checkpoint
  std::string problem;   // why it is not there, a sentence without its full stop; "": it is there
};
// The coordinator has received and stored all bytes of a shard with this hash.
struct CopyStored {
  std::optional<WorkerId> from;  // sender; nullopt: unknown, because the coordinator has no TLS
  std::string sha256;
};
}  // namespace event

using Event =
    std::variant<event::WorkerJoined, event::WorkerSaid, event::WorkerLeft, event::Submitted,
                 event::PlanAsked, event::StopAsked, event::DataPrepared, event::CheckpointsAsked,
                 event::CopiesChecked, event::TraceAsked, event::SamplesAsked, event::PlanComputed,
                 event::RetuneComputed, event::ReplicasAsked, event::RemoveAsked,
                 event::GarbageAsked, event::CopyStored, event::HookEnded, event::CheckpointStored>;

}  // namespace longhaul::coordinator
