// The coordinator's logic: a pure state machine. tick(events, now) -> store writes, commands,
// replies.
//
// No I/O, no threads, no clock, no randomness of its own (ids and secrets come in with the events).
// Nothing that a worker or user sends makes it crash: what does not fit is refused or dropped and
// counted. invariants() runs at the end of every tick in all builds. The shell (coordinator/rpc)
// does the I/O and whatever takes long: it writes `writes` in one transaction *before* it carries
// out `commands`, in order.
//
//   queued -> planning -> preparing -> running -> finishing -> done
//      any of them -> failed(reason) | stopped
//   preparing, running, finishing -> recovering -> preparing | queued
//
// The transitions are one table (transitions.h); `longhaul-coordinator --dump-states` draws it.
#ifndef LONGHAUL_COORDINATOR_STATE_STATE_H_
#define LONGHAUL_COORDINATOR_STATE_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "coordinator/planner/planner.h"
#include "coordinator/planner/retune.h"
#include "coordinator/state/books/health_book.h"
#include "coordinator/state/fault_counts.h"
#include "coordinator/state/ids.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

enum class RunState : uint8_t {
  kQueued,
  kPlanning,
  kPreparing,
  kRunning,
  kFinishing,
  kDone,
  kStopped,
  kFailed,
  kRecovering,
};
std::string_view ToString(RunState state);
bool HasEnded(RunState state);  // done, stopped, failed

// ---- In ---------------------------------------------------------------------------

// Who submits a run, which then is his.
struct Submitter {
  std::string name = {};  // of a member; empty: of a coordinator without TLS
  bool may_all = true;    // go on with the runs of others
};

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
  bool for_good = false;  // it is no member any more: nobody waits for it
};
// The request was validated by the shell with ParseRunSpec; its data blobs are there.
struct Submitted {
  RequestId request;
  RunSpec spec;
  v1::SubmitRequest submit;
  RunId new_id;             // used when it makes a new run
  std::string link_secret;  // 32 random bytes
  Submitter by = {};
};
// As Submitted, but only plans and replies.
struct PlanAsked {
  RequestId request;
  RunSpec spec;
  v1::SubmitRequest submit;
  RunId new_id;
  std::string link_secret;
};
struct StopAsked {
  RequestId request;
  std::string run;
  bool now;
};
// So many replicas are to train from the next steps on.
struct ReplicasAsked {
  RequestId request;
  std::string run;
  uint32_t replicas = 0;
};
// Answer to command::PrepareData.
struct DataPrepared {
  RunId run;
  StatusOr<DataSet> data;
};
// Answers to command::ComputePlan and command::ComputeRetune. What is not waited for any more is
// dropped.
struct PlanComputed {
  ComputationId id;
  StatusOr<Plan> plan;
};
struct RetuneComputed {
  ComputationId id;
  StatusOr<std::optional<Plan>> plan;  // nullopt: the one that there is stays
};
struct CheckpointsAsked {
  RequestId request;
  std::string run;
  bool verify = false;  // all files are hashed first
  // First the coordinator gets copies of the parameters of the checkpoint of this step; 0: of the
  // newest that is whole.
  std::optional<uint64_t> gather_step = std::nullopt;
};
struct TraceAsked {
  RequestId request;
  std::string run;
  uint32_t steps;  // the last so many; 0 = all that are kept
};
// `longhaul rm`: a run that has ended is forgotten.
struct RemoveAsked {
  RequestId request;
  std::string run;
};
// `longhaul gc`.
struct GarbageAsked {
  RequestId request;
  v1::CollectGarbageRequest ask;
};
// Answer to command::CheckCopies: of each file what is wrong with its copy; empty: it is whole.
struct CopiesChecked {
  uint64_t check;
  std::vector<std::string> problems;
  // Of which the disk did not let it look: that says nothing of the copy. Empty: of none.
  std::vector<bool> unreadable = {};
};
// All bytes of a shard have come to the coordinator, with this hash.
struct CopyStored {
  std::optional<WorkerId> from;  // nullopt: some worker, which nobody knows without encryption
  std::string sha256;
};
}  // namespace event

using Event =
    std::variant<event::WorkerJoined, event::WorkerSaid, event::WorkerLeft, event::Submitted,
                 event::PlanAsked, event::StopAsked, event::DataPrepared, event::CheckpointsAsked,
                 event::CopiesChecked, event::TraceAsked, event::PlanComputed,
                 event::RetuneComputed, event::ReplicasAsked, event::RemoveAsked,
                 event::GarbageAsked, event::CopyStored>;

// ---- Out --------------------------------------------------------------------------

// How often a run has begun again by itself.
struct Attempts {
  uint32_t in_a_row = 0;   // without a step that no epoch had finished before
  uint64_t best_step = 0;  // that any epoch had finished at the last interruption
  std::string error;       // that a stage reported then; "": it was no stage's error
  friend bool operator==(const Attempts&, const Attempts&) = default;
};

// What the store keeps of a run: everything that a restarted coordinator needs.
struct RunRecord {
  RunId id;
  RunSpec spec;
  std::vector<v1::DataFile> data_files;
  RunState state = RunState::kQueued;
  std::string reason;
  Epoch epoch;  // newest that was ever assigned
  std::string link_secret;
  std::optional<DataSet> data;
  std::optional<Plan> plan;                         // of `epoch`
  std::vector<v1::CheckpointManifest> checkpoints;  // committed, oldest first
  uint64_t step = 0;                                // last finished by all stages
  bool stop_asked = false;                          // it ends after the step under way
  // It stops after the step under way, and goes on from there with another number of replicas.
  bool resize_asked = false;
  uint32_t replicas_wanted = 0;  // by `longhaul replicas`; 0: as many as the run file says
  Attempts attempts;
  int64_t submitted_unix_ms = 0, started_unix_ms = 0, ended_unix_ms = 0;
  std::string owner = {};  // the member that submitted it; empty: without TLS

  uint32_t ReplicasWanted() const {
    return replicas_wanted > 0 ? replicas_wanted : spec.replicas.count;
  }
};

// A run of the store that this version cannot read. Its row stays as it is.
struct UnreadableRun {
  RunId id;
  std::string problem;  // a sentence without its full stop
};
struct StoredRuns {
  std::vector<RunRecord> runs;  // in the order in which they were submitted
  std::vector<UnreadableRun> unreadable;
  // The newest steps of those that have not ended, back to their oldest checkpoints, in order; at
  // most kKeptSteps of each.
  std::map<RunId, std::vector<v1::StepRecord>> steps;
};

namespace write {
struct Run {
  RunRecord record;
};
struct LogEvent {
  v1::Event event;
};  // sequence is given by the state
struct StepDone {
  RunId run;
  v1::StepRecord step;
};
struct WorkerLog {
  RunId run;
  std::string worker_name;
  v1::LogLine line;
};
// Nothing of the run is left.
struct RemoveRun {
  RunId run;
};
}  // namespace write
using Write =
    std::variant<write::Run, write::LogEvent, write::StepDone, write::WorkerLog, write::RemoveRun>;

namespace command {
struct ToWorker {
  SessionId session;
  v1::WorkerCommand message;
};
// Ends the stream after what was sent before.
struct CloseSession {
  SessionId session;
  std::string why;
};
// Tokenize; answer with DataPrepared. Doing it twice gives the same file.
struct PrepareData {
  RunId run;
  std::vector<v1::DataFile> files;
  std::string tokenizer;
  double validation_share;
  // Instead of files and a tokenizer: the list of a mixture of data sets (run/data/data_set.h), by
  // its content address, read in windows of `context` tokens. Empty: none.
  std::string list_sha256 = {};
  uint32_t context = 0;
};
// Each takes a while, off the state machine's thread; answer with PlanComputed, RetuneComputed.
struct ComputePlan {
  ComputationId id;
  PlanRequest request;
};
struct ComputeRetune {
  ComputationId id;
  RunSpec spec;
  Plan plan;
  Seen seen;
};
// Nobody waits for it any more: it need not be answered.
struct CancelComputation {
  ComputationId id;
};
// Hash the coordinator's copies of these shards; answer with CopiesChecked.
struct CheckCopies {
  uint64_t check;
  std::vector<v1::CheckpointFile> files;
};
struct DropCopies {
  std::vector<std::string> sha256;
};
// Delete the blobs and copies that are not named here and that nobody has asked about lately, and
// the step records of these runs but for the newest; answers its caller.
struct CollectGarbage {
  RequestId request;
  bool dry_run = false;
  std::set<std::string> named;     // blobs that runs name
  std::vector<std::string> lists;  // blobs that they name and that name others
  std::set<std::string> copies;    // shards of which the coordinator is a holder, or will be
  std::vector<RunId> trimmed;
  uint64_t keep_steps = 0;
  v1::CollectGarbageReply reply;  // what the state has done already
};
struct ReplyRemove {
  RequestId request;
  StatusOr<v1::RemoveRunReply> reply;
};
struct ReplySubmit {
  RequestId request;
  StatusOr<v1::SubmitReply> reply;
};
struct ReplyPlan {
  RequestId request;
  StatusOr<v1::PlanReply> reply;
};
struct ReplyStop {
  RequestId request;
  StatusOr<v1::StopReply> reply;
};
struct ReplyReplicas {
  RequestId request;
  StatusOr<v1::ReplicasReply> reply;
};
struct ReplyCheckpoints {
  RequestId request;
  StatusOr<v1::CheckpointsReply> reply;
};
struct ReplyTrace {
  RequestId request;
  StatusOr<v1::TraceReply> reply;
};
}  // namespace command
using Command = std::variant<command::ToWorker, command::CloseSession, command::PrepareData,
                             command::CheckCopies, command::DropCopies, command::ReplySubmit,
                             command::ReplyPlan, command::ReplyStop, command::ReplyCheckpoints,
                             command::ReplyTrace, command::ComputePlan, command::ComputeRetune,
                             command::CancelComputation, command::ReplyReplicas,
                             command::CollectGarbage, command::ReplyRemove>;

struct TickResult {
  std::vector<Write> writes;
  std::vector<Command> commands;
  // When tick must be called again though nothing happened.
  std::optional<MonoTime> wake_at;
};

// Who can carry links between workers that do not reach each other.
struct RelayOffer {
  Relay relay;
  std::string address;  // transport/relay/ticket.h
  std::string secret;
};

struct StateOptions {
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // Silence after which the session of a worker that serves no run ends; of others their run says
  // it. A closed stream ends at once.
  absl::Duration session_timeout = absl::Seconds(10);
  // How long workers may take to time their layers, and to become ready (fetch data, build the
  // model, open links).
  absl::Duration measure_timeout = absl::Seconds(120);
  absl::Duration ready_timeout = absl::Minutes(30);
  // How long two neighbours may take to measure their link; then the plan goes without.
  absl::Duration probe_limit = absl::Seconds(10);
  // How long round trips of candidates are measured before the first plan, and then goodput; what
  // is not measured by then is estimated.
  absl::Duration survey_limit = absl::Seconds(30);
  // How long a worker may try to reach another one.
  absl::Duration reach_limit = absl::Seconds(5);
  // How long a running run may stand still, if no link is in trouble and every worker is there. At
  // least 20 median steps; ten times that before the first step of an epoch. Workers notice their
  // own hung threads before that.
  absl::Duration progress_timeout = absl::Seconds(120);
  // When runs do without a worker that was lost again and again.
  HealthOptions health;
  // Of the coordinator's own relay; nullopt: it has none.
  std::optional<RelayOffer> relay;
  // Random; the links by which workers try to reach each other prove a secret made of it.
  std::string reach_secret;
  std::string version;
};

// What some runs say of a blob. Its hash may be in a worker's report, so a checkpoint alone gives
// no right to what somebody else has sent: only to a copy that has come for that checkpoint.
struct Naming {
  bool named = false;              // they name it themselves, as data
  bool copied = false;             // it is a shard of theirs of which the coordinator has a copy
  std::vector<std::string> lists;  // blobs that they name, and which may name it
  bool connected = true;           // the worker has a session here; of owners true
};

// What the runs of an owner name.
struct OwnNames {
  std::set<std::string> blobs;
  std::set<std::string> lists;  // of `blobs`, which name others
};

class State {
 public:
  // `stored` and `next_event_sequence` as the store has them.
  State(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence, MonoTime now);
  ~State();

  // `unix_ms`: the wall clock, for records only; may jump.
  TickResult Tick(std::vector<Event> events, MonoTime now, int64_t unix_ms);

  // For the shell's queries, between ticks.
  // Newest first, without plans; without those that ended before then.
  std::vector<v1::RunStatus> Runs(int64_t ended_since_unix_ms = 0) const;
  StatusOr<v1::RunStatus> Run(std::string_view id_or_name) const;
  std::vector<v1::WorkerStatus> Workers(MonoTime now) const;
  // Newest measurements between connected workers.
  std::vector<v1::MeasuredLink> Links(MonoTime now) const;
  // Those that are there now.
  std::vector<v1::RelayStatus> Relays() const;
  // Whether a worker was asked to send a copy of this shard and has not answered yet; `from`: this
  // one, where it is given.
  bool ExpectsCopy(const std::string& sha256, uint64_t bytes,
                   const std::optional<WorkerId>& from = std::nullopt) const;
  // Whether a shard that this worker was asked for has come for its run already.
  bool HasCopyFor(const WorkerId& from, const std::string& sha256) const;
  // Whether a blob is one that active runs with cells of this worker name; or that runs of this
  // owner name.
  Naming NamedForWorker(const WorkerId& worker, const std::string& sha256) const;
  Naming NamedForOwner(std::string_view owner, const std::string& sha256) const;
  OwnNames NamesOfOwner(std::string_view owner) const;
  const FaultCounts& faults() const;
  // Grows with every change of any run.
  uint64_t sequence() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_STATE_H_
