// The output of a tick, which is one call of State::Tick: writes for the store, and commands that
// the shell (coordinator/rpc) carries out in order after the writes. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/ids.h"
#include "coordinator/state/once.h"
#include "coordinator/state/run_record.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"
#include "planner/planner.h"
#include "planner/retune.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

namespace write {
// Adds the record, or replaces an older record of the same run.
struct Run {
  RunRecord record;
};
struct LogEvent {
  v1::Event event;
};
// Adds the step, or replaces an older record of the same step.
struct StepDone {
  RunId run;
  v1::StepRecord step;
};
struct WorkerLog {
  RunId run;
  std::string worker_name;
  v1::LogLine line;
};
// Removes all rows of the run.
struct RemoveRun {
  RunId run;
};
// Adds the answer of a call, or replaces the one with its owner and id.
struct Answered {
  AnsweredCall call;
};
struct AnswerForgotten {
  std::string owner, id;
};
// Changes nothing. A tick whose commands delete something has a write at least, so that a
// coordinator that leads no more, and does not know it yet, deletes nothing.
struct Barrier {};
}  // namespace write
using Write =
    std::variant<write::Run, write::LogEvent, write::StepDone, write::WorkerLog, write::RemoveRun,
                 write::Answered, write::AnswerForgotten, write::Barrier>;

namespace command {
// Sends a message on the worker's stream. The shell drops it if the stream has ended.
struct ToWorker {
  SessionId session;
  v1::WorkerCommand message;
};
// Ends the worker's stream after the messages already sent.
struct CloseSession {
  SessionId session;
  std::string why;  // for people
};
// Tokenizes the run's text. The answer is event::DataPrepared. Repeating the command gives the same
// token file.
struct PrepareData {
  RunId run;
  std::vector<v1::DataFile> files;
  std::string tokenizer;
  double validation_share;  // share of the text that only validation uses, from 0 to 1
  // Empty, or the SHA-256 of the list (run/data/data_set.h) of a mixture of data sets. A mixture
  // replaces `files` and `tokenizer`. Runs read a mixture in windows of `context` tokens.
  std::string list_sha256 = {};
  uint32_t context = 0;
};
// ComputePlan and ComputeRetune take long, so the shell runs them on another thread. Their answers
// are event::PlanComputed and event::RetuneComputed.
struct ComputePlan {
  ComputationId id;
  PlanRequest request;
};
// Searches better settings for the plan of a running run (planner/retune.h).
struct ComputeRetune {
  ComputationId id;
  RunSpec spec;
  Plan plan;
  Seen seen;  // times and rates of the run's last steps
};
// Cancels a computation whose result is no longer needed. No answer is expected.
struct CancelComputation {
  ComputationId id;
};
// Hashes the coordinator's copies of the shards (checkpoint files) `files`. The answer is
// event::CopiesChecked.
struct CheckCopies {
  uint64_t check;  // repeated in the answer
  std::vector<v1::CheckpointFile> files;
  // Set: instead of that, looks whether the files lie in this folder of an object store, and how
  // long they are.
  std::optional<v1::StoredFolder> folder = std::nullopt;
};
// Looks whether all files of a checkpoint lie in a folder of an object store, and then writes the
// checkpoint's description there (run/stored/stored_checkpoint.h), with which it exists. The answer
// is event::CheckpointStored.
struct StoreCheckpoint {
  RunId run;
  v1::StoredFolder folder;
  v1::StoredCheckpoint checkpoint;
};
// Deletes checkpoints of a run in an object store: those of the steps `dropped`, and what is left
// there of steps before the newest of `kept` that are not in `kept`. No answer. A later
// StoreCheckpoint of the run is carried out afterwards.
struct TrimFolder {
  RunId run;
  std::string address;  // of the run's folder: "s3://bucket/prefix/run/"
  std::set<uint64_t> dropped = {};
  std::set<uint64_t> kept = {};
};
// Writes an export of a checkpoint's parameters, and runs the program hooks.on_checkpoint on it.
// The answer is event::HookEnded. The shell secures the files before it carries out later commands,
// so that DropCopies does not take them away.
struct RunHook {
  RunId run;
  uint64_t step;
  RunSpec spec;
  uint32_t vocabulary;                    // of the tokenizer
  std::vector<v1::CheckpointFile> files;  // of parameters; the coordinator has copies of all
};
// Deletes the coordinator's copies of the shards with these hashes.
struct DropCopies {
  std::vector<std::string> sha256;
};
// Deletes all blobs and copies of shards, except those named here and those added or claimed in the
// last 24 hours (coordinator/store/garbage.h). Also deletes step records of the runs `trimmed`,
// except the newest `keep_steps` of each run. Then answers the call `request`. With `dry_run`, only
// counts what would be deleted.
struct CollectGarbage {
  RequestId request;
  bool dry_run = false;
  std::set<std::string> named;     // SHA-256 of the blobs that runs name
  std::vector<std::string> lists;  // SHA-256 of the blobs in `named` that list further blobs
  std::set<std::string> copies;    // SHA-256 of the shards that the coordinator holds or expects
  std::vector<RunId> trimmed;
  uint64_t keep_steps = 0;
  // Unnamed data goes if it is at least this old; nullopt: kGarbageAge (store/garbage.h).
  std::optional<absl::Duration> unnamed_age = std::nullopt;
  v1::CollectGarbageReply reply;  // lists what the state machine has already dropped
};
// Tells the coordinator's own relay which tickets count now (transport/relay/ticket.h).
struct ServeScopes {
  std::vector<std::string> scopes;
};
// Answers the call `request` of a user, with a message or an error.
template <class Message>
struct Reply {
  RequestId request;
  StatusOr<Message> reply;
};
}  // namespace command
using Command =
    std::variant<command::ToWorker, command::CloseSession, command::PrepareData,
                 command::CheckCopies, command::RunHook, command::DropCopies,
                 command::StoreCheckpoint, command::TrimFolder, command::Reply<v1::SubmitReply>,
                 command::Reply<v1::PlanReply>, command::Reply<v1::StopReply>,
                 command::Reply<v1::CheckpointsReply>, command::Reply<v1::TraceReply>,
                 command::Reply<v1::SampleReply>, command::ComputePlan, command::ComputeRetune,
                 command::CancelComputation, command::Reply<v1::ReplicasReply>,
                 command::CollectGarbage, command::Reply<v1::RemoveRunReply>, command::ServeScopes>;

struct TickResult {
  std::vector<Write> writes;
  std::vector<Command> commands;
  // The latest time at which State::Tick must be called again, even without an event, on the clock
  // of Tick's `now`. nullopt: the next tick may wait for an event.
  std::optional<MonoTime> wake_at;
};

}  // namespace longhaul::coordinator
