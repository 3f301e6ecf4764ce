// What the state machine keeps in memory: workers, runs, and what is known of each stage. Plain
// data; private to coordinator/state.
#ifndef LONGHAUL_COORDINATOR_STATE_MODEL_H_
#define LONGHAUL_COORDINATOR_STATE_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/planner/retune.h"
#include "coordinator/state/books/probe_rounds.h"
#include "coordinator/state/books/step_book.h"
#include "coordinator/state/link_survey.h"
#include "coordinator/state/setting_change.h"
#include "coordinator/state/state.h"

namespace longhaul::coordinator {

// What a worker's layers took when they were measured last.
struct MeasuredLayers {
  RunSpec spec;  // they were asked for with
  v1::LayerTimes times;
  MonoTime at;
};

// A worker that has said hello since the coordinator started; kept for a while after it left.
struct Worker {
  WorkerId id;
  Incarnation incarnation;
  v1::Hello hello;
  std::optional<SessionId> session;  // nullopt: not connected
  uint64_t sessions = 0;             // begun since the worker is known
  MonoTime last_heard;
  uint64_t memory_used_bytes = 0;
  v1::Resident resident;  // without a run: none
  // The run, or the request to plan one, that it is reserved for. A worker serves one at a time.
  std::optional<RunId> held;
  std::optional<MeasuredLayers> layers;  // of this incarnation
  std::optional<RunId> times_for;        // asked in this session to time the layers as its spare
  absl::Duration clock_ahead;            // of the coordinator's, when it joined
  std::deque<Incarnation> replaced;      // which newer ones followed
  bool restarts = false;  // it has said that its process ends, and another incarnation comes
  v1::AtHand at_hand;     // as its newest heartbeat says; without a run: nothing
};

// A plan in the making: for a run, or for a request that only wants to see it.
struct Draft {
  struct Candidate {
    WorkerId id;
    Incarnation incarnation;
    std::optional<v1::LayerTimes> times;
  };
  RunId run;
  Epoch epoch;
  RunSpec spec;
  std::vector<v1::DataFile> files;
  uint64_t resume_step = 0;        // of the checkpoint that it goes on from; 0: from scratch
  std::vector<Candidate> workers;  // in pipeline order, unless candidates_for is set
  // Set: the workers are by name, and the plan takes so many of them in an order of its own.
  std::optional<uint32_t> candidates_for;
  std::optional<DataSet> data;
  MonoTime began;
  MonoTime measure_until;  // all layer times must be in by then
  // All else is there, and workers of it are trying to reach each other; not waited for any longer.
  bool awaits_reach = false;
  MonoTime reach_until;
  // Of a request to plan: what the user assumes of the network instead of what was measured.
  std::optional<uint64_t> assumed_line_bits_per_second;
  std::optional<absl::Duration> assumed_delay;
  // Then the links are measured; what is not answered in time is given up.
  std::string link_secret;
  ProbeRounds probes;
  // Of a plan that chooses among candidates: which links are measured next, and when no further
  // round of those that are measured now begins.
  LinkSurvey survey;
  std::optional<MonoTime> survey_until;
  // Last its plan is computed; a plan that is there waits for shards on their way to its workers.
  std::optional<ComputationId> computation;
  std::optional<Plan> plan;

  Candidate* Find(const WorkerId& id, const Incarnation& incarnation) {
    for (Candidate& candidate : workers) {
      if (candidate.id == id && candidate.incarnation == incarnation) return &candidate;
    }
    return nullptr;
  }
};

// Workers for a run.
struct Candidates {
  std::vector<Worker*> workers;  // in pipeline order
  // Set: by name, and the plan takes so many of them, for all replicas, in an order of its own.
  std::optional<uint32_t> choose;
};

// `longhaul plan`: a draft that is answered and forgotten.
struct PlanJob {
  RequestId request;
  Draft draft;
};

// A stage whose worker has no session: it is detached, not lost. It trains on without the
// coordinator, and keeps its cell until `until`, unless it is seen to be dead before (detached.cc).
struct Detachment {
  std::string why;
  MonoTime since;
  MonoTime until;
  bool by_restart = false;  // the coordinator restarted, and the worker has not come back since
};

// What is known of one cell of the present epoch.
struct StageRecord {
  CellId id;
  size_t place = 0;                        // in Run::stages, which are as the assignment's cells
  bool is_first = false, is_last = false;  // on the way of the activations
  WorkerId worker;
  Incarnation incarnation;
  std::string name;
  bool attached = false;               // its worker has a live session
  std::optional<Detachment> detached;  // its worker has none, and the stage has not finished
  bool ready = false, started = false, finished = false, stopped = false;
  uint64_t finished_step = 0;
  std::optional<v1::StepReport> last;  // newest report
};

// Of an epoch that nobody has heard of yet, as its cells.
std::vector<StageRecord> StagesOf(const Assignment& assignment);

// Reports of one step, by place, until all are in.
struct PartialStep {
  std::vector<std::optional<v1::StepReport>> reports;
};
struct PartialCheckpoint {
  std::vector<std::optional<v1::ShardReport>> shards;
};

// How long to wait for the cause when a stage only says that a neighbour is gone, or is gone
// itself; or for the other stages' reports when a loss is not finite.
inline constexpr absl::Duration kCausePatience = absl::Seconds(1);

// Why the run is about to fail: there may be a better explanation under way.
struct Suspicion {
  std::string sentence;
  MonoTime until;
  // The stage that a neighbour says is gone. nullopt: a worker came back without its stage.
  std::optional<CellId> missing;
  std::optional<CellId> accuser;  // that neighbour
};
// A loss or norm that is not finite; the other stages' reports of that step say where it began.
struct NonFinite {
  uint64_t step = 0;
  std::string what;  // "the loss became nan"
  MonoTime until;
};

// An edge whose cells do not hear each other well.
struct LinkTrouble {
  std::map<CellId, bool> stages;  // who says so; true: its connection is lost, else suspect
  MonoTime lost_at;               // when the last of them said that its connection is lost
  double away_seconds = 0;        // the longest that a side was without the other
  uint64_t frames_resent = 0;     // by both sides
};

// Of a running epoch: what was seen of its steps, and a change of its cells' settings to those of
// the plan (retune.cc).
struct Tuning {
  std::vector<Seen> steps;         // newest last
  std::optional<Seen> considered;  // what the plan was considered with last
  MonoTime not_before;             // the next time
  absl::Duration pause;
  std::optional<ComputationId> computation;  // whether there is a better plan
  SettingChange change;
};

// What a run in the state `recovering` waits for, and until when (recovery.cc).
struct Recovery {
  MonoTime since;
  MonoTime not_before;       // when to begin again, in place or from the queue
  MonoTime until;            // how long to wait for the workers of the plan
  std::string move_failure;  // why shards did not get to a new worker; "": they did, or may yet
};

// Who has the cells of an epoch: replica by replica, stage by stage. Null: nobody is there.
using Crew = std::vector<Worker*>;
bool IsWhole(const Crew& crew);

// A process that died is often started again at once. Others take its place only after that.
inline constexpr absl::Duration kReturnPatience = absl::Seconds(5);

struct Run {
  RunRecord record;
  uint64_t order = 0;                   // of submission
  uint64_t queue_order = 0;             // of becoming queued; a resumed run goes to the end
  bool dirty = false;                   // to be written at the end of the tick
  MonoTime stored_at;                   // when it was last to be written
  uint64_t sequence = 0;                // of its last change
  std::string waiting;                  // queued: for what, a sentence
  std::optional<Draft> draft;           // planning
  std::vector<StageRecord> stages;      // of the newest plan; kept when it has ended
  std::optional<MonoTime> ready_until;  // preparing: all stages must be ready by then
  bool resume_exactly = false;          // queued, planning: from this checkpoint and no other

  StepBook steps;  // finished; until it has ended
  std::map<uint64_t, PartialStep> partial_steps;
  std::map<uint64_t, PartialCheckpoint> partial_checkpoints;
  std::set<uint64_t> skipped_checkpoints;                     // that a stage could not write
  std::deque<v1::StepRecord> recent;                          // finished steps, oldest first
  std::map<uint64_t, v1::ValidationReport> validation_early;  // of steps that are not finished yet
  std::optional<v1::ValidationReport> validation;
  // (step, cell) where a value that is not finite appeared first.
  std::optional<std::pair<uint64_t, CellId>> first_nonfinite;
  std::optional<Suspicion> suspicion;
  std::optional<NonFinite> nonfinite;
  std::map<EdgeId, LinkTrouble> troubled_links;  // without trouble: none
  std::vector<std::string> workers_lost;
  uint64_t copies_begun = 0;             // up to which step copies were asked for
  std::optional<MonoTime> copies_again;  // of that step, because some did not get there
  bool copies_fail = false;              // the last ones did
  std::string copies_with;               // whom events name as their holders
  MonoTime progressed_at;  // when a stage was last heard to have done a piece of work (progress.cc)
  Tuning tuning;           // running
  Recovery recovery;
  uint64_t dropped = 0;  // messages of other epochs, workers or states of this run

  // Of a run with stages, which has a plan.
  const Assignment& assignment() const { return record.plan->assignment; }
  StageRecord* Find(const CellId& id) {
    const auto found = std::ranges::find(stages, id, &StageRecord::id);
    return found == stages.end() ? nullptr : &*found;
  }
  const StageRecord* Find(const CellId& id) const { return const_cast<Run*>(this)->Find(id); }
};

// How many microbatches the run has read, over all replicas, up to the checkpoint of `step`; and up
// to a step of its present epoch. The steps that follow read those that follow, whatever the number
// of replicas is then.
uint64_t MicrobatchesAt(const RunRecord& record, uint64_t step);
uint64_t MicrobatchesAt(const Run& run, uint64_t step);

bool IsActive(
    RunState state);  // holds workers: planning, preparing, running, finishing, recovering
bool HasStages(RunState state);  // workers have stages of its epoch: preparing, running, finishing

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_MODEL_H_
